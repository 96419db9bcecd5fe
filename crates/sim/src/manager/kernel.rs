//! The kernel as manager: no promotion, ordinary NUMA balancing, or hint faults in tiering mode
//! with either latency.

use super::{Manager, Notes};
use crate::kernel::hint_fault::HintFaults;
use crate::kernel::scanner::{self, Recorded};
use crate::machine::NodeIndex;
use crate::memory::{Page, flags};
use crate::settings::KernelSettings;
use crate::system::{Fault, START, System};

/// Nobody promotes.
#[derive(Clone, Copy, Debug)]
pub struct Unmanaged;

impl Manager for Unmanaged {
    fn name(&self) -> String {
        "none".to_owned()
    }
}

/// `numa_balancing` = 2.
#[derive(Debug)]
pub struct HintFaulting {
    name: &'static str,
    faults: HintFaults,
    restamp: bool,
}

impl HintFaulting {
    /// Creates the manager with this fault path; `restamp` is S0's second patch.
    pub fn new(name: &'static str, faults: HintFaults, restamp: bool) -> HintFaulting {
        HintFaulting { name, faults, restamp }
    }
}

impl Manager for HintFaulting {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn configure(&mut self, kernel: &mut KernelSettings) {
        kernel.restamp |= self.restamp;
    }

    fn scans(&self) -> bool {
        true
    }

    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        self.faults.fault(system, fault)
    }

    fn finish(&mut self, system: &System) -> Result<Notes, String> {
        let course =
            system.balance.iter().flat_map(|b| b.course.iter().map(|(at, ms)| (at.since(START).ms(), *ms)));
        Ok(Notes {
            threshold_course: course.collect(),
            latencies: std::mem::take(&mut self.faults.latencies.samples),
            figures: Vec::new(),
        })
    }
}

/// `numa_balancing` = 1: a page goes to the node of the thread that faults on it.
///
/// 1. A page keeps the last thread that faulted on it (`last_cpupid`), also where it is at home.
///    Its first fault counts as private, any other one if that thread is the same.
/// 2. A page of the kernel's top tier moves at once: early in a task's life the kernel lets first
///    and private faults pass, and later those after a fault from the same node. Here that is all
///    of them, as the threads of a process are on one node.
/// 3. A page below it moves, and counts, from its second fault on.
/// 4. A node that would not stay above its high watermark takes no page: that fault has failed.
///
/// Source: Linux 6.12 `kernel/sched/fair.c` (`should_numa_migrate_memory`, `task_numa_fault`). Not
/// modelled: threads of one process on several nodes, between which the second fault decides, and
/// the shares of the group's faults on each.
#[derive(Clone, Debug, Default)]
pub struct Balancing {
    /// By page, 1 + the part of the thread's number that the kernel keeps; 0 before its first
    /// fault. Empty before the first fault of all.
    last: Vec<u16>,
}

/// Bits of a thread's number that a page keeps (`LAST__PID_SHIFT`).
const LAST_PID_BITS: u32 = 8;

impl Balancing {
    /// What the page says of the last fault on it: `None` at the first one, otherwise whether it
    /// was by the same thread.
    fn exchange(&mut self, pages: u64, page: Page, thread: u32) -> Option<bool> {
        self.last.resize(pages as usize, 0);
        let this = 1 + (thread & ((1 << LAST_PID_BITS) - 1)) as u16;
        match std::mem::replace(&mut self.last[page as usize], this) {
            0 => None,
            last => Some(last == this),
        }
    }
}

/// Moves a page to a CPU's node, if the node stays above its high watermark; returns the cost in
/// ns, and `None` if the page stays where it is.
pub(super) fn balance(system: &mut System, page: Page, to: NodeIndex) -> Option<f64> {
    let high = system.machine.nodes[usize::from(to)].watermarks.high_pages;
    let from = system.memory.flags(page) & flags::NODE;
    if from == to || system.memory.free(to) <= high + 1 {
        return None;
    }
    system.counters.numa_pages_migrated += 1;
    if system.move_page(page, to) == crate::system::Way::Up {
        system.counters.other_promoted += 1;
    }
    Some(system.machine.spec.cost.migrate_ns)
}

impl Manager for Balancing {
    fn name(&self) -> String {
        "numab1".to_owned()
    }

    fn configure(&mut self, kernel: &mut KernelSettings) {
        kernel.scan_all = true;
    }

    fn scans(&self) -> bool {
        true
    }

    fn tiering(&self) -> bool {
        false
    }

    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        system.counters.not_promotable += 1;
        let last = self.exchange(system.memory.pages(), fault.page, fault.thread);
        if last.is_none() && system.machine.is_kernel_lower(fault.node) {
            return 0.0;
        }
        let moved = balance(system, fault.page, fault.cpu_node);
        let local = fault.node == fault.cpu_node;
        let failed = !local && moved.is_none();
        scanner::record(system, fault.thread, Recorded { local, private: last.unwrap_or(true), failed });
        moved.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_fault_is_private_and_then_those_of_the_same_thread() {
        let mut balancing = Balancing::default();
        let mut fault = |page, thread| balancing.exchange(8, page, thread);
        assert_eq!(
            [fault(3, 0), fault(4, 0), fault(3, 0), fault(3, 1)],
            [None, None, Some(true), Some(false)]
        );
        // The kernel keeps eight bits, so that thread 257 looks like thread 1.
        assert_eq!([fault(3, 257), fault(3, 256)], [Some(true), Some(false)]);
    }
}
