//! What passes between a machine and the engine, in a form that can be kept.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;

use thermocline_core::access::{
    Access, Evidence, Holding, Mappings, Marked, Membership, Pressure, Programs, RegionPage, RegionSnapshot,
    RegionSpace, Scans,
};
use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::journal::Decision;
use thermocline_core::moves::{Batch, BatchOutcome};
use thermocline_core::pace::{Pacing, ScanPace};
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, VirtPage};

/// Where in a step something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// While the machine is polled.
    Poll,
    /// While its nodes are read.
    Nodes,
    /// After that: what the engine asked for and decided.
    Tick,
    /// After the step, before the next one.
    Between,
}

/// One step of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its time.
    pub time: Nanos,
    /// Whether a tick was due.
    pub due: bool,
    /// Whether it only polled because the run was about to end.
    pub last: bool,
    /// [`Machine::is_looking`](thermocline_core::machine::Machine::is_looking) after the poll.
    pub looking: bool,
    /// [`Machine::demotes`](thermocline_core::machine::Machine::demotes).
    pub demotes: bool,
    /// [`Machine::pacing`](thermocline_core::machine::Machine::pacing).
    pub pacing: Pacing,
    /// What the engine wished for, if the step ticked and it wished for something.
    pub wish: Option<ScanPace>,
}

/// What the rule asked about a page's mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// [`Mappings::bounds`].
    Bounds(VirtPage, Option<std::ops::Range<u64>>),
    /// [`Mappings::marked`].
    Marked(VirtPage, Option<Marked>),
}

/// A region whose accesses another program has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionCount {
    /// The address space of its pages.
    pub space: RegionSpace,
    /// First page (virtual page number or PFN), inclusive.
    pub start: u64,
    /// Page after the last one, exclusive.
    pub end: u64,
    /// Accesses as the program counted them; out of how many is not known.
    pub accesses: u64,
    /// Writes as it counted them, where it did.
    pub writes: Option<u64>,
    /// For how many aggregation intervals the count has been about the same, where it is known.
    pub age: Option<u64>,
}

/// Something that happened, whole.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// A step began.
    Step(Step),
    /// [`Evidence::Accesses`], and what the rule asked about their mappings.
    Accesses(Vec<Access>, Vec<Answer>),
    /// [`Evidence::Regions`].
    Regions(RegionSnapshot),
    /// Regions as another program counted their accesses, and when. An engine is not shown them.
    RegionCounts(Nanos, Vec<RegionCount>),
    /// [`Evidence::RegionPages`].
    RegionPages(Vec<RegionPage>),
    /// [`Evidence::MemoryOnline`].
    Online(NodeId, Pfn, Pfn),
    /// [`Evidence::MemoryOffline`].
    Offline(Pfn, Pfn),
    /// [`Evidence::Topology`]; at the beginning, the machine as it was.
    Topology(Topology),
    /// [`Evidence::Process`].
    Process(Pid, Membership),
    /// [`Evidence::Exec`].
    Exec(Pid),
    /// [`Evidence::Exit`].
    Exit(Pid),
    /// [`Evidence::Outcome`].
    Outcome(BatchOutcome),
    /// [`Evidence::Demoted`].
    Demoted(Demoted),
    /// [`Evidence::Holding`].
    Holding(Holding),
    /// [`Evidence::Pressure`].
    Pressure(Pressure),
    /// [`Evidence::Scans`].
    Scans(Option<Scans>),
    /// [`Evidence::Programs`].
    Programs(Programs),
    /// The nodes were about to be read.
    Read,
    /// The nodes as they were read.
    Nodes(Vec<NodeState>),
    /// A batch was submitted.
    Batch(Batch),
    /// A demand was made.
    Demand(Demand),
    /// Decisions of the step.
    Decisions(Vec<Decision>),
    /// What the machine, the program or the configuration is.
    Setting(String, String),
    /// Events and pieces of evidence that were lost before this.
    Loss {
        /// Events.
        events: u64,
        /// Pieces of evidence.
        pieces: u64,
    },
}

impl Piece {
    /// Keeps a piece of evidence. What the rule asks about mappings is added after it was shown.
    pub fn of(evidence: Evidence<'_>) -> Piece {
        match evidence {
            Evidence::Accesses { batch, .. } => Piece::Accesses(batch.to_vec(), Vec::new()),
            Evidence::Regions(snapshot) => Piece::Regions(snapshot.clone()),
            Evidence::RegionPages(pages) => Piece::RegionPages(pages.to_vec()),
            Evidence::MemoryOnline { node, start, end } => Piece::Online(node, start, end),
            Evidence::MemoryOffline { start, end } => Piece::Offline(start, end),
            Evidence::Topology(topology) => Piece::Topology(topology.clone()),
            Evidence::Process { pid, membership } => Piece::Process(pid, membership),
            Evidence::Exec { pid } => Piece::Exec(pid),
            Evidence::Exit { pid } => Piece::Exit(pid),
            Evidence::Outcome(done) => Piece::Outcome(done.clone()),
            Evidence::Demoted(done) => Piece::Demoted(done.clone()),
            Evidence::Holding(holding) => Piece::Holding(holding),
            Evidence::Pressure(pressure) => Piece::Pressure(pressure),
            Evidence::Scans(scans) => Piece::Scans(scans),
            Evidence::Programs(programs) => Piece::Programs(programs),
        }
    }

    /// Shows the piece as the evidence that it was; `false` if it was none.
    pub fn show(&self, observe: &mut dyn FnMut(Evidence<'_>)) -> bool {
        match self {
            Piece::Accesses(batch, answers) => {
                observe(Evidence::Accesses { batch, mappings: &Answers::new(answers) });
            }
            Piece::Regions(snapshot) => observe(Evidence::Regions(snapshot)),
            Piece::RegionPages(pages) => observe(Evidence::RegionPages(pages)),
            Piece::Online(node, start, end) => {
                observe(Evidence::MemoryOnline { node: *node, start: *start, end: *end });
            }
            Piece::Offline(start, end) => observe(Evidence::MemoryOffline { start: *start, end: *end }),
            Piece::Topology(topology) => observe(Evidence::Topology(topology)),
            Piece::Process(pid, membership) => {
                observe(Evidence::Process { pid: *pid, membership: *membership });
            }
            Piece::Exec(pid) => observe(Evidence::Exec { pid: *pid }),
            Piece::Exit(pid) => observe(Evidence::Exit { pid: *pid }),
            Piece::Outcome(done) => observe(Evidence::Outcome(done)),
            Piece::Demoted(done) => observe(Evidence::Demoted(done)),
            Piece::Holding(holding) => observe(Evidence::Holding(*holding)),
            Piece::Pressure(pressure) => observe(Evidence::Pressure(*pressure)),
            Piece::Scans(scans) => observe(Evidence::Scans(*scans)),
            Piece::Programs(programs) => observe(Evidence::Programs(*programs)),
            Piece::Step(_)
            | Piece::RegionCounts(..)
            | Piece::Read
            | Piece::Nodes(_)
            | Piece::Batch(_)
            | Piece::Demand(_)
            | Piece::Decisions(_)
            | Piece::Setting(..)
            | Piece::Loss { .. } => return false,
        }
        true
    }

    /// Pieces of evidence in it: accesses, regions and pages count one by one.
    pub fn pieces(&self) -> u64 {
        let many = match self {
            Piece::Accesses(batch, _) => batch.len(),
            Piece::Regions(snapshot) => snapshot.regions.len(),
            Piece::RegionCounts(_, regions) => regions.len(),
            Piece::RegionPages(pages) => pages.len(),
            Piece::Step(_)
            | Piece::Read
            | Piece::Nodes(_)
            | Piece::Batch(_)
            | Piece::Demand(_)
            | Piece::Decisions(_)
            | Piece::Setting(..)
            | Piece::Loss { .. } => 0,
            _ => 1,
        };
        many as u64
    }

    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let more = match self {
            Piece::Accesses(batch, answers) => {
                size_of_val(batch.as_slice()) + size_of_val(answers.as_slice())
            }
            Piece::Regions(snapshot) => size_of_val(snapshot.regions.as_slice()),
            Piece::RegionCounts(_, regions) => size_of_val(regions.as_slice()),
            Piece::RegionPages(pages) => size_of_val(pages.as_slice()),
            Piece::Outcome(done) => done.outcomes.len(),
            Piece::Batch(batch) => size_of_val(batch.moves.as_slice()),
            Piece::Decisions(decisions) => size_of_val(decisions.as_slice()),
            Piece::Setting(key, value) => key.len() + value.len(),
            _ => 0,
        };
        size_of::<Piece>() + more
    }
}

/// The answers that the recorded machine gave. What it was not asked is not known.
#[derive(Debug)]
struct Answers<'a> {
    list: &'a [Answer],
    /// The next one, if the questions come as they came when it was recorded.
    next: Cell<usize>,
    /// Places in the list, if they do not.
    places: OnceCell<BTreeMap<(VirtPage, bool), usize>>,
}

impl<'a> Answers<'a> {
    fn new(list: &'a [Answer]) -> Answers<'a> {
        Answers { list, next: Cell::new(0), places: OnceCell::new() }
    }

    fn find(&self, page: VirtPage, bounds: bool) -> Option<&'a Answer> {
        let question = |answer: &Answer| match answer {
            Answer::Bounds(page, _) => (*page, true),
            Answer::Marked(page, _) => (*page, false),
        };
        let next = self.next.get();
        if let Some(answer) = self.list.get(next).filter(|answer| question(answer) == (page, bounds)) {
            self.next.set(next + 1);
            return Some(answer);
        }
        let places =
            self.places.get_or_init(|| self.list.iter().enumerate().map(|(i, a)| (question(a), i)).collect());
        self.list.get(*places.get(&(page, bounds))?)
    }
}

impl Mappings for Answers<'_> {
    fn bounds(&self, page: VirtPage) -> Option<std::ops::Range<u64>> {
        match self.find(page, true)? {
            Answer::Bounds(_, bounds) => bounds.clone(),
            Answer::Marked(..) => None,
        }
    }

    fn marked(&self, page: VirtPage) -> Option<Marked> {
        match self.find(page, false)? {
            Answer::Marked(_, marked) => *marked,
            Answer::Bounds(..) => None,
        }
    }
}
