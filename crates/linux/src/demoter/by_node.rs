//! By the kernel's reclaim of a whole node (Linux 6.18 and later, mm/vmscan.c,
//! user_proactive_reclaim): the coldest pages there by the kernel's LRU, of any owner and any idle
//! age.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use thermocline_core::demand::Demand;
use thermocline_core::units::PAGE_SIZE;

use super::DemoterStats;
use super::counted::Counted;
use super::demand::{CPU_SPAN, SPAN, SWAPPINESS, Taken};
use super::step::Step;
use crate::actuator::{Commands, same_value};
use crate::clock::thread_cpu_time;
use crate::root::Root;

/// The thread's state.
#[derive(Debug)]
pub(super) struct ByNode {
    commands: Commands,
    step: Step,
    demotion_enabled: PathBuf,
    counted: Counted,
}

impl ByNode {
    pub(super) fn new(root: &Root, commands: Commands) -> ByNode {
        ByNode {
            commands,
            step: Step::default(),
            demotion_enabled: super::demotion_enabled(root),
            counted: Counted::new(root),
        }
    }

    /// Carries out a demand as far as the kernel finds pages; returns the pages demoted.
    ///
    /// # Errors
    /// The kernel does not do what it offers.
    pub(super) fn carry_out(
        &mut self,
        demand: &Demand,
        stopped: impl Fn() -> bool,
        stats: &mut DemoterStats,
    ) -> io::Result<Taken> {
        let (end, cpu) = (Instant::now() + SPAN, thread_cpu_time());
        let over = || stopped() || Instant::now() >= end || thread_cpu_time().since(cpu) >= CPU_SPAN;
        let start = self.counted.settled(&self.commands, demand.node)?;
        let mut seen = start;
        while seen - start < demand.pages && !over() {
            // Without it the kernel would swap out and drop instead.
            if !same_value(&self.commands.read(&self.demotion_enabled)?, "1") {
                stats.demotion_off += 1;
                break;
            }
            let pages = self.step.pages().min(demand.pages - (seen - start));
            let before = thread_cpu_time();
            let command = format!("{} swappiness={SWAPPINESS}", pages * PAGE_SIZE);
            match self.commands.reclaim_node(demand.node, &command) {
                Ok(()) => {}
                // It has found less than that, as the counters show, or another process makes the
                // same request.
                Err(e) if is_passing(&e) => stats.refused += 1,
                Err(e) => return Err(e),
            }
            stats.evictions += 1;
            self.step.took(thread_cpu_time().since(before));
            let now = self.counted.settled(&self.commands, demand.node)?.max(seen);
            let barren = (now - seen) * 2 < pages;
            seen = now;
            if barren {
                break;
            }
        }
        let pages = seen - start;
        stats.demoted_pages += pages;
        Ok(Taken { pages, ..Taken::default() })
    }
}

/// Less was found, a signal arrived, or another process makes the same request. A command that is
/// not understood is not passing.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::EBUSY | libc::ENOMEM))
}
