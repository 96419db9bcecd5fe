//! Results of the best placements: bounds to compare managers with.
//!
//! * Static: every page stays where it is put, with the pages that gain most in DRAM. Computed from
//!   the programs' accesses by cell: the result of perfect knowledge without migration.
//! * Phased: a new placement at each phase of a thread, at no cost, with all of DRAM for itself. No
//!   manager that cannot foresee the draws of a phase serves more accesses from DRAM.
//! * [`min`]: foresees every access (Belady's MIN), computed on the accesses themselves if they are
//!   few enough to list.
//!
//! Times are of idle nodes, without faults and migrations.

pub mod costs;
pub mod lru;
pub mod min;

use serde::Serialize;

use crate::machine::Machine;
use crate::memory::{CellMap, Space};
use crate::system::System;
use crate::workload::{Distribution, Phase, Shape, Walk};

/// Bounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Oracle {
    /// Share of the accesses that the best static placement serves from the top tier.
    pub static_top_share: f64,
    /// The time that it takes, in seconds.
    pub static_time_s: f64,
    /// Share of the accesses that the best placement for each phase serves from the top tier.
    pub phased_top_share: f64,
    /// The time with all memory in the top tier, in seconds.
    pub all_top_time_s: f64,
    /// The time with all memory in the last tier, in seconds.
    pub all_low_time_s: f64,
}

/// The accesses that the threads make in a run; background processes are left out.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Accesses to each cell of each process.
    cells: Vec<Vec<f64>>,
    /// Accesses of each thread.
    threads: Vec<f64>,
    /// Pages of the top tier that programs can use.
    capacity: f64,
    /// Accesses that the best placement for each phase serves from the top tier.
    phased_top: f64,
}

impl Demand {
    pub(crate) fn new(machine: &Machine, spaces: &[Space], threads: usize) -> Demand {
        let top = &machine.nodes[..usize::from(machine.top)];
        Demand {
            cells: spaces.iter().map(|s| vec![0.0; s.map.len() as usize]).collect(),
            threads: vec![0.0; threads],
            capacity: top.iter().map(|n| n.pages.saturating_sub(n.watermarks.low_pages) as f64).sum(),
            phased_top: 0.0,
        }
    }

    /// Counts a phase of a thread of this process.
    pub(crate) fn add(&mut self, map: &CellMap, process: usize, thread: u32, phase: &Phase) {
        let accesses = phase.accesses as f64;
        self.threads[thread as usize] += accesses;
        let cells = &mut self.cells[process];
        match &phase.shape {
            Shape::Random(distribution) => {
                for (cell, share) in distribution.weights() {
                    cells[*cell as usize] += accesses * share;
                }
                self.phased_top += accesses * best_share(map, distribution, self.capacity);
            }
            Shape::Walk(walk) => {
                let range = walked(walk, phase.accesses);
                let pages = f64::from(range.end - range.start);
                for cell in map.cell_of(range.start)..=map.cell_of(range.end - 1) {
                    let of = map.range(cell);
                    let common = range.end.min(of.end) - range.start.max(of.start);
                    cells[cell as usize] += accesses * f64::from(common) / pages;
                }
                // A cycle longer than memory: pages kept in memory hit again; for the rest the
                // first access to a page misses.
                let missed = (1.0 - self.capacity / pages).max(0.0) / f64::from(walk.per_page);
                self.phased_top += accesses * (1.0 - missed);
            }
        }
    }

    /// The bounds, at the end of a run; `None` without accesses.
    pub(crate) fn bounds(&self, system: &System) -> Option<Oracle> {
        let machine = &system.machine;
        let all: f64 = self.threads.iter().sum();
        if all == 0.0 {
            return None;
        }
        let last = machine.nodes.len() - 1;
        let times: Vec<(f64, f64)> = system
            .processes
            .iter()
            .map(|p| {
                let top = (0..usize::from(machine.top)).map(|n| p.idle_ns[n]).fold(f64::INFINITY, f64::min);
                (top, p.idle_ns[last])
            })
            .collect();
        let mut cells: Vec<(f64, f64, usize)> = Vec::new();
        for (process, of) in self.cells.iter().enumerate() {
            let map = &system.memory.spaces[process].map;
            let sized = of.iter().enumerate().filter(|(_, accesses)| **accesses > 0.0);
            cells
                .extend(sized.map(|(cell, accesses)| (f64::from(map.size(cell as u32)), *accesses, process)));
        }
        let gain = |c: &(f64, f64, usize)| c.1 / c.0 * (times[c.2].1 - times[c.2].0);
        cells.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        let (mut left, mut served) = (self.capacity, 0.0);
        // For each process, the share of its accesses that the top tier serves.
        let (mut of, mut top) = (vec![0.0; times.len()], vec![0.0; times.len()]);
        for (pages, accesses, process) in cells {
            let fits = (left / pages).clamp(0.0, 1.0);
            left -= pages * fits;
            served += accesses * fits;
            top[process] += accesses * fits;
            of[process] += accesses;
        }
        let time = |share: &dyn Fn(usize) -> f64| {
            let thread = |(thread, accesses): (usize, &f64)| {
                let process = usize::from(system.threads[thread].process);
                let (top_ns, low_ns) = times[process];
                let share = share(process);
                let access = share * top_ns + (1.0 - share) * low_ns + system.processes[process].think_ns;
                accesses * access / 1e9
            };
            self.threads.iter().enumerate().map(thread).fold(0.0, f64::max)
        };
        Some(Oracle {
            static_top_share: served / all,
            static_time_s: time(&|p| if of[p] > 0.0 { top[p] / of[p] } else { 1.0 }),
            phased_top_share: self.phased_top / all,
            all_top_time_s: time(&|_| 1.0),
            all_low_time_s: time(&|_| 0.0),
        })
    }
}

/// Share of the accesses that go to the most popular pages, as many as fit.
fn best_share(map: &CellMap, distribution: &Distribution, capacity: f64) -> f64 {
    let weights = distribution.weights();
    let pages: f64 = weights.iter().map(|(cell, _)| f64::from(map.size(*cell))).sum();
    if pages <= capacity {
        return 1.0;
    }
    let mut by_page: Vec<(f64, f64)> = weights.iter().map(|(c, w)| (f64::from(map.size(*c)), *w)).collect();
    by_page.sort_by(|a, b| (b.1 / b.0).total_cmp(&(a.1 / a.0)));
    let (mut left, mut share) = (capacity, 0.0);
    for (pages, weight) in by_page {
        let fits = (left / pages).clamp(0.0, 1.0);
        left -= pages * fits;
        share += weight * fits;
    }
    share
}

/// The positions that `accesses` accesses of a walk reach, as one range.
fn walked(walk: &Walk, accesses: u64) -> std::ops::Range<u32> {
    let visits = accesses.div_ceil(u64::from(walk.per_page)).max(1);
    let reach = (i128::from(visits) - 1) * i128::from(walk.step);
    let (at, other) = (i128::from(walk.at), i128::from(walk.at) + reach);
    let (low, high) = (at.min(other), at.max(other) + 1);
    if low >= i128::from(walk.within.start) && high <= i128::from(walk.within.end) {
        low as u32..high as u32
    } else {
        walk.within.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_reaches_what_it_visits() {
        assert_eq!(walked(&Walk::new(10, 1, 0..100, 4), 20), 10..15);
        assert_eq!(walked(&Walk::new(10, -2, 0..100, 4), 16), 4..11);
        assert_eq!(walked(&Walk::new(98, 1, 0..100, 4), 20), 0..100);
    }

    #[test]
    fn the_best_share_is_that_of_the_most_popular_pages() {
        let map = CellMap::of(&[0, 10, 30], 100);
        let distribution = Distribution::weighted([(0, 0.5), (1, 0.3), (2, 0.2)]);
        for (capacity, share) in [(5.0, 0.25), (10.0, 0.5), (20.0, 0.65), (30.0, 0.8), (100.0, 1.0)] {
            assert!((best_share(&map, &distribution, capacity) - share).abs() < 1e-12, "{capacity}");
        }
    }
}
