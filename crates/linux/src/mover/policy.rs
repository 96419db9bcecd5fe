//! Memory policies of processes: read from numa_maps, and cached for a while, because the kernel
//! walks all page tables of a process for it.

use std::collections::BTreeMap;

use thermocline_core::config::MemoryPolicies;
use thermocline_core::units::{Nanos, NodeId, Pid};

use super::kernel::Kernel;
use crate::numa_maps::Policy;
use crate::root::KernelFileError;

/// Maximum number of processes cached.
const PROCESSES_MAX: usize = 1024;
/// A reading is valid for at least this long.
const GOOD_FOR_MIN: Nanos = Nanos::from_s(1);
/// And for this many times its duration: readings take at most half a percent of the time.
const GOOD_FOR_LOOKS: u64 = 200;

/// The result of reading a process.
#[derive(Debug, Default)]
struct Known {
    /// Each policy applies from its address to the next.
    policies: Vec<(u64, Policy)>,
    /// The end of its validity.
    until: Nanos,
}

/// The policies of the processes whose pages were moved recently.
#[derive(Debug)]
pub(super) struct Policies {
    respected: MemoryPolicies,
    known: BTreeMap<Pid, Known>,
}

impl Policies {
    pub(super) fn new(respected: MemoryPolicies) -> Policies {
        Policies { respected, known: BTreeMap::new() }
    }

    /// Reads a process's policies, unless the last reading is still valid.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn look(&mut self, kernel: &impl Kernel, pid: Pid) -> Result<(), KernelFileError> {
        let start = kernel.now();
        if self.known.get(&pid).is_some_and(|known| start < known.until) {
            return Ok(());
        }
        let policies = kernel.policies(pid)?;
        let end = kernel.now();
        let good_for = GOOD_FOR_MIN.max(Nanos(end.since(start).0.saturating_mul(GOOD_FOR_LOOKS)));
        if self.known.len() >= PROCESSES_MAX && !self.known.contains_key(&pid) {
            self.known.clear();
        }
        self.known.insert(pid, Known { policies, until: end.plus(good_for) });
        Ok(())
    }

    /// Whether the page at `address` must not be moved to `node`, by the last reading.
    pub(super) fn forbid(&self, pid: Pid, address: u64, node: NodeId) -> bool {
        let Some(Known { policies, .. }) = self.known.get(&pid) else { return false };
        let behind = policies.partition_point(|(start, _)| *start <= address);
        behind.checked_sub(1).is_some_and(|at| policies[at].1.forbids(node, self.respected))
    }

    /// Forgets a process that has ended, or whose number another has now.
    pub(super) fn forget(&mut self, pid: Pid) {
        self.known.remove(&pid);
    }
}
