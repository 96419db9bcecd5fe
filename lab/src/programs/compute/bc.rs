//! Betweenness centrality from sampled sources (Brandes, 2001).
//!
//! From a source, shortest ways are counted forwards, level by level; backwards, each vertex gets
//! the share of ways that lead on through it. The shares of a source sum to the vertices that lie
//! between it and all others, which is what is checked: the sum of distances less one.

use anyhow::ensure;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use super::bfs::source;
use super::graph::Graph;
use super::{Progress, Work};

const UNKNOWN: u32 = u32::MAX;
/// Of a source's sum, by rounding.
const ERROR_MAX: f64 = 1e-6;

/// See the module.
#[derive(Debug)]
pub struct Bc {
    graph: Graph,
    rng: Pcg64Mcg,
    depths: Vec<u32>,
    /// Shortest ways from the source.
    ways: Vec<f64>,
    /// Of the source's ways, those through each vertex, as a sum of shares over their ends.
    shares: Vec<f64>,
    /// The sum of all sources so far.
    scores: Vec<f64>,
    /// Vertices as they were found.
    order: Vec<u32>,
    /// The greatest error of a source.
    error: f64,
}

impl Bc {
    /// Centrality in `graph` from sources that `seed` chooses.
    pub fn new(graph: Graph, seed: u64) -> Bc {
        let vertices = graph.vertices() as usize;
        Bc {
            rng: Pcg64Mcg::seed_from_u64(seed),
            depths: vec![UNKNOWN; vertices],
            ways: vec![0.0; vertices],
            shares: vec![0.0; vertices],
            scores: vec![0.0; vertices],
            order: Vec::with_capacity(vertices),
            error: 0.0,
            graph,
        }
    }

    /// Returns the sum of distances less one.
    fn forwards(&mut self, source: u32, progress: &Progress) -> f64 {
        self.depths.fill(UNKNOWN);
        self.ways.fill(0.0);
        self.order.clear();
        self.depths[source as usize] = 0;
        self.ways[source as usize] = 1.0;
        self.order.push(source);
        let (mut at, mut between) = (0, 0.0);
        while let Some(&vertex) = self.order.get(at) {
            let (depth, ways) = (self.depths[vertex as usize] + 1, self.ways[vertex as usize]);
            let neighbours = self.graph.neighbours(vertex);
            for &neighbour in neighbours {
                let found = &mut self.depths[neighbour as usize];
                if *found == UNKNOWN {
                    *found = depth;
                    self.order.push(neighbour);
                    between += f64::from(depth - 1);
                }
                if *found == depth {
                    self.ways[neighbour as usize] += ways;
                }
            }
            progress.add(neighbours.len() as u64);
            at += 1;
        }
        between
    }

    /// Returns the sum of shares.
    fn backwards(&mut self, progress: &Progress) -> f64 {
        self.shares.fill(0.0);
        let mut sum = 0.0;
        // The source is first, and lies between nothing.
        for &vertex in self.order.iter().skip(1).rev() {
            let (depth, ways) = (self.depths[vertex as usize] + 1, self.ways[vertex as usize]);
            let neighbours = self.graph.neighbours(vertex);
            let mut share = 0.0;
            for &neighbour in neighbours {
                let on = neighbour as usize;
                if self.depths[on] == depth {
                    share += ways / self.ways[on] * (1.0 + self.shares[on]);
                }
            }
            self.shares[vertex as usize] = share;
            self.scores[vertex as usize] += share;
            sum += share;
            progress.add(neighbours.len() as u64);
        }
        sum
    }
}

impl Work for Bc {
    fn step(&mut self, progress: &Progress) {
        let source = source(&self.graph, &mut self.rng);
        let between = self.forwards(source, progress);
        let sum = self.backwards(progress);
        let error = (sum - between).abs() / between.max(1.0);
        self.error = if error.is_nan() { f64::INFINITY } else { self.error.max(error) };
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.error <= ERROR_MAX, "a source's shares are off by {:.1e} of their sum", self.error);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of one source by their definition: of all shortest ways from the source to a target,
    /// the part that goes through a vertex, summed over targets.
    fn by_definition(graph: &Graph, source: u32) -> Vec<f64> {
        let from = |start: u32| {
            let n = graph.vertices() as usize;
            let (mut depth, mut ways) = (vec![UNKNOWN; n], vec![0.0; n]);
            (depth[start as usize], ways[start as usize]) = (0, 1.0);
            let mut level = vec![start];
            while !level.is_empty() {
                let mut next = Vec::new();
                for &v in &level {
                    for &u in graph.neighbours(v) {
                        if depth[u as usize] == UNKNOWN {
                            depth[u as usize] = depth[v as usize] + 1;
                            next.push(u);
                        }
                        if depth[u as usize] == depth[v as usize] + 1 {
                            ways[u as usize] += ways[v as usize];
                        }
                    }
                }
                level = next;
            }
            (depth, ways)
        };
        let (depth, ways) = from(source);
        let share = |v: u32| {
            let (depth_v, ways_v) = from(v);
            let through = |t: &usize| {
                let t = *t;
                t != v as usize
                    && depth[t] != UNKNOWN
                    && depth_v[t] != UNKNOWN
                    && depth[t] == depth[v as usize] + depth_v[t]
            };
            let parts = (0..depth.len()).filter(through).map(|t| ways[v as usize] * ways_v[t] / ways[t]);
            if v == source { 0.0 } else { parts.sum::<f64>() }
        };
        (0..graph.vertices()).map(share).collect()
    }

    #[test]
    fn scores_are_those_of_the_definition() {
        let mut work = Bc::new(Graph::kronecker(7, 4).unwrap(), 9);
        let mut expected = vec![0.0; 128];
        let mut rng = Pcg64Mcg::seed_from_u64(9);
        for _ in 0..5 {
            work.step(&Progress::default());
            let shares = by_definition(&work.graph, source(&work.graph, &mut rng));
            expected.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
        }
        work.check().unwrap();
        for (found, expected) in work.scores.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9 * expected.max(1.0), "{found} {expected}");
        }
    }

    #[test]
    fn a_lost_count_is_found() {
        let mut work = Bc::new(Graph::kronecker(7, 4).unwrap(), 9);
        let between =
            work.forwards(source(&work.graph, &mut Pcg64Mcg::seed_from_u64(9)), &Progress::default());
        let last = *work.order.last().unwrap() as usize;
        work.ways[last] = 0.5;
        assert!((work.backwards(&Progress::default()) - between).abs() > ERROR_MAX * between);
    }
}
