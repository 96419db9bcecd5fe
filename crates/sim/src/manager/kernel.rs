//! The kernel as manager: nobody, or hint faults in tiering mode with either latency.

use super::{Manager, Notes};
use crate::kernel::KernelSettings;
use crate::kernel::hint_fault::HintFaults;
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
    /// With this fault path; `restamp` is S0's second patch.
    pub fn new(name: &'static str, faults: HintFaults, restamp: bool) -> HintFaulting {
        HintFaulting { name, faults, restamp }
    }
}

impl Manager for HintFaulting {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn configure(&self, kernel: &mut KernelSettings) {
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
