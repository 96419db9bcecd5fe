//! The open source: reads the ring, computes latencies, and counts.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thermocline_bpf::libbpf_rs::{self, MapCore, MapFlags};
use thermocline_bpf::tc_counters;
use thermocline_core::access::{Access, Detail, FaultLatency, Scans};
use thermocline_core::config;
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, VirtPage};

use super::Stats;
use super::decode::{RawFault, RawStamp, Record, decode};
use super::load::{Loaded, OpenError, Scope, load, set_cgroup, set_filter, set_listed};
use super::places::Places;
use super::stamps::{StampOptions, Stamps};
use crate::root::Root;
use crate::source::{self, AccessSource};
use crate::sys::bpf::{ProgramRunTime, Ring, enable_run_time_statistics, program_run_time};

/// Time between two readings of the counts of lost faults.
const LOSSES_EVERY: Duration = Duration::from_millis(100);

/// How the source is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the ring between kernel and daemon: a power of two, at least a page.
    pub ring_bytes: u32,
    /// How latencies are computed, and how much memory that may take.
    pub stamps: StampOptions,
    /// The node of each CPU, by CPU number. The node of a CPU beyond the list is not known.
    pub cpu_nodes: Vec<NodeId>,
    /// Also report the kernel's own stamps (only for lab tests: another program runs at each
    /// fault).
    pub kernel_stamp: bool,
    /// Let the kernel measure the programs' run time (about two more clock reads per run).
    pub measure_run_time: bool,
}

impl Options {
    /// The options that the configuration sets.
    pub fn from_config(config: &config::HintFault, cpu_nodes: Vec<NodeId>) -> Options {
        Options {
            ring_bytes: config.ring_kib << 10,
            stamps: StampOptions {
                processes_max: config.processes as usize,
                history_bytes: (config.history_mib as usize) << 20,
                restamp: config.restamp,
            },
            cpu_nodes,
            kernel_stamp: false,
            measure_run_time: false,
        }
    }
}

/// A hint fault with its latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintFault {
    /// What the kernel saw.
    pub raw: RawFault,
    /// The node of the CPU that faulted, if known.
    pub accessor: Option<NodeId>,
    /// Time and faults since the scan that marked the page; `None` if no such scan was seen.
    pub latency: Option<FaultLatency>,
}

impl HintFault {
    /// The fault as evidence for the engine, which counts folios by their head.
    pub fn access(&self) -> Access {
        let raw = &self.raw;
        // Folios are naturally aligned in physical memory, so the frame shows how far before it the
        // head is.
        let before = raw.pfn.map_or(0, |pfn| pfn.0 & ((1 << raw.order) - 1));
        Access {
            time: raw.time,
            pfn: raw.pfn.map(|pfn| Pfn(pfn.0 - before)),
            page: Some(VirtPage { pid: raw.pid, vpn: raw.vpn.saturating_sub(before) }),
            order: raw.order,
            node: raw.node,
            accessor: self.accessor,
            detail: Detail::HintFault { latency: self.latency },
        }
    }
}

/// What [`HintFaultSource::poll`] delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A hint fault.
    Fault(HintFault),
    /// A process has replaced its address space: what is known of its pages is void.
    Exec(Pid),
    /// A process is gone; its number may be reused.
    Exit(Pid),
    /// The kernel's own stamp of the page of a thread's latest fault (only with
    /// [`Options::kernel_stamp`]).
    Stamp(RawStamp),
}

/// Hint faults of a stock kernel, as they happen.
#[derive(Debug)]
pub struct HintFaultSource {
    ring: Ring,
    ring_fd: OwnedFd,
    loaded: Loaded,
    cpu_nodes: Vec<NodeId>,
    stamps: Stamps,
    places: Places,
    /// Faults lost to a full ring that are already accounted for, and when that was done.
    dropped: u64,
    dropped_checked: Instant,
    delivered: u64,
    malformed: u64,
    /// The kernel keeps statistics while this is open.
    _statistics: Option<OwnedFd>,
}

impl HintFaultSource {
    /// As [`Stamps::set_restamp`].
    pub fn set_restamp(&mut self, restamp: bool) {
        self.stamps.set_restamp(restamp);
    }

    /// Loads and attaches the BPF programs and maps their ring.
    ///
    /// # Errors
    /// [`OpenError`], with the remedy.
    pub fn open(options: Options, scope: &Scope) -> Result<HintFaultSource, OpenError> {
        let statistics =
            options.measure_run_time.then(enable_run_time_statistics).transpose().map_err(|e| {
                OpenError::Bpf { what: "switching BPF run-time statistics on".to_owned(), source: e.into() }
            })?;
        let loaded = load(scope, options.ring_bytes, options.kernel_stamp)?;
        let failed = |e| OpenError::Ring(options.ring_bytes, e);
        let ring_fd = loaded.map("ring").as_fd().try_clone_to_owned().map_err(failed)?;
        let places = Places::new(&Root::default(), loaded.page_bytes);
        let ring = Ring::map(ring_fd.as_fd(), options.ring_bytes).map_err(failed)?;
        Ok(HintFaultSource {
            ring,
            ring_fd,
            loaded,
            cpu_nodes: options.cpu_nodes,
            stamps: Stamps::new(options.stamps),
            places,
            dropped: 0,
            dropped_checked: Instant::now(),
            delivered: 0,
            malformed: 0,
            _statistics: statistics,
        })
    }

    /// Delivers up to `records_max` waiting records and returns how many were read. Never blocks,
    /// and allocates nothing per event.
    pub fn poll(&mut self, records_max: usize, mut sink: impl FnMut(Event)) -> usize {
        self.account_for_losses();
        let (cpu_nodes, stamps, places) = (&self.cpu_nodes, &mut self.stamps, &mut self.places);
        let (delivered, malformed) = (&mut self.delivered, &mut self.malformed);
        self.ring.drain(records_max, |bytes| match decode(bytes) {
            Ok(Record::Fault(mut raw)) => {
                *delivered += 1;
                if let Some(place) = raw.place {
                    raw.pfn = places.frame(raw.pid, raw.vpn, place);
                }
                let accessor = cpu_nodes.get(usize::from(raw.cpu)).copied();
                sink(Event::Fault(HintFault { raw, accessor, latency: stamps.fault(&raw) }));
            }
            Ok(Record::ScanBegin(scan)) => stamps.scan_begin(scan),
            Ok(Record::ScanTick(tick)) => stamps.scan_tick(tick),
            Ok(Record::ScanEnd(scan)) => stamps.scan_end(scan),
            Ok(Record::Exec(pid)) => {
                stamps.forget(pid);
                sink(Event::Exec(pid));
            }
            Ok(Record::Exit(pid)) => {
                stamps.forget(pid);
                sink(Event::Exit(pid));
            }
            Ok(Record::Stamp(stamp)) => sink(Event::Stamp(stamp)),
            Err(_) => *malformed += 1,
        })
    }

    /// Adds faults lost to a full ring to the counts of their processes, so that latencies in
    /// faults stay correct.
    ///
    /// An error here only makes those latencies slightly too short. The counters themselves are in
    /// the kernel.
    fn account_for_losses(&mut self) {
        if self.dropped_checked.elapsed() < LOSSES_EVERY {
            return;
        }
        self.dropped_checked = Instant::now();
        let Ok(counters) = self.counters() else { return };
        if counters.dropped == self.dropped {
            return;
        }
        self.dropped = counters.dropped;
        let losses = self.loaded.map("losses");
        let keys: Vec<Vec<u8>> = losses.keys().collect();
        for key in keys {
            if let (Ok(pid), Ok(Some(lost))) = (key[..].try_into(), losses.lookup(&key, MapFlags::ANY)) {
                self.stamps.lost(Pid(u32::from_ne_bytes(pid)), counter(&lost, 0));
            }
            // Losses between the two calls are forgotten. It does not matter if the key has been
            // evicted in the meantime.
            let _ = losses.delete(&key);
        }
    }

    /// A page was moved by us: its next latency is measured from the next scan.
    pub fn page_moved(&mut self, page: VirtPage) {
        self.stamps.moved(page.pid, page.vpn);
    }

    /// How the kernel scans the process that the pace follows at `now`, if known.
    pub fn scans(&self, now: Nanos) -> Option<Scans> {
        self.stamps.scans(now)
    }

    /// Whether the next access to a page will be a hint fault, according to the scans seen.
    pub fn is_marked(&self, page: VirtPage) -> bool {
        self.stamps.is_marked(page.pid, page.vpn)
    }

    /// Waits until an eighth of the ring is in use, for at most `timeout`. Returns whether that
    /// mark was reached; if so, polling at once is worthwhile.
    ///
    /// Poll after every return: below that mark the kernel side does not wake the reader.
    ///
    /// # Errors
    /// What poll(2) returns, EINTR excepted.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.ring_fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The descriptor that becomes readable when an eighth of the ring is in use.
    pub fn ring_fd(&self) -> BorrowedFd<'_> {
        self.ring_fd.as_fd()
    }

    /// Adds a process to the list, or removes it. Takes effect for its next fault. The scope must
    /// have been opened with `listed`.
    ///
    /// # Errors
    /// What bpf(BPF_MAP_UPDATE_ELEM) returns: E2BIG with 65536 processes listed.
    pub fn include(&self, pid: Pid, listed: bool) -> Result<(), libbpf_rs::Error> {
        set_listed(&self.loaded.object, "included", pid, listed)
    }

    /// Excludes a process, or ends the exclusion. The scope must have been opened with
    /// `exclusions`.
    ///
    /// # Errors
    /// What bpf(BPF_MAP_UPDATE_ELEM) returns: E2BIG with 65536 processes excluded.
    pub fn exclude(&self, pid: Pid, excluded: bool) -> Result<(), libbpf_rs::Error> {
        set_listed(&self.loaded.object, "excluded", pid, excluded)
    }

    /// Reports the faults of other processes from now on; the lists of processes and the cgroups
    /// stay.
    ///
    /// # Errors
    /// What bpf(BPF_MAP_UPDATE_ELEM) returns.
    pub fn set_filter(&self, scope: &Scope) -> Result<(), libbpf_rs::Error> {
        set_filter(&self.loaded.object, scope)
    }

    /// Sets the cgroup at index `place` of the scope to the one in `folder`, or to none. Takes
    /// effect for the next fault.
    ///
    /// # Errors
    /// The folder cannot be opened, or what bpf(BPF_MAP_UPDATE_ELEM) or bpf(BPF_MAP_DELETE_ELEM)
    /// returns.
    pub fn set_cgroup(&self, place: usize, excluded: bool, folder: Option<&Path>) -> Result<(), OpenError> {
        set_cgroup(&self.loaded.object, if excluded { "excluded_cgroups" } else { "cgroups" }, place, folder)
    }

    /// The current counters.
    ///
    /// # Errors
    /// What bpf(BPF_MAP_LOOKUP_ELEM) or bpf(BPF_OBJ_GET_INFO_BY_FD) returns.
    pub fn stats(&self) -> Result<Stats, libbpf_rs::Error> {
        let mut stats = Stats {
            delivered: self.delivered,
            malformed: self.malformed,
            ring_waiting_bytes: self.ring.waiting(),
            stamps: self.stamps.stats(),
            ..self.counters()?
        };
        for (_, figures) in self.run_times()? {
            stats.bpf_run_time_ns += figures.run_time_ns;
            stats.bpf_runs += figures.runs;
            stats.bpf_missed += figures.missed;
        }
        Ok(stats)
    }

    /// The counters kept by the kernel side.
    fn counters(&self) -> Result<Stats, libbpf_rs::Error> {
        let mut stats = Stats::default();
        let counters = self.loaded.map("counters").lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        for cpu in counters.unwrap_or_default() {
            stats.seen += counter(&cpu, offset_of!(tc_counters, seen));
            stats.filtered += counter(&cpu, offset_of!(tc_counters, filtered));
            stats.submitted += counter(&cpu, offset_of!(tc_counters, submitted));
            stats.dropped += counter(&cpu, offset_of!(tc_counters, dropped));
            stats.scans += counter(&cpu, offset_of!(tc_counters, scans));
            stats.scans_dropped += counter(&cpu, offset_of!(tc_counters, scans_dropped));
        }
        Ok(stats)
    }

    /// The kernel's run statistics of each attached program, by name.
    ///
    /// # Errors
    /// What bpf(BPF_OBJ_GET_INFO_BY_FD) returns.
    pub fn run_times(&self) -> io::Result<Vec<(String, ProgramRunTime)>> {
        let attached = self.loaded.object.progs_mut().filter(|p| p.autoload());
        attached
            .map(|p| Ok((p.name().to_string_lossy().into_owned(), program_run_time(p.as_fd())?)))
            .collect()
    }
}

impl AccessSource for HintFaultSource {
    /// The kernel side has already filtered by scope, and each record contains its time.
    fn poll(
        &mut self,
        records_max: usize,
        _now: Nanos,
        _in_scope: impl Fn(Pid) -> bool,
        mut each: impl FnMut(source::Event),
    ) -> usize {
        HintFaultSource::poll(self, records_max, |event| match event {
            Event::Fault(fault) => each(source::Event::Access(fault.access())),
            Event::Exec(pid) => each(source::Event::Exec(pid)),
            Event::Exit(pid) => each(source::Event::Exit(pid)),
            Event::Stamp(_) => {}
        })
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.ring_fd())
    }
}

fn counter(values: &[u8], at: usize) -> u64 {
    values.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}
