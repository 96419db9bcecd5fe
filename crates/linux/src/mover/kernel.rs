//! The mover's calls to the kernel, behind a trait so that tests can produce each of its errors.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use rustix::time::{ClockId, clock_gettime};
use thermocline_core::access::Membership;
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId};

use crate::aside::{Answer, Aside, Hung};
use crate::numa_maps;
use crate::pagemap::{Entry, FrameFlags, Frames, Pagemap, PagemapError};
use crate::process;
use crate::root::{KernelFileError, Root};
use crate::scope::{Examined, Scopes, examine};
use crate::sys::{self, MovePagesError, MoveWhat};

/// The kernel as the mover sees it.
pub trait Kernel: Send {
    /// When a process started, in clock ticks since boot; `None` if there is no such process.
    /// Together with the number it distinguishes a process from a later one.
    ///
    /// # Errors
    /// A failure other than the process's absence.
    fn start_time(&self, pid: Pid) -> Result<Option<u64>, KernelFileError>;

    /// Whether the process's memory may move now: the process may have changed since the decision.
    ///
    /// # Errors
    /// A file of the process cannot be read.
    fn membership(&self, pid: Pid) -> Result<Membership, KernelFileError>;

    /// Other scopes tell from now on whose memory may move.
    fn set_scopes(&mut self, scopes: Scopes);

    /// Pagemap entries: `entries[i]` for `vpns[i]`; pages beyond the end read as not mapped. `vpns`
    /// ascend.
    ///
    /// # Errors
    /// The error of the pagemap.
    fn entries(&self, pid: Pid, vpns: &[u64], entries: &mut [Entry]) -> Result<(), PagemapError>;

    /// The memory policies of a process: each applies from its address to the next. Ascending;
    /// empty if the process is gone or the kernel has no policies.
    ///
    /// # Errors
    /// They cannot be read.
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
    /// For calls that take the mmap lock of a process.
    aside: Aside,
}

/// Time limit of a call about a process. Reading the mappings of hundreds of GiB takes about a
/// second.
const CALL_MAX: Duration = Duration::from_secs(5);

/// Entries between two wanted pages that are read along with them: a read call costs about as much
/// as that many entries.
const GAP_PAGES: u64 = 64;

impl LiveKernel {
    /// Reads processes and frames below `root`, and whether `scopes` allow them to move.
    pub fn new(root: &Root, scopes: Scopes) -> LiveKernel {
        LiveKernel {
            root: root.clone(),
            scopes,
            frames: Frames::open(&root.proc),
            aside: Aside::new(root, "its pages were to be moved", CALL_MAX),
        }
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
        let command_line = |_| {
            let root = self.root.clone();
            let read = self.aside.ask(pid, move || process::command_line(&root, pid));
            read.map_or(Answer::Hung, Answer::Here)
        };
        Ok(match examine(&self.root, &self.scopes, self.root.own_pid(), pid, command_line)? {
            Examined::Known(known) => known.membership,
            Examined::Gone | Examined::NotYet { .. } => Membership::Unexamined,
        })
    }

    fn set_scopes(&mut self, scopes: Scopes) {
        self.scopes = scopes;
    }

    fn entries(&self, pid: Pid, vpns: &[u64], entries: &mut [Entry]) -> Result<(), PagemapError> {
        let (proc, wanted) = (self.root.proc.clone(), vpns[..vpns.len().min(entries.len())].to_vec());
        let read = self.aside.ask(pid, move || read_entries(&proc, pid, &wanted));
        let read = read.map_err(|hung| PagemapError::new(&self.root.proc, hung.into()))??;
        entries.fill(Entry::default());
        entries[..read.len()].copy_from_slice(&read);
        Ok(())
    }

    fn policies(&self, pid: Pid) -> Result<Vec<(u64, numa_maps::Policy)>, KernelFileError> {
        let root = self.root.clone();
        let read = self
            .aside
            .ask(pid, move || (numa_maps::read(&root, pid), numa_maps::policy_of_threads(&root, pid)));
        let (read, of_threads) =
            read.map_err(|hung| KernelFileError::io("read", &self.root.proc, hung.into()))?;
        let mappings = read?.unwrap_or_default();
        let mut policies: Vec<_> = mappings.into_iter().map(|m| (m.address, m.policy)).collect();
        if let Some(of_thread) = of_threads {
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
        let (addresses, mut told) = (addresses.to_vec(), status.to_vec());
        let asked = self.aside.ask(pid, move || sys::query_pages(pid, &addresses, &mut told).map(|()| told));
        status.copy_from_slice(&asked.map_err(hung)??);
        Ok(())
    }

    fn move_pages(
        &self,
        pid: Pid,
        addresses: &[u64],
        target: NodeId,
        what: MoveWhat,
        status: &mut [i32],
    ) -> Result<u64, MovePagesError> {
        let (addresses, mut told) = (addresses.to_vec(), status.to_vec());
        let asked = self.aside.ask(pid, move || {
            let result = sys::move_pages(pid, &addresses, target, what, &mut told);
            (result, told)
        });
        let (result, told) = asked.map_err(hung)?;
        status.copy_from_slice(&told);
        result
    }

    fn may_move_shared(&self) -> bool {
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
    }

    fn now(&self) -> Nanos {
        monotonic()
    }
}

/// Entries of ascending pages, one for each.
fn read_entries(proc: &Path, pid: Pid, vpns: &[u64]) -> Result<Vec<Entry>, PagemapError> {
    let map = Pagemap::open(proc, pid)?;
    let mut entries = vec![Entry::default(); vpns.len()];
    let mut buffer = Vec::new();
    let mut first = 0;
    while first < vpns.len() {
        let near = vpns[first..].windows(2).take_while(|w| w[1].saturating_sub(w[0]) <= GAP_PAGES);
        let last = first + near.count();
        let span = vpns[last].saturating_sub(vpns[first]) as usize + 1;
        buffer.clear();
        buffer.resize(span, Entry::default());
        let got = map.read(vpns[first], &mut buffer)?;
        for i in first..=last {
            let at = vpns[i].saturating_sub(vpns[first]) as usize;
            entries[i] = buffer[..got].get(at).copied().unwrap_or_default();
        }
        first = last + 1;
    }
    Ok(entries)
}

/// The moves of a process that is set aside end as not tried.
fn hung(Hung(pid): Hung) -> MovePagesError {
    MovePagesError::Other(pid, Errno::TIMEDOUT)
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

    #[test]
    fn a_process_that_hangs_ends_its_own_moves_only() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path().join("proc");
        std::fs::create_dir_all(proc.join("7")).unwrap();
        std::fs::create_dir_all(proc.join("8")).unwrap();
        // Opening a pipe for reading blocks until it has a writer.
        let pipe = proc.join("7/pagemap");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        std::fs::write(proc.join("8/pagemap"), (1u64 << 63 | 9).to_ne_bytes()).unwrap();
        let mut kernel = LiveKernel::new(&Root::at(folder.path()), Scopes::default());
        kernel.aside = Aside::new(&Root::at(folder.path()), "a test moves it", Duration::from_millis(200));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let read = [7, 7, 8].map(|pid| {
                let mut entries = [Entry::default()];
                kernel.entries(Pid(pid), &[0], &mut entries).map(|()| entries[0].pfn())
            });
            let _ = tell.send(read);
        });
        let read = told.recv_timeout(Duration::from_secs(20)).expect("the mover waits for a process");
        let [Err(PagemapError::Io(..)), Err(PagemapError::Io(..)), Ok(pfn)] = read else {
            panic!("{read:?}")
        };
        assert_eq!(pfn, Some(Pfn(9)));
    }
}
