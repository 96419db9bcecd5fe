//! A cgroup that is reclaimed periodically by writes to its `memory.reclaim`.
//!
//! Reclaim goes through the group's top-tier pages in a circle. A page that was accessed since it
//! was last examined stays. Any other is demoted to the nearest node that has room, which counts as
//! reclaimed although the group's charge does not change. It ends when as much has been demoted as
//! was asked for, or when every page has been examined.
//!
//! Source: Linux 6.12 `mm/memcontrol.c` (`memory_reclaim`), `mm/vmscan.c` (`demote_folio_list`).
//! Each process is a group here. The group's lists are one list in address order. There is no swap,
//! so pages below the top tier stay where they are.

use thermocline_core::units::Nanos;

use super::{Model, reclaim};
use crate::memory::Page;
use crate::system::{System, Way};

/// The reclaim of one process's memory.
#[derive(Clone, Copy, Debug)]
pub struct Cgroup {
    process: usize,
    every: Nanos,
    pages: u64,
    due: Nanos,
    /// Where the last reclaim ended, from the process's first page.
    at: Page,
}

impl Cgroup {
    /// Asks for `pages` at intervals of `every`, the first time after one interval.
    pub fn new(process: usize, every: Nanos, pages: u64, now: Nanos) -> Cgroup {
        Cgroup { process, every, pages, due: now.plus(every), at: 0 }
    }
}

impl Model for Cgroup {
    fn name(&self) -> &'static str {
        "memory.reclaim"
    }

    fn due(&self, _system: &System) -> Nanos {
        self.due
    }

    fn run(&mut self, system: &mut System) {
        self.due = system.now.plus(self.every);
        if !system.kernel.demotion_enabled {
            return;
        }
        let space = system.memory.spaces[self.process].clone();
        let (mut looked, mut demoted) = (0, 0);
        while looked < space.len() && demoted < self.pages {
            let block = space.block(space.start + self.at);
            self.at = (block.end - space.start) % space.len();
            looked += block.end - block.start;
            let node = system.memory.node(block.start).filter(|n| !system.machine.is_kernel_lower(*n));
            let Some(node) = node.filter(|_| !system.memory.take_accessed(block.start)) else { continue };
            let Some(target) = reclaim::demotion_target(system, node) else { continue };
            for page in block {
                if system.memory.node(page) == Some(node) && system.move_page(page, target) == Way::Down {
                    system.counters.pgdemote_other += 1;
                    demoted += 1;
                }
            }
        }
        let costs = &system.machine.spec.cost;
        system.aside_ns += f64::from(looked) * costs.reclaim_look_ns + demoted as f64 * costs.demote_ns;
    }
}
