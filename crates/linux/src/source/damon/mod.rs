//! Source `damon`: access rates of regions, read from DAMON.
//!
//! Kdamonds of ours, one a node with memory, watch frames (`paddr`), or one a process its addresses (`vaddr`), and do nothing about what they find
//! ([`offer_source`](crate::damon::offer_source)). At the end of each aggregation a kdamond passes the tracepoint
//! `damon:damon_aggregated` once for every region; a perf ring that hears that thread alone ([`event`]) holds the records until they are
//! read and put together ([`stream`]). The engine is told each snapshot, and then, within a budget, the pages of lower tiers that lie in
//! accessed regions, the hottest first: whose a frame is, the reverse map knows (`walk`); where a page of a process is, its pagemap (`lookup`).
//!
//! Why the tracepoint and not sysfs (`update_schemes_tried_regions`): a record of 56 bytes that nobody waits for, against a folder of four files for each
//! region, made anew each time by a write that keeps its writer waiting for up to an aggregation. The tracepoint needs no scheme, and tells
//! of every region at every aggregation. Both are the same on Linux 6.12 and 7.2; the offsets of the fields are read from the event's `format`.
//! By hearing only our own threads, kdamonds of others cost nothing and are never mistaken for ours.
//!
//! Memory that is added later is not watched before the next start. Processes that come and go are (`processes`).

pub mod event;
mod lookup;
mod processes;
mod snapshots;
pub mod stream;
#[cfg(test)]
mod testing;
mod walk;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use serde::Serialize;
use thermocline_core::access::{RegionPage, RegionSnapshot, RegionSpace};
use thermocline_core::config::DamonSource as Keys;
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;

use crate::actuator::door::{Door, Live};
use crate::actuator::{Actuator, kdamond};
use crate::damon::{Pool, PoolError, Spaces, kdamond_folder};
use crate::reverse::ReverseError;
use crate::root::{KernelFileError, Root, read_optional};
use crate::scope::Member;
use crate::source::Owners;
use crate::source::hwsample::attr::{self, Whose};
use crate::source::hwsample::ring::Scratch;
use crate::sys::perf::{Event, Ring};
use crate::topology::PfnMap;
use event::{Format, FormatError};
use lookup::Lookup;
use processes::{ENDED_EVERY, Processes};
use stream::Stream;
use walk::Walks;

pub use processes::Watching;

/// Bytes of a record in a ring, at most: header, time, length, 52 bytes of the event, rounded up.
const RECORD_BYTES: u64 = 96;
/// Sizes of a ring in bytes.
const RING_BYTES: (u64, u64) = (64 << 10, 32 << 20);
/// Records read at once from each ring.
const RECORDS_MAX: usize = 65_536;

/// Why DAMON's regions cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file of the kernel is absent or cannot be read.
    #[error(transparent)]
    File(#[from] KernelFileError),
    /// The kernel describes the event in a way that we do not understand.
    #[error("{path}: {cause}; please report this", path = .0.display(), cause = .1)]
    Format(PathBuf, #[source] FormatError),
    /// A kdamond does not run.
    #[error("kdamond {0} has ended already; see the kernel's log (dmesg), and who else sets up DAMON")]
    Ended(usize),
    /// Pages of processes cannot be found.
    #[error("pages of processes cannot be found: {0}")]
    Pages(#[from] ReverseError),
    /// The kernel does not let us hear the event.
    #[error("cannot {action} for kdamond {kdamond}: {cause}{}", match cause.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "; it needs CAP_PERFMON and CAP_IPC_LOCK: run as root",
        _ => "",
    })]
    Perf {
        /// "hear damon_aggregated", "map a ring".
        action: &'static str,
        /// Number of the kdamond.
        kdamond: usize,
        /// The kernel's answer.
        cause: io::Error,
    },
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Kdamonds of nodes that were started.
    pub started: usize,
    /// Of these, the ones that ran when last looked at: fewer, where somebody has ended some.
    pub running: usize,
    /// The processes that are watched, where addresses are virtual.
    pub processes: Option<Watching>,
    /// Regions that were told of.
    pub regions: u64,
    /// Aggregations that were told of.
    pub snapshots: u64,
    /// Among these, those some of whose regions were lost.
    pub incomplete: u64,
    /// Records that were lost because a ring was full.
    pub lost: u64,
    /// Records that made no sense.
    pub malformed: u64,
    /// Frames of accessed regions of lower tiers, or pages of accessed regions of processes, that were looked up.
    pub looked_up: u64,
    /// Pages of lower tiers found there and told. The others the reverse map does not know, or not as anybody's in scope; or they are in the top tier.
    pub pages: u64,
    /// Times that a snapshot's regions were given up before all of their pages had been looked up, because a newer one's turn had come.
    pub cut_short: u64,
    /// The aggregation interval as last measured, ns: a busy kernel takes longer than it was told.
    pub aggregation_ns: Nanos,
}

/// One kdamond.
#[derive(Debug)]
struct Kdamond {
    thread: u32,
    /// How often it had run when it was last seen to wait for a lock.
    waits: Option<u64>,
    /// It was seen to wait twice, and had not run in between.
    hangs: bool,
    event: Event,
    ring: Ring,
    stream: Stream,
}

/// What is needed to hear kdamonds.
#[derive(Clone, Debug)]
struct Hearing {
    keys: Keys,
    format: Format,
    /// Of a ring.
    bytes: u32,
}

impl Hearing {
    fn new(root: &Root, keys: &Keys) -> Result<Hearing, OpenError> {
        let (path, text) = event::format(root)?;
        let format = Format::parse(&text).map_err(|cause| OpenError::Format(path, cause))?;
        let wanted = (2 * keys.regions_max * RECORD_BYTES).clamp(RING_BYTES.0, RING_BYTES.1);
        // At most 32 MiB: it fits.
        let bytes = wanted.next_power_of_two() as u32;
        Ok(Hearing { keys: keys.clone(), format, bytes })
    }

    /// Hears kdamond `number`, which watches `space`.
    fn hear(&self, root: &Root, number: usize, space: RegionSpace) -> Result<Kdamond, OpenError> {
        let tid = thread(root, number)?.ok_or(OpenError::Ended(number))?;
        let whose = Whose::Thread(tid);
        let attr = attr::tracepoint(self.format.id(), self.bytes / 2).of(whose).bytes();
        let failed = |action| move |cause| OpenError::Perf { action, kdamond: number, cause };
        let event = Event::open(&attr, whose, 0, None).map_err(failed("hear damon_aggregated"))?;
        let ring = Ring::map(&event, self.bytes).map_err(failed("map a ring"))?;
        event.enable().map_err(failed("hear damon_aggregated"))?;
        let stream = Stream::new(self.format, space, &self.keys);
        Ok(Kdamond { thread: tid, waits: None, hangs: false, event, ring, stream })
    }
}

impl Kdamond {
    /// Whether it runs. Its file in DAMON's sysfs may be busy for as long as another kdamond hangs.
    fn runs(&self, root: &Root) -> bool {
        let comm = read_optional(&root.proc.join(self.thread.to_string()).join("comm"));
        comm.is_ok_and(|comm| comm.is_some_and(|comm| comm.starts_with("kdamond")))
    }

    /// Looks whether it waits for a lock since the last look. Returns whether that began just now.
    fn look(&mut self, root: &Root) -> bool {
        let waits = kdamond::waits(&root.proc, self.thread);
        let hangs = waits.is_some() && waits == self.waits;
        let began = hangs && !self.hangs;
        (self.waits, self.hangs) = (waits, hangs);
        began
    }
}

/// How pages of regions are found.
#[derive(Debug)]
enum Pages {
    Frames(Walks),
    Addresses { lookup: Lookup, processes: Processes, pool: Pool, looked: Option<Nanos> },
}

/// The open source.
#[derive(Debug)]
pub struct DamonSource {
    root: Root,
    hearing: Hearing,
    /// Those that are heard, by number.
    kdamonds: BTreeMap<usize, Kdamond>,
    scratch: Scratch,
    pages: Pages,
    stats: Stats,
    /// What was lost and malformed in rings that are closed.
    closed: (u64, u64),
}

impl DamonSource {
    /// Hears the kdamonds of nodes, which run, or prepares to hear those of processes.
    ///
    /// # Errors
    /// [`OpenError`]; nothing stays open.
    pub fn open(root: &Root, keys: &Keys, watch: &Spaces) -> Result<DamonSource, OpenError> {
        let hearing = Hearing::new(root, keys)?;
        let (mut kdamonds, mut stats) = (BTreeMap::new(), Stats::default());
        let pages = match watch {
            Spaces::Nodes(nodes) => {
                for (number, node) in nodes.iter().enumerate() {
                    kdamonds.insert(number, hearing.hear(root, number, RegionSpace::Physical(*node))?);
                }
                (stats.started, stats.running) = (nodes.len(), nodes.len());
                Pages::Frames(Walks::new(keys.pages_per_s))
            }
            Spaces::Processes(most) => {
                stats.processes = Some(Watching::default());
                Pages::Addresses {
                    lookup: Lookup::start(root, keys.pages_per_s)?,
                    processes: Processes::new(*most, keys.process_min_mib),
                    pool: Pool::new(*most),
                    looked: None,
                }
            }
        };
        let scratch = Scratch::default();
        Ok(DamonSource { root: root.clone(), hearing, kdamonds, scratch, pages, stats, closed: (0, 0) })
    }

    /// Whether regions are of frames, so that it takes a reverse map to tell whose they are.
    pub fn names_frames_alone(&self) -> bool {
        matches!(self.pages, Pages::Frames(_))
    }

    /// Delivers the snapshots that have come; never blocks.
    pub fn read(&mut self, topology: &Topology, mut each: impl FnMut(&RegionSnapshot)) {
        let DamonSource { kdamonds, scratch, pages, stats, closed, .. } = self;
        (stats.lost, stats.malformed) = *closed;
        for Kdamond { ring, stream, .. } in kdamonds.values_mut() {
            let mut tell = |snapshot: &RegionSnapshot, complete: bool| {
                stats.snapshots += 1;
                stats.incomplete += u64::from(!complete);
                stats.regions += snapshot.regions.len() as u64;
                each(snapshot);
                match pages {
                    Pages::Frames(walks) => walks.offer(snapshot, topology),
                    Pages::Addresses { lookup, .. } => lookup.offer(snapshot),
                }
            };
            if ring.read(RECORDS_MAX, scratch, |record| stream.take(record, &mut tell)).broken {
                stream.give_up();
            }
            stats.lost += stream.lost();
            stats.malformed += stream.malformed();
            stats.aggregation_ns = stream.interval();
        }
    }

    /// Looks up frames of the accessed regions of lower tiers, as far as the budget goes, and appends the pages found to `pages`.
    pub fn look_up(&mut self, now: Nanos, owners: &mut impl Owners, pages: &mut Vec<RegionPage>) {
        let Pages::Frames(walks) = &mut self.pages else { return };
        let before = pages.len();
        walks.walk(now, owners, pages);
        self.stats.pages += (pages.len() - before) as u64;
        (self.stats.looked_up, self.stats.cut_short) = walks.counts();
    }

    /// Appends the pages of lower tiers that were found by addresses meanwhile; never blocks.
    pub fn take_pages(
        &mut self,
        now: Nanos,
        frames: &PfnMap,
        topology: &Topology,
        pages: &mut Vec<RegionPage>,
    ) {
        let Pages::Addresses { lookup, .. } = &mut self.pages else { return };
        let before = pages.len();
        lookup.take(now, frames, topology, pages);
        self.stats.pages += (pages.len() - before) as u64;
        (self.stats.looked_up, self.stats.cut_short) = lookup.counts();
    }

    /// Watches processes that have come, where addresses are virtual, and no more those that have gone; about once a second. Returns what there is to say of it.
    pub fn follow(
        &mut self,
        now: Nanos,
        members: impl Iterator<Item = Member>,
        actuator: &mut Actuator,
    ) -> Option<String> {
        let Pages::Addresses { lookup, processes, pool, looked } = &mut self.pages else { return None };
        if looked.is_some_and(|looked| now.since(looked) < ENDED_EVERY) {
            return None;
        }
        *looked = Some(now);
        let (root, kdamonds) = (&self.root, &mut self.kdamonds);
        let mut told = None;
        for (number, kdamond) in kdamonds.iter_mut() {
            if kdamond.look(root) {
                told = processes.watched_by(*number).map(|(pid, _)| {
                    format!(
                        "process {} keeps kdamond {number} waiting for its memory: it is set aside, and no regions of it are told, until it answers or ends",
                        pid.0
                    )
                });
            }
        }
        processes.hung = kdamonds.iter().filter(|(_, k)| k.hangs).map(|(number, _)| *number).collect();
        let steps = processes.look(root, now, members);
        let mut leave = |kdamonds: &mut BTreeMap<usize, Kdamond>, number: usize| {
            if let Some(Kdamond { stream, .. }) = kdamonds.remove(&number) {
                self.closed.0 += stream.lost();
                self.closed.1 += stream.malformed();
            }
        };
        for number in steps.end {
            leave(kdamonds, number);
            if let Some((pid, _)) = processes.ended(number) {
                lookup.forget(pid);
            }
            told = pool.end(root, actuator, number).err().map(|why| why.to_string()).or(told);
        }
        for (number, who) in steps.begin {
            let space = RegionSpace::Virtual(who.0);
            let begun = pool.watch(root, actuator, number, who.0).map_err(Failed::Watch);
            match begun.and_then(|()| self.hearing.hear(root, number, space).map_err(Failed::Hear)) {
                Ok(kdamond) => {
                    kdamonds.insert(number, kdamond);
                    processes.begun(number, who);
                }
                Err(why) => {
                    processes.failed(who);
                    // A process may end at any moment.
                    if crate::process::is_same(root, who.0, who.1).unwrap_or(false) {
                        told = Some(format!("process {} is not watched: {why}", who.0.0));
                    }
                    // What does not run, or is somebody else's, is left as it is.
                    let _ = pool.end(root, actuator, number);
                }
            }
        }
        // One that ended before its process was ended by somebody, and is not begun again.
        let ended: Vec<usize> =
            kdamonds.iter().filter(|(_, kdamond)| !kdamond.runs(root)).map(|(n, _)| *n).collect();
        for number in ended {
            leave(kdamonds, number);
            let Some(who) = processes.ended(number) else { continue };
            lookup.forget(who.0);
            let lives = crate::process::stat(root, who.0).ok().flatten();
            if lives.is_some_and(|stat| stat.start_time == who.1 && !matches!(stat.state, 'Z' | 'X')) {
                processes.failed(who);
                told = Some(format!(
                    "process {} is watched no more: somebody has ended kdamond {number}",
                    who.0.0
                ));
            }
        }
        self.stats.processes = Some(processes.stats);
        told
    }

    /// Looks whether the kdamonds of nodes still run. Returns how many do, where that are fewer than before.
    pub fn look(&mut self) -> Option<usize> {
        if !self.names_frames_alone() {
            return None;
        }
        let running = self.kdamonds.values().filter(|kdamond| kdamond.runs(&self.root)).count();
        let fewer = running < self.stats.running;
        self.stats.running = running;
        fewer.then_some(running)
    }

    /// Descriptors that become readable when a ring is half full.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.kdamonds.values().map(|kdamond| kdamond.event.as_fd())
    }

    /// The counters, as of now.
    pub fn stats(&self) -> Stats {
        self.stats
    }
}

/// Why a process is not watched.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Watch(PoolError),
    #[error(transparent)]
    Hear(OpenError),
}

/// The thread of a kdamond; none where it does not run, or not any more.
fn thread(root: &Root, kdamond: usize) -> Result<Option<u32>, KernelFileError> {
    let path = kdamond_folder(root, kdamond).join("pid");
    // The door waits while a kdamond holds the lock of these files.
    match Live.read(&path) {
        // The kernel says -1 for one that is off.
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(KernelFileError::io("read", &path, e)),
    }
}
