//! Pattern `chunk-random`: a chunk chosen at random is accessed at random for a fixed number of
//! accesses, then the next (S0's microbenchmark). Each thread chooses for itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Distribution, Pattern, Phase, Shape};
use crate::memory::CellMap;
use crate::random::Random;
use crate::spec::{SpecError, require};
use crate::units::Bytes;

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkRandom {
    /// Size of a chunk.
    pub chunk: Bytes,
    /// Accesses to each page of a chunk, on average, before the next chunk.
    pub accesses_per_page: f64,
    /// Chunks that each thread visits.
    pub visits: u64,
    /// Share of the memory before the first chunk, which is never accessed.
    #[serde(default)]
    pub skip_share: f64,
    /// The chunks are visited in order, instead of at random.
    #[serde(default)]
    pub in_order: bool,
}

/// Maximum number of chunks of a footprint: each is a cell, which takes memory.
const CHUNKS_MAX: u64 = 1 << 16;

impl ChunkRandom {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        let chunk = self.chunk.pages();
        require(
            chunk > 0 && chunk <= u64::from(pages),
            &format!("{place}.chunk"),
            "is no part of the footprint",
            "give at least 4KiB and at most the footprint",
        )?;
        require(
            u64::from(pages) / chunk <= CHUNKS_MAX,
            &format!("{place}.chunk"),
            &format!("makes more than {CHUNKS_MAX} chunks of the footprint"),
            "give a larger one",
        )?;
        let accesses = (self.accesses_per_page * chunk as f64).round();
        require(
            (1.0..1e18).contains(&accesses),
            &format!("{place}.accesses_per_page"),
            "leaves a visit without an access, or is no number",
            "give a number above 0",
        )?;
        require(self.visits > 0, &format!("{place}.visits"), "is zero", "give each thread a visit")?;
        let map = CellMap::equal(pages, chunk as u32);
        // Only whole chunks are visited.
        let chunks = u64::from(pages) / chunk;
        let first = (chunks as f64 * self.skip_share).round() as u64;
        require(
            (0.0..1.0).contains(&self.skip_share) && first < chunks,
            &format!("{place}.skip_share"),
            "leaves no chunk",
            "give 0 to below 1",
        )?;
        Ok(Box::new(Running {
            map,
            chunks: first..chunks,
            in_order: self.in_order,
            visits: self.visits,
            accesses: accesses as u64,
            left: vec![self.visits; threads as usize],
        }))
    }
}

#[derive(Debug)]
struct Running {
    map: CellMap,
    chunks: std::ops::Range<u64>,
    in_order: bool,
    visits: u64,
    accesses: u64,
    /// Visits that each thread still has to make.
    left: Vec<u64>,
}

impl Pattern for Running {
    fn cells(&self) -> CellMap {
        self.map.clone()
    }

    fn next_phase(&mut self, thread: u32, random: &mut Random) -> Option<Phase> {
        let left = self.left.get_mut(thread as usize)?;
        *left = left.checked_sub(1)?;
        let chunks = self.chunks.end - self.chunks.start;
        let chunk = if self.in_order { (self.visits - 1 - *left) % chunks } else { random.below(chunks) };
        let chunk = (self.chunks.start + chunk) as u32;
        let shape = Shape::Random(Arc::new(Distribution::even(&self.map, chunk..chunk + 1)));
        Some(Phase { shape, accesses: self.accesses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    /// Chunks of 64 pages.
    fn spec(accesses_per_page: f64, visits: u64) -> ChunkRandom {
        ChunkRandom { chunk: Bytes(64 << 12), accesses_per_page, visits, skip_share: 0.0, in_order: false }
    }

    #[test]
    fn each_thread_makes_its_visits_to_chunks_at_random() {
        let mut pattern = spec(2.5, 4000).build(640, 2, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let mut visits = [0u32; 10];
        for thread in 0..2 {
            while let Some(phase) = pattern.next_phase(thread, &mut random) {
                let Shape::Random(d) = phase.shape else { panic!("random") };
                assert_eq!((phase.accesses, d.weights().len()), (160, 1));
                visits[d.weights()[0].0 as usize] += 1;
            }
        }
        assert_eq!(visits.iter().sum::<u32>(), 8000);
        assert!(visits.iter().all(|n| (650..950).contains(n)), "{visits:?}");
    }

    #[test]
    fn in_order_means_one_after_the_other_behind_what_is_skipped() {
        let spec = ChunkRandom { skip_share: 0.75, in_order: true, ..spec(1.0, 4) };
        let mut pattern = spec.build(768, 1, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let visited: Vec<u32> = std::iter::from_fn(|| pattern.next_phase(0, &mut random))
            .map(|phase| match phase.shape {
                Shape::Random(d) => d.weights()[0].0,
                Shape::Walk(_) => panic!("random"),
            })
            .collect();
        assert_eq!(visited, [9, 10, 11, 9]);
    }

    #[test]
    fn what_cannot_be_visited_is_refused() {
        for (chunk, accesses_per_page, visits) in
            [(0, 1.0, 1), (1 << 30, 1.0, 1), (4096, 0.0, 1), (4096, f64::NAN, 1), (4096, 1.0, 0)]
        {
            let spec = ChunkRandom { chunk: Bytes(chunk), ..spec(accesses_per_page, visits) };
            assert!(spec.build(640, 1, "pattern").is_err(), "{spec:?}");
        }
    }
}
