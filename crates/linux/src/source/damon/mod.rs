//! Source `damon`: access rates of regions, read from DAMON.
//!
//! Our kdamonds, one per node with memory, watch frames (`paddr`), or one per process its mappings
//! (`fvaddr`), and only report ([`offer_source`]). At the end of each aggregation a kdamond passes
//! the tracepoint `damon:damon_aggregated` once for every region; a perf ring for that thread alone
//! ([`event`]) holds the records until they are read and assembled ([`stream`]). The engine
//! receives each snapshot, and then, within a budget, the pages of lower tiers that lie in accessed
//! regions, the hottest first. The reverse map gives the owner of a frame (`walk`), the pagemap the
//! place of a process's page (`lookup`).
//!
//! Why the tracepoint and not sysfs (`update_schemes_tried_regions`): the tracepoint costs a record
//! of 56 bytes without waiting; sysfs creates a folder of four files for each region, by a write
//! that blocks its writer for up to an aggregation. The tracepoint needs no scheme, and reports
//! every region at every aggregation. Both are the same on Linux 6.12 and 7.2; the offsets of the
//! fields are read from the event's `format`. Because only our own threads are read, kdamonds of
//! others cost nothing and are never mistaken for ours.
//!
//! Memory that is added later is not watched before the next start. New processes are (`addresses`,
//! `processes`), and so are new mappings (`mapped`).

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
    sees_top_tier: true,
    probe: probe::probe,
    plan,
    #[cfg(feature = "bpf")]
    open: evidence::open,
    statistics: || vec![("regions", Stats::statistics()), ("regions.processes", Watching::statistics())],
};

/// The number of kdamonds, a setting that creates them.
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
    /// The kernel does not allow reading the event.
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
        /// Of these, the ones that ran when last looked at: fewer if somebody has ended some.
        running: usize, "kdamonds", Gauge;
        /// Regions reported.
        regions: u64, "regions", Counter;
        /// Aggregations reported.
        snapshots: u64, "aggregations", Counter;
        /// Of these, aggregations with lost regions.
        incomplete: u64, "aggregations", Counter trouble;
        /// Records that were lost because a ring was full.
        lost: u64, "records", Counter trouble;
        /// Records that could not be decoded.
        malformed: u64, "records", Counter trouble;
        /// Frames of accessed regions of lower tiers, or pages of accessed regions of processes,
        /// that were looked up.
        looked_up: u64, "pages", Counter;
        /// Pages of lower tiers found there and delivered. The others are unknown to the reverse
        /// map, out of scope, or in the top tier.
        pages: u64, "pages", Counter;
        /// Times that a snapshot's regions were given up before all of their pages had been looked
        /// up, because a newer one's turn had come.
        cut_short: u64, "times", Counter trouble;
        /// The aggregation interval as last measured, ns: a busy kernel takes longer than
        /// configured.
        aggregation_ns: Nanos, "ns", Gauge;
    }
    beside {
        /// The processes that are watched, if addresses are virtual.
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
    /// Opens the events of the running kdamonds of nodes, or prepares for those of processes.
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

    /// Whether regions are of frames, so that a reverse map is needed to find their owners.
    pub fn names_frames_alone(&self) -> bool {
        matches!(self.pages, Pages::Frames(_))
    }

    /// Delivers the snapshots that have arrived; never blocks.
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

    /// Looks up frames of the accessed regions of lower tiers, as far as the budget allows, and
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

    /// With virtual addresses, starts watching new processes and stops watching ended ones; call it
    /// at each tick. Returns messages to report.
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

    /// Whether [`follow`](DamonSource::follow) should be called again soon.
    pub fn is_preparing(&self) -> bool {
        matches!(&self.pages, Pages::Addresses(addresses) if addresses.is_preparing())
    }

    /// Checks whether the kdamonds of nodes still run. Returns their number if that has fallen.
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
