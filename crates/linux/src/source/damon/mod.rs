//! Source `damon`: access rates of regions, read from DAMON.
//!
//! Kdamonds of ours, one a node with memory, watch frames (`paddr`), or one a process what it has
//! mapped (`fvaddr`), and do nothing about what they find
//! ([`offer_source`]). At the end of each aggregation a kdamond passes
//! the tracepoint `damon:damon_aggregated` once for every region; a perf ring that hears that
//! thread alone ([`event`]) holds the records until they are read and put together ([`stream`]).
//! The engine is told each snapshot, and then, within a budget, the pages of lower tiers that lie
//! in accessed regions, the hottest first: whose a frame is, the reverse map knows (`walk`); where
//! a page of a process is, its pagemap (`lookup`).
//!
//! Why the tracepoint and not sysfs (`update_schemes_tried_regions`): a record of 56 bytes that
//! nobody waits for, against a folder of four files for each region, made anew each time by a write
//! that keeps its writer waiting for up to an aggregation. The tracepoint needs no scheme, and
//! tells of every region at every aggregation. Both are the same on Linux 6.12 and 7.2; the offsets
//! of the fields are read from the event's `format`. By hearing only our own threads, kdamonds of
//! others cost nothing and are never mistaken for ours.
//!
//! Memory that is added later is not watched before the next start. Processes that come and go are
//! (`addresses`, `processes`), and so is what they map meanwhile (`mapped`).

mod addresses;
pub mod event;
#[cfg(feature = "bpf")]
mod evidence;
mod hearing;
mod lookup;
mod mapped;
mod probe;
mod processes;
mod ranges;
mod snapshots;
pub mod stream;
#[cfg(test)]
mod testing;
#[cfg(feature = "bpf")]
mod text;
mod walk;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use thermocline_core::access::{RegionPage, RegionSnapshot, RegionSpace};
use thermocline_core::config::{Config, DamonSource as Keys, Source};
use thermocline_core::statistics::Declared;
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;

use crate::actuator::{Actuator, Plan};
use crate::damon::{Spaces, offer_source};
use crate::reverse::ReverseError;
use crate::root::{KernelFileError, Root};
use crate::scope::Member;
use crate::source::{Owners, Row};
use crate::sys::perf::ring::Scratch;
use crate::topology::{Discovered, PfnMap};
use addresses::Addresses;
use event::FormatError;
use hearing::{Heard, Kdamond};
use walk::Walks;

pub use mapped::Watched;
pub use processes::Watching;

/// See [`Row`].
pub(super) const ROW: Row = Row {
    source: Source::Damon,
    what: "regions",
    cannot: "DAMON cannot be read (source.damon)",
    counted_as: "regions",
    probe: probe::probe,
    plan,
    #[cfg(feature = "bpf")]
    open: evidence::open,
    statistics: || vec![("regions", Stats::statistics()), ("regions.processes", Watching::statistics())],
};

/// How many kdamonds there are, which is what they are made by.
fn plan(root: &Root, config: &Config, found: &Discovered) -> Result<Plan, String> {
    offer_source(root, config, found).map(|(setup, _)| setup.plan).map_err(|why| why.to_string())
}

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

thermocline_core::statistics! {
    /// Counters since the start.
    Stats "regions" {
        /// Kdamonds of nodes that were started.
        started: usize, "kdamonds", Gauge;
        /// Of these, the ones that ran when last looked at: fewer, where somebody has ended some.
        running: usize, "kdamonds", Gauge;
        /// Regions that were told of.
        regions: u64, "regions", Counter;
        /// Aggregations that were told of.
        snapshots: u64, "aggregations", Counter;
        /// Among these, those some of whose regions were lost.
        incomplete: u64, "aggregations", Counter trouble;
        /// Records that were lost because a ring was full.
        lost: u64, "records", Counter trouble;
        /// Records that made no sense.
        malformed: u64, "records", Counter trouble;
        /// Frames of accessed regions of lower tiers, or pages of accessed regions of processes,
        /// that were looked up.
        looked_up: u64, "pages", Counter;
        /// Pages of lower tiers found there and told. The others the reverse map does not know, or
        /// not as anybody's in scope; or they are in the top tier.
        pages: u64, "pages", Counter;
        /// Times that a snapshot's regions were given up before all of their pages had been looked
        /// up, because a newer one's turn had come.
        cut_short: u64, "times", Counter trouble;
        /// The aggregation interval as last measured, ns: a busy kernel takes longer than it was
        /// told.
        aggregation_ns: Nanos, "ns", Gauge;
    }
    beside {
        /// The processes that are watched, where addresses are virtual.
        processes: Option<Watching>;
    }
}

/// How pages of regions are found.
#[derive(Debug)]
enum Pages {
    Frames(Walks),
    Addresses(Box<Addresses>),
}

/// The open source.
#[derive(Debug)]
pub struct DamonSource {
    heard: Heard,
    scratch: Scratch,
    pages: Pages,
    stats: Stats,
}

impl DamonSource {
    /// Hears the kdamonds of nodes, which run, or prepares to hear those of processes.
    ///
    /// # Errors
    /// [`OpenError`]; nothing stays open.
    pub fn open(root: &Root, keys: &Keys, watch: &Spaces) -> Result<DamonSource, OpenError> {
        let (mut heard, mut stats) = (Heard::nobody(root, keys)?, Stats::default());
        let pages = match watch {
            Spaces::Nodes(nodes) => {
                for (number, node) in nodes.iter().enumerate() {
                    heard.hear(number, RegionSpace::Physical(*node))?;
                }
                (stats.started, stats.running) = (nodes.len(), nodes.len());
                Pages::Frames(Walks::new(keys.pages_per_s))
            }
            Spaces::Processes(most) => {
                stats.processes = Some(Watching::default());
                Pages::Addresses(Box::new(Addresses::new(root, keys, *most)?))
            }
        };
        Ok(DamonSource { heard, scratch: Scratch::default(), pages, stats })
    }

    /// Whether regions are of frames, so that it takes a reverse map to tell whose they are.
    pub fn names_frames_alone(&self) -> bool {
        matches!(self.pages, Pages::Frames(_))
    }

    /// Delivers the snapshots that have come; never blocks.
    pub fn read(&mut self, topology: &Topology, mut each: impl FnMut(&RegionSnapshot)) {
        let DamonSource { heard, scratch, pages, stats } = self;
        (stats.lost, stats.malformed) = heard.closed;
        for Kdamond { ring, stream, .. } in heard.kdamonds.values_mut() {
            let mut tell = |snapshot: &RegionSnapshot, complete: bool| {
                stats.snapshots += 1;
                stats.incomplete += u64::from(!complete);
                stats.regions += snapshot.regions.len() as u64;
                each(snapshot);
                match pages {
                    Pages::Frames(walks) => walks.offer(snapshot, topology),
                    Pages::Addresses(addresses) => addresses.lookup.offer(snapshot),
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

    /// Looks up frames of the accessed regions of lower tiers, as far as the budget goes, and
    /// appends the pages found to `pages`.
    pub fn look_up(&mut self, now: Nanos, owners: &mut (impl Owners + ?Sized), pages: &mut Vec<RegionPage>) {
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
        let Pages::Addresses(addresses) = &mut self.pages else { return };
        let lookup = &mut addresses.lookup;
        let before = pages.len();
        lookup.take(now, frames, topology, pages);
        self.stats.pages += (pages.len() - before) as u64;
        (self.stats.looked_up, self.stats.cut_short) = lookup.counts();
    }

    /// Watches processes that have come, where addresses are virtual, and no more those that have
    /// gone; to be called at each tick. Returns what there is to say of it.
    pub fn follow(
        &mut self,
        now: Nanos,
        members: impl Iterator<Item = Member>,
        actuator: &mut Actuator,
    ) -> Option<String> {
        let Pages::Addresses(addresses) = &mut self.pages else { return None };
        let told = addresses.follow(now, &mut self.heard, members, actuator);
        self.stats.processes = Some(addresses.stats());
        told
    }

    /// Whether [`follow`](DamonSource::follow) is to be gone on with soon.
    pub fn is_preparing(&self) -> bool {
        matches!(&self.pages, Pages::Addresses(addresses) if addresses.is_preparing())
    }

    /// Looks whether the kdamonds of nodes still run. Returns how many do, where that are fewer
    /// than before.
    pub fn look(&mut self) -> Option<usize> {
        if !self.names_frames_alone() {
            return None;
        }
        let running = self.heard.kdamonds.len() - self.heard.ended().len();
        let fewer = running < self.stats.running;
        self.stats.running = running;
        fewer.then_some(running)
    }

    /// Descriptors that become readable when a ring is half full.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.heard.kdamonds.values().map(|kdamond| kdamond.event.as_fd())
    }

    /// The counters, as of now.
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }
}
