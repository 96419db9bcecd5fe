//! The reverse map: the process and page of a frame, for evidence that names frames and no process.
//!
//! The kernel reports the frame of a page in `/proc/PID/pagemap`, but not which process maps a
//! frame. So a thread scans the memory of all processes in scope, in rounds and within a budget,
//! and records the frames of lower tiers: 8 bytes per frame. A round begins only if frames were
//! asked for that the last one had not found.
//!
//! Entries may be out of date: pages are freed, and their frames reused. That never moves a wrong
//! page: the mover reads the pagemap again before each move, and if another frame is mapped there,
//! or none, the move ends and the entry is dropped.

mod resident;
mod scan;
mod table;
mod worker;

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use thermocline_core::access::Access;
use thermocline_core::config;
use thermocline_core::moves::{Move, Outcome};
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pfn, Pid, VirtPage};

use crate::pagemap::PagemapError;
use crate::root::Root;
use crate::topology::{PfnMap, PfnRange};
use table::{HUGE_PAGES, Table};
use worker::{Budget, Told};

pub use resident::Resident;
#[cfg(test)]
pub(crate) use scan::Memory;
pub(crate) use scan::{Found, SLICE_PAGES, Slices};
pub(crate) use table::HUGE_ORDER;
pub(crate) use worker::Live;

/// Slices that may wait to be taken in; beyond that the thread waits.
const SLICES: usize = 4;

/// Why there is no reverse map.
#[derive(Debug, thiserror::Error)]
pub enum ReverseError {
    /// The kernel is too old.
    #[error("this kernel does not offer ioctl(PAGEMAP_SCAN); boot Linux 6.7 or later")]
    NotOffered,
    /// Frame numbers are hidden.
    #[error("the kernel hides frame numbers in /proc/PID/pagemap; give CAP_SYS_ADMIN")]
    Hidden,
    /// Our own pagemap cannot be read.
    #[error(transparent)]
    Pagemap(#[from] PagemapError),
    /// The thread could not be created.
    #[error(
        "the reverse map's thread could not be started: {0}; look at the limits on threads (ulimit -u, pids.max)"
    )]
    Thread(#[source] std::io::Error),
}

thermocline_core::statistics! {
    /// Counters since the start: every access that names only a frame, and every frame of a region
    /// that is looked up, is in `resolved` or in `unknown`.
    #[derive(Copy)]
    Stats "reverse" {
        /// Those whose page was found.
        resolved: u64, "accesses", Counter;
        /// Those of frames without a known process: not yet looked up, or of no process in scope.
        unknown: u64, "accesses", Counter;
        /// Moves that ended because the page was not in that frame any more; the entry is then
        /// dropped.
        stale: u64, "moves", Counter;
        /// Frames with an entry now.
        frames: u64, "frames", Gauge;
        /// Memory of the map in bytes.
        bytes: u64, "bytes", Gauge;
        /// Pages that were found and had no room in the map (`reverse.memory_mib`).
        no_room: u64, "pages", Counter trouble;
        /// Rounds that were begun.
        rounds: u64, "rounds", Counter;
        /// Pages whose frames were looked up, in rounds that have ended.
        looked_up: u64, "pages", Counter;
        /// Pages whose frames the kernel hides, in the last round that has ended.
        hidden: u64, "pages", Gauge trouble;
        /// Processes that could not be read, in the last round that has ended.
        unreadable: u64, "processes", Gauge trouble;
        /// How long that round took.
        round_ns: Nanos, "ns", Gauge;
        /// CPU time of rounds that have ended.
        cpu_ns: Nanos, "ns", Counter;
        /// The thread has failed: no further entries will be added.
        failed: bool, "", Gauge trouble;
    }
}

/// The reverse map.
#[derive(Debug)]
pub struct ReverseMap {
    table: Table,
    frames: PfnMap,
    topology: Topology,
    /// Frames of the top tier are kept too, because a rule balances its nodes.
    keep_top_tier: bool,
    rounds: SyncSender<Vec<Pid>>,
    told: Receiver<Told>,
    round_every: Nanos,
    /// When the last round began.
    began: Option<Nanos>,
    /// It has not ended.
    busy: bool,
    /// A frame was asked for that the last round had not found.
    wanted: bool,
    stats: Stats,
}

impl ReverseMap {
    /// An empty map of the machine, and its thread, which does nothing yet.
    ///
    /// # Errors
    /// [`ReverseError`].
    pub fn start(
        root: &Root,
        config: &config::Reverse,
        frames: &PfnMap,
        topology: &Topology,
        keep_top_tier: bool,
    ) -> Result<ReverseMap, ReverseError> {
        ReverseMap::start_on(Live::new(root)?, config, frames, topology, keep_top_tier)
    }

    fn start_on(
        memory: impl Slices + Send + 'static,
        config: &config::Reverse,
        frames: &PfnMap,
        topology: &Topology,
        keep_top_tier: bool,
    ) -> Result<ReverseMap, ReverseError> {
        let (rounds, asked) = sync_channel(1);
        let (tell, told) = sync_channel(SLICES);
        let budget = Budget::new(config);
        std::thread::Builder::new()
            .name("reverse".to_owned())
            .spawn(move || worker::work(memory, budget, &asked, &tell))
            .map_err(ReverseError::Thread)?;
        Ok(ReverseMap {
            table: Table::new(u64::from(config.memory_mib) << 20),
            frames: frames.clone(),
            topology: topology.clone(),
            keep_top_tier,
            rounds,
            told,
            round_every: Nanos::from_ms(config.round_ms),
            began: None,
            busy: false,
            wanted: false,
            stats: Stats::default(),
        })
    }

    /// Fills in the page of each access that names only a frame, if it is known; allocates nothing.
    /// `in_scope` says whether a process's memory is still managed.
    #[inline]
    pub fn resolve(&mut self, accesses: &mut [Access], in_scope: impl Fn(Pid) -> bool) {
        for access in accesses {
            if let (Some(pfn), None) = (access.pfn, access.page) {
                self.resolve_one(pfn, access, &in_scope);
            }
        }
    }

    fn resolve_one(&mut self, pfn: Pfn, access: &mut Access, in_scope: &impl Fn(Pid) -> bool) {
        if let Some(owner) = self.owner(pfn, in_scope) {
            access.page = Some(owner.page);
            access.pfn = Some(owner.pfn);
            access.order = owner.order;
        }
    }

    /// The page in a frame, if it is known and its process's memory is still managed by `in_scope`.
    pub fn owner(&mut self, pfn: Pfn, in_scope: impl Fn(Pid) -> bool) -> Option<Resident> {
        match self.table.get(pfn) {
            Some(mapped) if in_scope(mapped.page.pid) => {
                self.stats.resolved += 1;
                Some(Resident { page: mapped.page, pfn: mapped.pfn, order: mapped.order })
            }
            mapped => {
                if let Some(mapped) = mapped {
                    self.table.remove(mapped.pfn, mapped.order);
                }
                self.stats.unknown += 1;
                self.wanted = true;
                None
            }
        }
    }

    /// A move has ended. If the page has left the frame, the entry is dropped; `outcome` says
    /// whether it had left before.
    pub fn ended(&mut self, done: &Move, outcome: Outcome) {
        let Some(pfn) = done.pfn else { return };
        match outcome {
            Outcome::Moved => {
                self.table.remove(pfn, done.order);
            }
            Outcome::Gone | Outcome::OtherPage | Outcome::OtherNode | Outcome::AlreadyThere => {
                if self.table.get(pfn).is_some_and(|mapped| mapped.page == done.page) {
                    self.stats.stale += 1;
                    self.wanted = true;
                    self.table.remove(pfn, done.order);
                }
            }
            Outcome::Busy
            | Outcome::Pinned
            | Outcome::Shared
            | Outcome::NoPermission
            | Outcome::Mempolicy
            | Outcome::Excluded
            | Outcome::NodeFull
            | Outcome::NotTried
            | Outcome::DryRun => {}
        }
    }

    /// Takes in the thread's findings; never blocks.
    pub fn take_in(&mut self) {
        for _ in 0..=SLICES {
            match self.told.try_recv() {
                Ok(Told::Pages { pid, found }) => found.iter().for_each(|page| self.note(pid, page)),
                Ok(Told::Round(round)) => {
                    self.busy = false;
                    self.stats.looked_up += round.looked_up;
                    self.stats.cpu_ns = self.stats.cpu_ns.plus(round.cpu);
                    self.stats.round_ns = round.took;
                    (self.stats.hidden, self.stats.unreadable) = (round.hidden, round.unreadable);
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.stats.failed = true;
                    return;
                }
            }
        }
    }

    fn note(&mut self, pid: Pid, found: &Found) {
        let pfn = Pfn(found.pfn);
        let wanted =
            self.frames.node_of(pfn).is_some_and(|node| self.keep_top_tier || self.topology.is_lower(node));
        let whole = !found.huge || found.pfn.is_multiple_of(HUGE_PAGES);
        if wanted && whole {
            self.table.insert(pfn, VirtPage { pid, vpn: found.vpn }, found.huge);
        }
    }

    /// Begins a round through these processes, if one is needed and the last one is long enough
    /// ago.
    pub fn look(&mut self, now: Nanos, processes: impl Iterator<Item = Pid>) {
        let due = self.began.is_none_or(|began| now.since(began) >= self.round_every);
        if !self.wanted || self.busy || !due {
            return;
        }
        // If the thread has ended, as after a panic, `take_in` reports it.
        if self.rounds.try_send(processes.collect()).is_ok() {
            self.began = Some(now);
            self.busy = true;
            self.wanted = false;
            self.stats.rounds += 1;
        }
    }

    /// Frames have gone offline.
    pub fn offline(&mut self, range: &PfnRange) {
        self.table.offline(range.start, range.end);
    }

    /// Memory came or went, nodes or tiers have changed.
    pub fn set_machine(&mut self, frames: &PfnMap, topology: &Topology) {
        self.frames = frames.clone();
        self.topology = topology.clone();
    }

    /// The counters, as of now.
    pub fn stats(&self) -> Stats {
        Stats {
            frames: self.table.known(),
            bytes: self.table.bytes(),
            no_room: self.table.no_room(),
            ..self.stats
        }
    }
}

#[cfg(test)]
mod tests;
