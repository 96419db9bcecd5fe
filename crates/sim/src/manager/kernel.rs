//! The kernel as manager: no promotion, ordinary NUMA balancing, or hint faults in tiering mode
//! with either latency.

use super::{Manager, Notes};
use crate::kernel::hint_fault::HintFaults;
use crate::kernel::scanner;
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

/// `numa_balancing` = 1: a page goes to the node of the thread that faults on it, if there is room.
/// Not modelled: threads of one process on several nodes, between which the kernel's second fault
/// decides.
#[derive(Clone, Copy, Debug)]
pub struct Balancing;

/// Moves a page to a CPU's node, if the node stays above its high watermark; returns the cost in
/// ns.
pub(super) fn balance(system: &mut System, page: Page, to: NodeIndex) -> f64 {
    let high = system.machine.nodes[usize::from(to)].watermarks.high_pages;
    let from = system.memory.flags(page) & flags::NODE;
    if from == to || system.memory.free(to) <= high + 1 {
        return 0.0;
    }
    system.counters.numa_pages_migrated += 1;
    if system.move_page(page, to) == crate::system::Way::Up {
        system.counters.other_promoted += 1;
    }
    system.machine.spec.cost.migrate_ns
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
        let cost = balance(system, fault.page, fault.cpu_node);
        // A page whose last CPU is unknown counts as private: one that the first pass has marked.
        let process = &system.processes[fault.process];
        let first = process.passes.first().is_none_or(|end| fault.marked_at() <= *end);
        let private = process.threads.len() == 1 || first;
        scanner::record(system, fault.thread, fault.node == fault.cpu_node, private);
        cost
    }
}
