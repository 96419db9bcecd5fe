//! Source `damon`: access rates of regions, read from DAMON.
//!
//! Kdamonds of ours, one a node with memory, watch frames (`paddr`) and do nothing about what they find
//! ([`offer_source`](crate::damon::offer_source)). At the end of each aggregation a kdamond passes the tracepoint
//! `damon:damon_aggregated` once for every region; a perf ring that hears that thread alone ([`event`]) holds the records until they are
//! read and put together ([`stream`]). The engine is told each snapshot, and then, within a budget, the pages that lie in the
//! accessed regions of lower tiers, the hottest first: whose they are, the reverse map knows.
//!
//! Why the tracepoint and not sysfs (`update_schemes_tried_regions`): a record of 56 bytes that nobody waits for, against a folder of four files for each
//! region, made anew each time by a write that keeps its writer waiting for up to an aggregation. The tracepoint needs no scheme, and tells
//! of every region at every aggregation. Both are the same on Linux 6.12 and 7.2; the offsets of the fields are read from the event's `format`.
//! By hearing only our own threads, kdamonds of others cost nothing and are never mistaken for ours.
//!
//! Memory that is added later is not watched before the next start.

pub mod event;
mod snapshots;
pub mod stream;
mod walk;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use serde::Serialize;
use thermocline_core::access::{RegionPage, RegionSnapshot, RegionSpace};
use thermocline_core::config::DamonSource as Keys;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, NodeId};

use crate::damon::kdamond_folder;
use crate::root::{KernelFileError, Root, read_optional};
use crate::source::Owners;
use crate::source::hwsample::attr::{self, Whose};
use crate::source::hwsample::ring::Scratch;
use crate::sys::perf::{Event, Ring};
use event::{Format, FormatError};
use stream::Stream;
use walk::Walks;

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
    /// Kdamonds that were started.
    pub started: usize,
    /// Kdamonds that ran when last looked at: fewer, where somebody has ended some.
    pub running: usize,
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
    /// Frames or pages of accessed regions of lower tiers that were looked up.
    pub looked_up: u64,
    /// Pages found there and told; the reverse map knows the others not, or not as anybody's in scope.
    pub pages: u64,
    /// Times that a snapshot's regions were given up for those of a newer one before all of their pages had been looked up.
    pub cut_short: u64,
    /// The aggregation interval as last measured, ns: a busy kernel takes longer than it was told.
    pub aggregation_ns: Nanos,
}

/// One kdamond.
#[derive(Debug)]
struct Kdamond {
    number: usize,
    event: Event,
    ring: Ring,
    stream: Stream,
}

/// The open source.
#[derive(Debug)]
pub struct DamonSource {
    root: Root,
    kdamonds: Vec<Kdamond>,
    scratch: Scratch,
    walks: Walks,
    stats: Stats,
}

impl DamonSource {
    /// Hears the kdamonds of `nodes`, which run.
    ///
    /// # Errors
    /// [`OpenError`]; nothing stays open.
    pub fn open(root: &Root, keys: &Keys, nodes: &[NodeId]) -> Result<DamonSource, OpenError> {
        let (path, text) = event::format(root)?;
        let format = Format::parse(&text).map_err(|cause| OpenError::Format(path, cause))?;
        let wanted = (2 * keys.regions_max * RECORD_BYTES).clamp(RING_BYTES.0, RING_BYTES.1);
        // At most 32 MiB: it fits.
        let bytes = wanted.next_power_of_two() as u32;
        let mut kdamonds = Vec::with_capacity(nodes.len());
        for (number, node) in nodes.iter().enumerate() {
            let tid = thread(root, number)?.ok_or(OpenError::Ended(number))?;
            let whose = Whose::Thread(tid);
            let attr = attr::tracepoint(format.id(), bytes / 2).of(whose).bytes();
            let failed = |action| move |cause| OpenError::Perf { action, kdamond: number, cause };
            let event = Event::open(&attr, whose, 0, None).map_err(failed("hear damon_aggregated"))?;
            let ring = Ring::map(&event, bytes).map_err(failed("map a ring"))?;
            event.enable().map_err(failed("hear damon_aggregated"))?;
            let stream = Stream::new(format, RegionSpace::Physical(*node), keys);
            kdamonds.push(Kdamond { number, event, ring, stream });
        }
        let stats = Stats { started: kdamonds.len(), running: kdamonds.len(), ..Stats::default() };
        let walks = Walks::new(keys.pages_per_s);
        Ok(DamonSource { root: root.clone(), kdamonds, scratch: Scratch::default(), walks, stats })
    }

    /// Delivers the snapshots that have come; never blocks.
    pub fn read(&mut self, topology: &Topology, mut each: impl FnMut(&RegionSnapshot)) {
        let DamonSource { kdamonds, scratch, walks, stats, .. } = self;
        (stats.lost, stats.malformed) = (0, 0);
        for Kdamond { ring, stream, .. } in kdamonds {
            let mut tell = |snapshot: &RegionSnapshot, complete: bool| {
                stats.snapshots += 1;
                stats.incomplete += u64::from(!complete);
                stats.regions += snapshot.regions.len() as u64;
                each(snapshot);
                walks.offer(snapshot, topology);
            };
            if ring.read(RECORDS_MAX, scratch, |record| stream.take(record, &mut tell)).broken {
                stream.give_up();
            }
            stats.lost += stream.lost();
            stats.malformed += stream.malformed();
            stats.aggregation_ns = stream.interval();
        }
    }

    /// Looks up pages of the accessed regions of lower tiers, as far as the budget goes, and appends those found to `pages`.
    pub fn look_up(&mut self, now: Nanos, owners: &mut impl Owners, pages: &mut Vec<RegionPage>) {
        let before = pages.len();
        self.walks.walk(now, owners, pages);
        self.stats.pages += (pages.len() - before) as u64;
        (self.stats.looked_up, self.stats.cut_short) = self.walks.counts();
    }

    /// Looks whether the kdamonds still run. Returns how many do, where that are fewer than before.
    pub fn look(&mut self) -> Option<usize> {
        let runs = |k: &&Kdamond| thread(&self.root, k.number).is_ok_and(|tid| tid.is_some());
        let running = self.kdamonds.iter().filter(runs).count();
        let fewer = running < self.stats.running;
        self.stats.running = running;
        fewer.then_some(running)
    }

    /// Descriptors that become readable when a ring is half full.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.kdamonds.iter().map(|kdamond| kdamond.event.as_fd())
    }

    /// The counters, as of now.
    pub fn stats(&self) -> Stats {
        self.stats
    }
}

/// The thread of a kdamond; none where it does not run, or not any more.
fn thread(root: &Root, kdamond: usize) -> Result<Option<u32>, KernelFileError> {
    let text = read_optional(&kdamond_folder(root, kdamond).join("pid"))?;
    // The kernel says -1 for one that is off.
    Ok(text.and_then(|text| text.trim().parse().ok()))
}
