//! Pattern `uniform`: all pages of the process are equally likely at every access.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Distribution, Pattern, Phase, Shape};
use crate::memory::CellMap;
use crate::random::Random;
use crate::spec::{SpecError, require};

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uniform {
    /// Accesses of each thread.
    pub accesses: u64,
}

impl Uniform {
    pub(super) fn build(&self, pages: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        require(self.accesses > 0, &format!("{place}.accesses"), "is zero", "give each thread an access")?;
        let map = CellMap::equal(pages, pages);
        let shape = Shape::Random(Arc::new(Distribution::even(&map, 0..map.len())));
        Ok(Box::new(Running { map, phase: Phase { shape, accesses: self.accesses }, done: Vec::new() }))
    }
}

#[derive(Debug)]
struct Running {
    map: CellMap,
    phase: Phase,
    /// Threads that have had their phase.
    done: Vec<u32>,
}

impl Pattern for Running {
    fn cells(&self) -> CellMap {
        self.map.clone()
    }

    fn next_phase(&mut self, thread: u32, _random: &mut Random) -> Option<Phase> {
        if self.done.contains(&thread) {
            return None;
        }
        self.done.push(thread);
        Some(self.phase.clone())
    }
}
