//! Mean placement of each process's pages over the run.

use thermocline_core::units::Nanos;

use crate::memory::Memory;

/// Minimum interval between two readings: managers run at least as often.
const EVERY: Nanos = Nanos::from_s(1);

/// Pages by process and node, summed over time.
#[derive(Clone, Debug)]
pub struct Residence {
    since: Nanos,
    pages_ns: Vec<Vec<f64>>,
}

impl Residence {
    /// From `now` on.
    pub(crate) fn new(memory: &Memory, now: Nanos) -> Residence {
        Residence { since: now, pages_ns: vec![vec![0.0; memory.nodes.len()]; memory.spaces.len()] }
    }

    /// Adds the present placement for the time since the last call, if that is long enough or the
    /// run is over.
    pub(crate) fn note(&mut self, memory: &Memory, now: Nanos, over: bool) {
        let span = now.since(self.since);
        if span.0 == 0 || (span.0 < EVERY.0 && !over) {
            return;
        }
        self.since = now;
        for (space, sums) in memory.spaces.iter().zip(&mut self.pages_ns) {
            for cell in space.first_cell..space.first_cell + space.map.len() {
                let on = memory.cells.count(cell).on;
                sums.iter_mut().zip(on).for_each(|(sum, on)| *sum += f64::from(*on) * span.0 as f64);
            }
        }
    }

    /// Mean pages of a process of `pages` pages on each node.
    pub(crate) fn mean(&self, process: usize, pages: u32) -> Vec<f64> {
        let sums = &self.pages_ns[process];
        let all: f64 = sums.iter().sum();
        let share = |sum: &f64| if all > 0.0 { sum / all } else { 0.0 };
        sums.iter().map(|sum| share(sum) * f64::from(pages)).collect()
    }
}
