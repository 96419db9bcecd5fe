//! Device counters as manager: each node below the top tier has a [`Chmu`], whose hot list is
//! promoted at the end of every epoch.
//!
//! The device sees accesses of any process that miss the caches, at no cost for the programs;
//! promotion runs in parallel with them. A page goes to the node whose CPU accessed it last, if
//! that stays above its high watermark; otherwise kswapd is woken, and the page has to be listed
//! again. The most often counted pages go first.

use std::cmp::Reverse;

use thermocline_core::units::Nanos;

use super::{Manager, Notes, Sampling};
use crate::kernel::chmu::Chmu;
use crate::machine::NodeIndex;
use crate::memory::flags;
use crate::system::{SampledAccess, System, Way};

/// See the module's description.
#[derive(Debug)]
pub struct Chmus {
    /// One for each node; those of the top tier count nothing.
    units: Vec<Chmu>,
    /// Node of the CPU that last accessed a page of each node.
    accessor: Vec<NodeIndex>,
    sample_every: f64,
    epoch: Nanos,
    due: Nanos,
    listed: u64,
    refused: u64,
}

impl Chmus {
    /// Units as [`crate::settings::KernelSettings`] has them by default; a run's settings are
    /// applied at its first epoch.
    pub fn new() -> Chmus {
        Chmus {
            units: Vec::new(),
            accessor: Vec::new(),
            sample_every: f64::from(crate::settings::KernelSettings::default().chmu_downsampling),
            epoch: Nanos(0),
            due: Nanos(0),
            listed: 0,
            refused: 0,
        }
    }

    fn promote(&mut self, system: &mut System, node: NodeIndex) {
        let mut hot = self.units[usize::from(node)].end_epoch();
        hot.sort_by_key(|(page, count)| (Reverse(*count), *page));
        self.listed += hot.len() as u64;
        let to = self.accessor[usize::from(node)];
        let high = system.machine.nodes[usize::from(to)].watermarks.high_pages;
        for (page, _) in hot {
            if system.memory.node(page) != Some(node) {
                continue;
            }
            if system.memory.free(to) <= high + 1 {
                system.wake_kswapd(to);
                self.refused += 1;
                continue;
            }
            system.aside_ns += system.machine.spec.cost.kthread_page_ns;
            if system.move_page(page, to) == Way::Up {
                system.counters.other_promoted += 1;
            }
        }
    }
}

impl Default for Chmus {
    fn default() -> Chmus {
        Chmus::new()
    }
}

impl Manager for Chmus {
    fn name(&self) -> String {
        "chmu".to_owned()
    }

    fn tiering(&self) -> bool {
        true
    }

    fn sampling(&self, _thread: u32) -> Option<Sampling> {
        Some(Sampling { accesses: self.sample_every })
    }

    fn on_sample(&mut self, system: &mut System, sample: &SampledAccess) -> f64 {
        let node = system.memory.flags(sample.page) & flags::NODE;
        if !system.machine.is_top(node)
            && let Some(unit) = self.units.get_mut(usize::from(node))
        {
            unit.count(sample.page);
            self.accessor[usize::from(node)] = sample.cpu_node;
        }
        0.0
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn run(&mut self, system: &mut System) {
        if self.units.is_empty() {
            let k = &system.kernel;
            let unit = Chmu::new(k.chmu_counters as usize, k.chmu_threshold, k.chmu_list as usize);
            self.units = vec![unit; system.machine.nodes.len()];
            self.accessor = vec![0; system.machine.nodes.len()];
            self.sample_every = f64::from(k.chmu_downsampling);
            self.epoch = Nanos::from_ms(k.chmu_epoch_ms);
        }
        for node in 0..self.units.len() {
            self.promote(system, node as NodeIndex);
        }
        self.due = system.now.plus(self.epoch);
    }

    fn finish(&mut self, _system: &System) -> Result<Notes, String> {
        let sum = |of: fn(&Chmu) -> u64| self.units.iter().map(of).sum::<u64>();
        let figures = [
            ("listed", self.listed),
            ("refused_no_room", self.refused),
            ("uncounted", sum(|u| u.uncounted)),
            ("unlisted", sum(|u| u.unlisted)),
        ];
        let figures = figures.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
        Ok(Notes { figures, ..Notes::default() })
    }
}
