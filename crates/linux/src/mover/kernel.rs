//! What the mover asks of the kernel, behind a trait so that each of its errors can be played in tests.

use rustix::thread::{CapabilitySet, capabilities};
use rustix::time::{ClockId, clock_gettime};
use thermocline_core::access::Membership;
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId};

use crate::numa_maps;
use crate::pagemap::{Entry, FrameFlags, Frames, Pagemap, PagemapError};
use crate::process;
use crate::root::{KernelFileError, Root};
use crate::scope::{Scopes, examine};
use crate::sys::{self, MovePagesError, MoveWhat};

/// The kernel as the mover sees it.
pub trait Kernel: Send {
    /// When a process started, in clock ticks since boot; `None` if there is no such process. With its number it tells
    /// one process from a later one.
    ///
    /// # Errors
    /// A failure other than the process's absence.
    fn start_time(&self, pid: Pid) -> Result<Option<u64>, KernelFileError>;

    /// Whether the process's memory may move, as it is now: it may have changed since that was decided.
    ///
    /// # Errors
    /// A file of the process cannot be read.
    fn membership(&self, pid: Pid) -> Result<Membership, KernelFileError>;

    /// Pagemap entries: `entries[i]` for `vpns[i]`; pages beyond the end read as not mapped. `vpns` ascend.
    ///
    /// # Errors
    /// What pagemap says of the process.
    fn entries(&self, pid: Pid, vpns: &[u64], entries: &mut [Entry]) -> Result<(), PagemapError>;

    /// The memory policies of a process: from each address on, until the next, this one holds. Ascending; empty where it is gone
    /// or the kernel knows no policies.
    ///
    /// # Errors
    /// The kernel does not tell.
    fn policies(&self, pid: Pid) -> Result<Vec<(u64, numa_maps::Policy)>, KernelFileError>;

    /// The flags of a frame, where they may be read.
    fn flags(&self, pfn: Pfn) -> Option<FrameFlags>;

    /// As [`sys::query_pages`].
    ///
    /// # Errors
    /// As there.
    fn query(&self, pid: Pid, addresses: &[u64], status: &mut [i32]) -> Result<(), MovePagesError>;

    /// As [`sys::move_pages`].
    ///
    /// # Errors
    /// As there.
    fn move_pages(
        &self,
        pid: Pid,
        addresses: &[u64],
        target: NodeId,
        what: MoveWhat,
        status: &mut [i32],
    ) -> Result<u64, MovePagesError>;

    /// Whether this process may move pages that several processes map (CAP_SYS_NICE).
    fn may_move_shared(&self) -> bool;

    /// CLOCK_MONOTONIC.
    fn now(&self) -> Nanos;
}

/// The kernel that runs.
#[derive(Debug)]
pub struct LiveKernel {
    root: Root,
    scopes: Scopes,
    frames: Frames,
}

/// Entries between two wanted pages that are read along with them: a read call costs about as much as that many entries.
const GAP_PAGES: u64 = 64;

impl LiveKernel {
    /// Reads processes and frames below `root`, and whether `scopes` let them move.
    pub fn new(root: &Root, scopes: Scopes) -> LiveKernel {
        LiveKernel { root: root.clone(), scopes, frames: Frames::open(&root.proc) }
    }
}

impl Kernel for LiveKernel {
    fn start_time(&self, pid: Pid) -> Result<Option<u64>, KernelFileError> {
        Ok(process::stat(&self.root, pid)?.map(|stat| stat.start_time))
    }

    fn membership(&self, pid: Pid) -> Result<Membership, KernelFileError> {
        if !self.scopes.are_any() {
            return Ok(Membership::Managed(ScopeId::DEFAULT));
        }
        let known = examine(&self.root, &self.scopes, Pid(std::process::id()), pid)?;
        Ok(known.map_or(Membership::Unexamined, |known| known.membership))
    }

    fn entries(&self, pid: Pid, vpns: &[u64], entries: &mut [Entry]) -> Result<(), PagemapError> {
        let map = Pagemap::open(&self.root.proc, pid)?;
        entries.fill(Entry::default());
        let mut buffer = Vec::new();
        let mut first = 0;
        while first < vpns.len().min(entries.len()) {
            let near = vpns[first..].windows(2).take_while(|w| w[1].saturating_sub(w[0]) <= GAP_PAGES);
            let last = first + near.count();
            let span = vpns[last].saturating_sub(vpns[first]) as usize + 1;
            buffer.clear();
            buffer.resize(span, Entry::default());
            let got = map.read(vpns[first], &mut buffer)?;
            for i in first..=last.min(entries.len() - 1) {
                let at = vpns[i].saturating_sub(vpns[first]) as usize;
                entries[i] = buffer[..got].get(at).copied().unwrap_or_default();
            }
            first = last + 1;
        }
        Ok(())
    }

    fn policies(&self, pid: Pid) -> Result<Vec<(u64, numa_maps::Policy)>, KernelFileError> {
        let mappings = numa_maps::read(&self.root, pid)?.unwrap_or_default();
        let mut policies: Vec<_> = mappings.into_iter().map(|m| (m.address, m.policy)).collect();
        if let Some(of_thread) = numa_maps::policy_of_threads(&self.root, pid) {
            let ours = policies.iter_mut().filter(|(_, policy)| policy.is_default());
            ours.for_each(|(_, policy)| policy.clone_from(&of_thread));
        }
        policies.dedup_by(|later, before| later.1 == before.1);
        Ok(policies)
    }

    fn flags(&self, pfn: Pfn) -> Option<FrameFlags> {
        self.frames.flags(pfn)
    }

    fn query(&self, pid: Pid, addresses: &[u64], status: &mut [i32]) -> Result<(), MovePagesError> {
        sys::query_pages(pid, addresses, status)
    }

    fn move_pages(
        &self,
        pid: Pid,
        addresses: &[u64],
        target: NodeId,
        what: MoveWhat,
        status: &mut [i32],
    ) -> Result<u64, MovePagesError> {
        sys::move_pages(pid, addresses, target, what, status)
    }

    fn may_move_shared(&self) -> bool {
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
    }

    fn now(&self) -> Nanos {
        monotonic()
    }
}

/// CLOCK_MONOTONIC; it never fails and never runs before 0.
fn monotonic() -> Nanos {
    let t = clock_gettime(ClockId::Monotonic);
    Nanos(t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_this_process_and_no_other_of_that_number() {
        let kernel = LiveKernel::new(&Root::default(), Scopes::default());
        let me = Pid(std::process::id());
        let start = kernel.start_time(me).unwrap();
        assert!(start.is_some_and(|s| s > 0));
        assert_eq!(kernel.start_time(me).unwrap(), start);
        assert_eq!(kernel.start_time(Pid(u32::MAX)).unwrap(), None);
    }

    #[test]
    fn reads_scattered_entries_in_their_order() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let bytes: Vec<u8> = (0..300u64).flat_map(|i| (1 << 63 | (i + 1000)).to_ne_bytes()).collect();
        std::fs::write(root.path().join("proc/7/pagemap"), bytes).unwrap();
        let kernel = LiveKernel::new(&Root::at(root.path()), Scopes::default());
        let vpns = [0, 1, 60, 200, 299, 300, 5000, u64::MAX];
        let mut entries = [Entry(1); 8];
        kernel.entries(Pid(7), &vpns, &mut entries).unwrap();
        let pfns: Vec<u64> = entries.iter().filter_map(|e| e.pfn()).map(|p| p.0).collect();
        assert_eq!(pfns, [1000, 1001, 1060, 1200, 1299]);
        assert!(entries[5..].iter().all(|&e| e == Entry(0)));
    }
}
