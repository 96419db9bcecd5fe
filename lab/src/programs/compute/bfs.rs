//! Breadth-first search that follows edges forwards while the frontier is small, and asks each
//! unknown vertex for a neighbour in the frontier while it is large (Beamer, 2012).

use anyhow::ensure;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::graph::Graph;
use super::{Progress, Work};

/// Backwards if the frontier has more than the edges of unknown vertices divided by this (GAP).
const ALPHA: u64 = 15;
/// Forwards again below the vertices divided by this (GAP).
const BETA: usize = 18;
const UNKNOWN: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct Bfs {
    graph: Graph,
    rng: Pcg64Mcg,
    source: u32,
    /// Of each vertex the one that found it.
    parents: Vec<u32>,
    /// The frontier, and the one after it.
    frontier: Vec<u32>,
    next: Vec<u32>,
    /// The frontier as bits, while it is large.
    bits: Vec<u64>,
}

impl Bfs {
    /// Searches of `graph` from vertices that `seed` chooses.
    pub fn new(graph: Graph, seed: u64) -> Bfs {
        let vertices = graph.vertices() as usize;
        Bfs {
            rng: Pcg64Mcg::seed_from_u64(seed),
            source: 0,
            parents: vec![UNKNOWN; vertices],
            frontier: Vec::with_capacity(vertices),
            next: Vec::with_capacity(vertices),
            bits: vec![0; vertices.div_ceil(64)],
            graph,
        }
    }

    /// Returns the edges of what was found.
    fn forwards(&mut self, progress: &Progress) -> u64 {
        let mut edges = 0;
        for &vertex in &self.frontier {
            let neighbours = self.graph.neighbours(vertex);
            for &neighbour in neighbours {
                let parent = &mut self.parents[neighbour as usize];
                if *parent == UNKNOWN {
                    *parent = vertex;
                    self.next.push(neighbour);
                    edges += self.graph.neighbours(neighbour).len() as u64;
                }
            }
            progress.add(neighbours.len() as u64);
        }
        edges
    }

    fn backwards(&mut self, progress: &Progress) -> u64 {
        self.bits.fill(0);
        for &vertex in &self.frontier {
            self.bits[vertex as usize / 64] |= 1 << (vertex % 64);
        }
        let mut edges = 0;
        for vertex in 0..self.graph.vertices() {
            if self.parents[vertex as usize] != UNKNOWN {
                continue;
            }
            let neighbours = self.graph.neighbours(vertex);
            let found = neighbours.iter().position(|&n| self.bits[n as usize / 64] >> (n % 64) & 1 != 0);
            if let Some(at) = found {
                self.parents[vertex as usize] = neighbours[at];
                self.next.push(vertex);
                edges += neighbours.len() as u64;
            }
            progress.add(found.map_or(neighbours.len(), |at| at + 1) as u64);
        }
        edges
    }
}

/// A vertex with neighbours.
pub(super) fn source(graph: &Graph, rng: &mut Pcg64Mcg) -> u32 {
    loop {
        let vertex = rng.next_u64() as u32 % graph.vertices();
        if !graph.neighbours(vertex).is_empty() {
            return vertex;
        }
    }
}

impl Work for Bfs {
    fn step(&mut self, progress: &Progress) {
        self.source = source(&self.graph, &mut self.rng);
        self.parents.fill(UNKNOWN);
        self.parents[self.source as usize] = self.source;
        self.frontier.clear();
        self.frontier.push(self.source);
        let mut edges = self.graph.neighbours(self.source).len() as u64;
        let mut unknown = self.graph.edges();
        let mut back = false;
        while !self.frontier.is_empty() {
            unknown -= edges;
            let large = self.frontier.len() >= self.parents.len() / BETA;
            back = if back { large } else { edges > unknown / ALPHA };
            edges = if back { self.backwards(progress) } else { self.forwards(progress) };
            std::mem::swap(&mut self.frontier, &mut self.next);
            self.next.clear();
        }
    }

    /// Of the last search: every parent is a neighbour one step nearer to the source, no edge
    /// spans more than one step, and none leads from what was found to what was not (Graph 500).
    fn check(&self) -> anyhow::Result<()> {
        let depths = depths(&self.parents, self.source);
        for vertex in 0..self.graph.vertices() {
            let (parent, depth) = (self.parents[vertex as usize], depths[vertex as usize]);
            let neighbours = self.graph.neighbours(vertex);
            if parent != UNKNOWN && vertex != self.source {
                let near = neighbours.binary_search(&parent).is_ok();
                ensure!(near && depth != UNKNOWN, "vertex {vertex} was not found through {parent}");
            }
            for &neighbour in neighbours {
                let other = depths[neighbour as usize];
                let reached = (depth == UNKNOWN) == (other == UNKNOWN);
                ensure!(
                    reached && depth.abs_diff(other) <= 1,
                    "vertices {vertex} and {neighbour} are neighbours at depths {depth} and {other}"
                );
            }
        }
        Ok(())
    }
}

/// Of each vertex the steps to the source along parents; of one without a way, `UNKNOWN`.
fn depths(parents: &[u32], source: u32) -> Vec<u32> {
    let mut depths = vec![UNKNOWN; parents.len()];
    depths[source as usize] = 0;
    let mut way = Vec::new();
    for vertex in 0..parents.len() as u32 {
        let mut at = vertex;
        // A way without an end is a circle.
        while depths[at as usize] == UNKNOWN && parents[at as usize] != UNKNOWN && way.len() < parents.len() {
            way.push(at);
            at = parents[at as usize];
        }
        let mut depth = depths[at as usize];
        for on in way.drain(..).rev() {
            depth = if depth == UNKNOWN { UNKNOWN } else { depth + 1 };
            depths[on as usize] = depth;
        }
    }
    depths
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn finds_what_a_plain_search_finds_as_near() {
        let mut work = Bfs::new(Graph::kronecker(10, 2).unwrap(), 5);
        for _ in 0..20 {
            work.step(&Progress::default());
            work.check().unwrap();
            let mut plain = vec![UNKNOWN; work.parents.len()];
            plain[work.source as usize] = 0;
            let mut queue = VecDeque::from([work.source]);
            while let Some(vertex) = queue.pop_front() {
                for &neighbour in work.graph.neighbours(vertex) {
                    if plain[neighbour as usize] == UNKNOWN {
                        plain[neighbour as usize] = plain[vertex as usize] + 1;
                        queue.push_back(neighbour);
                    }
                }
            }
            assert_eq!(depths(&work.parents, work.source), plain);
        }
    }

    #[test]
    fn a_wrong_parent_is_found() {
        let mut work = Bfs::new(Graph::kronecker(8, 2).unwrap(), 5);
        work.step(&Progress::default());
        let found = (0..256).find(|&v| v != work.source && work.parents[v as usize] != UNKNOWN).unwrap();
        let right = work.parents[found as usize];
        work.parents[found as usize] = found;
        assert!(work.check().is_err(), "its own parent");
        work.parents[found as usize] = UNKNOWN;
        assert!(work.check().is_err(), "left out");
        work.parents[found as usize] = right;
        work.check().unwrap();
    }
}
