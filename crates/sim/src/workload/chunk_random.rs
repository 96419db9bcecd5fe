//! Pattern `chunk-random`: a chunk chosen at random is accessed at random for a fixed number of accesses, then the next
//! (S0's microbenchmark). Each thread chooses for itself.

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
}

impl ChunkRandom {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        let chunk = self.chunk.pages();
        require(
            chunk > 0 && chunk <= u64::from(pages),
            &format!("{place}.chunk"),
            "is no part of the footprint",
            "give at least 4KiB and at most the footprint",
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
        Ok(Box::new(Running {
            map,
            chunks,
            accesses: accesses as u64,
            left: vec![self.visits; threads as usize],
        }))
    }
}

#[derive(Debug)]
struct Running {
    map: CellMap,
    chunks: u64,
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
        let chunk = random.below(self.chunks) as u32;
        let shape = Shape::Random(Arc::new(Distribution::even(&self.map, chunk..chunk + 1)));
        Some(Phase { shape, accesses: self.accesses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn each_thread_makes_its_visits_to_chunks_at_random() {
        let spec = ChunkRandom { chunk: Bytes(64 << 12), accesses_per_page: 2.5, visits: 4000 };
        let mut pattern = spec.build(640, 2, "pattern").unwrap();
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
    fn what_cannot_be_visited_is_refused() {
        for (chunk, accesses_per_page, visits) in
            [(0, 1.0, 1), (1 << 30, 1.0, 1), (4096, 0.0, 1), (4096, f64::NAN, 1), (4096, 1.0, 0)]
        {
            let spec = ChunkRandom { chunk: Bytes(chunk), accesses_per_page, visits };
            assert!(spec.build(640, 1, "pattern").is_err(), "{spec:?}");
        }
    }
}
