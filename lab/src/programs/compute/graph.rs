//! A Kronecker graph as the GAP benchmark suite makes it, in compressed sparse rows.
//!
//! Each edge chooses a quadrant of the adjacency matrix once a level with probabilities 0.57, 0.19,
//! 0.19 and 0.05, 16 edges a vertex; edges lead both ways, loops and doubles are left out, and
//! labels are shuffled. The edges are drawn twice, to count and to fill, rather than kept.

use std::ops::Range;

use anyhow::ensure;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Edges drawn for each vertex (GAP's default).
pub const DEGREE: u64 = 16;
/// Probabilities of the quadrants (Graph 500 and GAP): of neither end, the second, the first or
/// both lying in the upper half.
const QUADRANTS: [f64; 4] = [0.57, 0.19, 0.19, 0.05];
/// Levels that are drawn at a time, and the random bits for them.
const LEVELS: u32 = 3;
const DRAW_BITS: u32 = 16;

/// See the module.
#[derive(Debug)]
pub struct Graph {
    /// Where each vertex' neighbours begin; one more than there are vertices.
    offsets: Vec<u64>,
    /// The neighbours of each vertex, ascending.
    neighbours: Vec<u32>,
}

impl Graph {
    /// A graph with 2^`scale` vertices.
    ///
    /// # Errors
    /// When `scale` is not from 4 to 30.
    pub fn kronecker(scale: u32, seed: u64) -> anyhow::Result<Graph> {
        ensure!((4..=30).contains(&scale), "--scale {scale} is not from 4 to 30");
        let vertices = 1usize << scale;
        let mut offsets = vec![0u64; vertices + 1];
        for (a, b) in edges(scale, seed) {
            offsets[a as usize] += 1;
            offsets[b as usize] += 1;
        }
        // Each offset is first the end of its vertex' neighbours; filling moves it to their start.
        let mut sum = 0;
        for offset in &mut offsets {
            sum += *offset;
            *offset = sum;
        }
        let mut neighbours = vec![0; sum as usize];
        let mut put = |from: u32, to: u32| {
            let at = &mut offsets[from as usize];
            *at -= 1;
            neighbours[*at as usize] = to;
        };
        for (a, b) in edges(scale, seed) {
            put(a, b);
            put(b, a);
        }
        let mut graph = Graph { offsets, neighbours };
        graph.leave_out_doubles();
        Ok(graph)
    }

    fn leave_out_doubles(&mut self) {
        let (vertices, mut kept) = (self.vertices(), 0);
        for vertex in 0..vertices {
            let Range { start, end } = self.range(vertex);
            self.neighbours[start..end].sort_unstable();
            let begin = kept;
            for at in start..end {
                let neighbour = self.neighbours[at];
                if kept == begin || self.neighbours[kept - 1] != neighbour {
                    self.neighbours[kept] = neighbour;
                    kept += 1;
                }
            }
            self.offsets[vertex as usize] = begin as u64;
        }
        self.offsets[vertices as usize] = kept as u64;
        self.neighbours.truncate(kept);
        self.neighbours.shrink_to_fit();
    }

    /// Number of vertices.
    pub fn vertices(&self) -> u32 {
        (self.offsets.len() - 1) as u32
    }

    /// Number of edges, each counted from both ends.
    pub fn edges(&self) -> u64 {
        self.neighbours.len() as u64
    }

    /// The neighbours of a vertex, ascending.
    pub fn neighbours(&self, vertex: u32) -> &[u32] {
        &self.neighbours[self.range(vertex)]
    }

    fn range(&self, vertex: u32) -> Range<usize> {
        self.offsets[vertex as usize] as usize..self.offsets[vertex as usize + 1] as usize
    }
}

/// The edges that are drawn, without loops; the same for equal arguments.
fn edges(scale: u32, seed: u64) -> impl Iterator<Item = (u32, u32)> {
    let (table, mut rng) = (draws(), Pcg64Mcg::seed_from_u64(seed));
    let shuffle =
        move |label: u64| shuffled((label >> (scale.next_multiple_of(LEVELS) - scale)) as u32, scale);
    let drawn = (0..DEGREE << scale).map(move |_| {
        let (mut a, mut b, mut random) = (0u64, 0u64, 0);
        for draw in 0..scale.div_ceil(LEVELS) {
            let bits = draw * DRAW_BITS % u64::BITS;
            if bits == 0 {
                random = rng.next_u64();
            }
            let [of_a, of_b] = table[(random >> bits) as u16 as usize];
            a = a << LEVELS | u64::from(of_a);
            b = b << LEVELS | u64::from(of_b);
        }
        (shuffle(a), shuffle(b))
    });
    drawn.filter(|(a, b)| a != b)
}

/// The bits of both ends' labels in some levels, for each value of the random bits.
fn draws() -> Vec<[u8; 2]> {
    let mut table = Vec::with_capacity(1 << DRAW_BITS);
    let mut sum = 0.0;
    for outcome in 0..1u32 << (2 * LEVELS) {
        let (mut probability, mut ends) = (1.0, [0, 0]);
        for level in 0..LEVELS {
            let quadrant = outcome >> (2 * level) & 3;
            probability *= QUADRANTS[quadrant as usize];
            ends = [ends[0] << 1 | (quadrant >> 1) as u8, ends[1] << 1 | (quadrant & 1) as u8];
        }
        sum += probability * f64::from(1 << DRAW_BITS);
        table.resize(sum.round() as usize, ends);
    }
    table
}

/// Another label of `scale` bits: XOR with a constant and with higher bits, and multiplication by
/// odd numbers, are bijections.
fn shuffled(label: u32, scale: u32) -> u32 {
    let mask = (1u32 << scale) - 1;
    let mut label = label ^ 0x5555_5555 & mask;
    for factor in [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d] {
        label = label.wrapping_mul(factor) & mask;
        label ^= label >> (scale / 2);
    }
    label
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn is_symmetric_without_loops_and_doubles_and_holds_what_was_drawn() {
        let graph = Graph::kronecker(9, 3).unwrap();
        let mut expected = BTreeSet::new();
        for (a, b) in edges(9, 3) {
            expected.extend([(a, b), (b, a)]);
        }
        let all = |v| graph.neighbours(v).iter().map(move |&u| (v, u));
        let found: Vec<(u32, u32)> = (0..graph.vertices()).flat_map(all).collect();
        assert!(found.is_sorted() && found.iter().all(|(a, b)| a != b));
        assert_eq!(found.len() as u64, graph.edges());
        assert_eq!(BTreeSet::from_iter(found), expected);
    }

    #[test]
    fn labels_are_a_permutation() {
        for scale in [4, 9, 13] {
            let labels: BTreeSet<u32> = (0..1 << scale).map(|label| shuffled(label, scale)).collect();
            assert_eq!((labels.len(), labels.last()), (1 << scale, Some(&((1 << scale) - 1))));
        }
    }

    /// A vertex whose label has no one-bits before the shuffle takes (0.57 + 0.19)^scale of the
    /// ends of edges.
    #[test]
    fn degrees_follow_the_quadrants() {
        let scale = 12;
        let ends: Vec<u32> = edges(scale, 1).flat_map(|(a, b)| [a, b]).collect();
        let hub = shuffled(0, scale);
        let share = ends.iter().filter(|&&end| end == hub).count() as f64 / ends.len() as f64;
        let expected = 0.76f64.powi(scale as i32);
        assert!((share / expected - 1.0).abs() < 0.05, "{share} {expected}");
    }
}
