//! Patterns that never change: every thread has one phase.

use super::{Pattern, Phase};
use crate::memory::CellMap;
use crate::memory::layout::Layout;
use crate::random::Random;

/// The same phase for each thread, once.
#[derive(Debug)]
pub(super) struct Steady {
    map: CellMap,
    layout: Layout,
    phase: Phase,
    /// Threads that have not had the phase yet.
    left: Vec<bool>,
}

impl Steady {
    pub(super) fn new(map: CellMap, layout: Layout, phase: Phase, threads: u32) -> Steady {
        Steady { map, layout, phase, left: vec![true; threads as usize] }
    }
}

impl Pattern for Steady {
    fn layout(&self) -> Layout {
        self.layout.clone()
    }

    fn cells(&self) -> CellMap {
        self.map.clone()
    }

    fn next_phase(&mut self, thread: u32, _random: &mut Random) -> Option<Phase> {
        let left = self.left.get_mut(thread as usize)?;
        std::mem::take(left).then(|| self.phase.clone())
    }
}
