//! The live machine: its sources, mover and demoter, opened and closed together.
//!
//! `steps.rs` is the engine's interface to it; the rest is for reporting.

mod cpu_time;
mod mappings;
mod members;
mod owners;
mod pressure_reader;
mod programs_reader;
mod scanning;
mod sources;
mod steps;
mod stock;

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_core::access::{Access, RegionPage};
use thermocline_core::config::{self, Config};
use thermocline_core::demand::Demoted;
use thermocline_core::demotion::Reach;
use thermocline_core::limit::Reserve;
use thermocline_core::moves::{BatchId, BatchOutcome, Move};
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, NodeId, PageSize};

use crate::actuator::Actuator;
use crate::demoter::{Demoter, DemoterStats};
use crate::kernel_moves::KernelMoves;
use crate::lists::nodes_text;
use crate::mover::closed::closed;
use crate::mover::{Mover, MoverConfig, MoverError, MoverStats};
use crate::node_state::NodeStateReader;
use crate::reverse::{self, ReverseError};
use crate::root::{KernelFileError, Root};
use crate::scope::{Holdings, ScopeError, Scopes};
use crate::source::hintfault;
use crate::source::{Counted, EvidenceSource, Opening, Rate, Row, SourceError};
use crate::topology::{DiscoverError, Watcher};
use crate::vmstat::Vmstat;

use mappings::Maps;
use members::{Managed, NewScopes};
use owners::Owners;
use pressure_reader::PressureReader;
use programs_reader::ProgramsReader;
use scanning::Scanning;
use sources::Sources;
use steps::LOOK_PAUSE;
use stock::Stock;

pub use crate::clock::{cpu_time, now};
pub use sources::Overhead;

/// Accesses passed to the engine at once.
const BATCH_ACCESSES: usize = 1024;

/// Why the live machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A source that is switched on cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Frames named by samples, regions or hot lists cannot be mapped to processes.
    #[error("frames cannot be put to processes: {0}")]
    Reverse(#[from] ReverseError),
    /// All sources are switched off.
    #[error("no source is switched on: set {}", config::Sources::switches())]
    NoSource,
    /// Pages cannot be moved.
    #[error("pages cannot be moved: {0}")]
    Mover(#[from] MoverError),
    /// This process may not allocate in the top tier, so that nothing could be promoted.
    #[error(
        "pages cannot be promoted: the cpuset that thermocline runs in leaves out {}; run it in a cgroup whose cpuset.mems has them",
        nodes_text(.0)
    )]
    Closed(Vec<u32>),
    /// A file of the kernel cannot be read.
    #[error(transparent)]
    File(#[from] KernelFileError),
    /// A scope cannot be used.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// The topology cannot be read.
    #[error(transparent)]
    Topology(#[from] DiscoverError),
    /// The kernel's filter cannot be changed.
    #[error(
        "the filter of hint faults cannot be changed, the kernel refuses it; restart thermocline to use other scopes"
    )]
    Filter,
    /// The thread cannot be created.
    #[error("the thread that looks what scopes hold cannot be started: {0}")]
    Thread(std::io::Error),
}

/// What `submit` does with batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// Move the pages.
    Live,
    /// Move nothing; every move ends as [`DryRun`](thermocline_core::moves::Outcome::DryRun).
    Off,
}

/// The machine under us.
#[derive(Debug)]
pub struct LiveMachine {
    sources: Sources,
    owners: Owners,
    mover: Option<Mover>,
    demoter: Option<Demoter>,
    /// The demoter's counters when it ended.
    demoter_stats: Option<DemoterStats>,
    /// Demands that never reached the demoter.
    undone: Vec<Demoted>,
    root: Root,
    /// The kernel's counters at the start.
    vmstat: Vmstat,
    kernel_moves: KernelMoves,
    nodes: NodeStateReader,
    managed: Managed,
    /// The configured scopes.
    scopes: Vec<config::Scope>,
    stock: Stock,
    pressure_reader: PressureReader,
    programs_reader: ProgramsReader,
    scanning: Scanning,
    watcher: Watcher,
    maps: Maps,
    looked: Option<Nanos>,
    /// When a scan of the processes was last interrupted.
    left_looking: Nanos,
    topology_read: Nanos,
    /// The moves of each batch in the mover, to pass their outcomes to source and reverse map.
    moving: BTreeMap<BatchId, Vec<Move>>,
    accesses: Vec<Access>,
    region_pages: Vec<RegionPage>,
    /// Outcomes of batches that never reached the mover.
    returned: Vec<BatchOutcome>,
    /// Messages not yet fetched.
    news: Vec<String>,
}

/// What a [`LiveMachine`] needs for another configuration.
#[derive(Debug)]
pub struct Prepared {
    stock: Stock,
    pressure_reader: PressureReader,
    /// `None` if the scopes stay.
    scopes: Option<NewScopes>,
}

impl LiveMachine {
    /// Attaches to the machine's evidence and, if pages move, starts the mover. Sources that need
    /// kernel settings set them through `actuator`; without it they are left out.
    ///
    /// # Errors
    /// See [`MachineError`]; nothing stays attached.
    pub fn open(
        root: &Root,
        config: &Config,
        moving: Moving,
        actuator: Option<&mut Actuator>,
    ) -> Result<LiveMachine, MachineError> {
        let mut nodes = NodeStateReader::new(root);
        nodes.read()?;
        let watcher = Watcher::new(root, &config.tiers, nodes.zones())?;
        let (filter, mut managed) = Managed::new(root, &config.scope)?;
        let holdings = holdings(root, config, &watcher)?;
        let pressure_reader = PressureReader::new(root, config, moving)?;
        let mover = match moving {
            Moving::Off => None,
            Moving::Live => {
                let closed = closed(root, &watcher.discovered().topology)?;
                if closed.top {
                    return Err(MachineError::Closed(closed.nodes));
                }
                let mut states = NodeStateReader::new(root);
                let settings = MoverConfig {
                    shared_pages: config.admission.shared_pages,
                    memory_policies: config.admission.memory_policies,
                    scopes: Scopes::new(&config.scope)?,
                    reserve: Reserve::new(&config.admission),
                    capacity: config.admission.batches_in_flight as usize,
                    root: root.clone(),
                    ..MoverConfig::default()
                };
                Some(Mover::start(settings, move |node| {
                    states.read().ok()?.iter().find(|s| s.node == node).copied()
                })?)
            }
        };
        let (found, frames) = (watcher.discovered(), watcher.pfns());
        let mut opening = Opening { root, config, found, frames, scope: &filter, actuator, now: now() };
        let sources = Sources::open(&mut opening)?;
        if let Some(faults) = sources.hintfault() {
            Managed::leave_out_ourselves(&faults.source);
        }
        let topology = &found.topology;
        let owners = Owners::open(root, config, &sources, topology, frames, &mut managed)?;
        Ok(LiveMachine {
            sources,
            owners,
            mover,
            demoter: None,
            demoter_stats: None,
            undone: Vec::new(),
            root: root.clone(),
            vmstat: Vmstat::read(root)?,
            kernel_moves: KernelMoves::default(),
            nodes,
            managed,
            scopes: config.scope.clone(),
            stock: Stock::new(holdings)?,
            pressure_reader,
            programs_reader: ProgramsReader::new(root, config),
            scanning: Scanning::default(),
            watcher,
            maps: Maps::new(root),
            looked: None,
            left_looking: Nanos(0),
            topology_read: now(),
            moving: BTreeMap::new(),
            accesses: Vec::with_capacity(BATCH_ACCESSES),
            region_pages: Vec::new(),
            returned: Vec::new(),
            news: Vec::new(),
        })
    }

    /// Prepares for another configuration, which differs only in keys that can be reloaded.
    ///
    /// # Errors
    /// It cannot be prepared; nothing has changed.
    pub fn prepare(&self, config: &Config) -> Result<Prepared, MachineError> {
        let moving = if self.mover.is_some() { Moving::Live } else { Moving::Off };
        let scopes = self.managed.prepare(&self.scopes, &config.scope)?;
        Ok(Prepared {
            stock: Stock::new(holdings(&self.root, config, &self.watcher)?)?,
            pressure_reader: PressureReader::new(&self.root, config, moving)?,
            scopes: Some(scopes).filter(|scopes| !scopes.map.is_same()),
        })
    }

    /// Lets the kernel's filter of hint faults go by the new scopes; the last step that may fail.
    ///
    /// # Errors
    /// The kernel refuses it; nothing has changed.
    pub fn set_filter(&self, prepared: &Prepared) -> Result<(), MachineError> {
        let faults = self.sources.hintfault().map(|faults| &faults.source);
        match faults.zip(prepared.scopes.as_ref()) {
            Some((faults, scopes)) if faults.set_filter(&scopes.filter).is_err() => Err(MachineError::Filter),
            _ => Ok(()),
        }
    }

    /// Lets the filter go by the present scopes again.
    pub fn keep_filter(&self) {
        if let Some(faults) = self.sources.hintfault() {
            self.managed.keep_filter(&faults.source);
        }
    }

    /// Uses that configuration from now on.
    pub fn reload(&mut self, config: &Config, prepared: Prepared) {
        (self.stock, self.pressure_reader) = (prepared.stock, prepared.pressure_reader);
        if let Some(mover) = &self.mover {
            mover.set_reserve(Reserve::new(&config.admission));
        }
        if let Some(scopes) = prepared.scopes {
            if let Some(mover) = &self.mover {
                mover.set_scopes(scopes.scopes.clone());
            }
            let filter = self.sources.hintfault().map(|faults| &faults.source);
            self.managed.set_scopes(scopes, filter);
            self.scopes.clone_from(&config.scope);
            // Every process is examined again at the next poll.
            self.looked = None;
        }
        self.sources.iter_mut().for_each(|source| source.reload(config));
    }

    /// Demotes other memory from now on.
    pub fn set_reach(&self, reach: Reach) {
        if let Some(demoter) = &self.demoter {
            demoter.set_reach(reach);
        }
    }

    /// Demotes from now on, and continues the counters of the last demoter.
    pub fn set_demoter(&mut self, mut demoter: Demoter) {
        demoter.count_on(self.demoter_stats.take().unwrap_or_default());
        self.demoter = Some(demoter);
    }

    /// Has the sources follow processes that have started and ended, once a tick. Returns messages
    /// to report.
    pub fn follow_processes(&mut self, actuator: &mut Actuator) -> Vec<String> {
        let (at, managed) = (now(), &self.managed);
        self.sources.iter_mut().filter_map(|s| s.follow(at, &mut managed.members(), actuator)).collect()
    }

    /// The state of every node with memory.
    ///
    /// # Errors
    /// zoneinfo is absent or cannot be read.
    pub fn node_states(&mut self) -> Result<&[NodeState], KernelFileError> {
        self.nodes.read()
    }

    /// Nodes on which the kernel promotes every page at its first fault, because they have so much
    /// free memory.
    pub fn free_space_promotion(&self) -> Vec<NodeId> {
        let zones = self.nodes.zones();
        let mut nodes: Vec<NodeId> = zones.iter().map(|z| z.node).collect();
        nodes.dedup();
        nodes.retain(|&node| crate::zoneinfo::free_space_promotion(zones, node, PageSize::OF_ENGINE));
        nodes
    }

    /// Stops demotion if the demoter has failed; returns why.
    pub fn end_failed_demoter(&mut self) -> Option<String> {
        let failure = self.demoter.as_ref()?.failure()?;
        self.end_demoter(Duration::ZERO);
        Some(failure)
    }

    /// The demoter's counters.
    pub fn demoter_stats(&self) -> Option<DemoterStats> {
        self.demoter.as_ref().map(Demoter::stats).or(self.demoter_stats)
    }

    /// The kernel's own moves since the start, without demotion at our command. While a demand is
    /// under way, whose pages cannot be separated yet, the moves before it.
    pub fn kernel_moves(&mut self) -> KernelMoves {
        let settled = self.demoter.as_ref().is_none_or(Demoter::is_idle);
        if let Some(now) = Vmstat::read(&self.root).ok().filter(|_| settled) {
            let told = self.demoter_stats().map_or(0, |stats| stats.demoted_pages - stats.by_damon_pages);
            self.kernel_moves = KernelMoves::since(&now, &self.vmstat, told);
        }
        self.kernel_moves
    }

    /// Waits until there is enough evidence for a poll, for at most `timeout`.
    ///
    /// # Errors
    /// What poll(2) returns, EINTR excepted.
    pub fn wait(&self, timeout: Duration) -> std::io::Result<bool> {
        let timeout =
            if self.managed.is_busy() { timeout.min(Duration::from_nanos(LOOK_PAUSE.0)) } else { timeout };
        self.sources.wait(timeout)
    }

    /// Messages for the user since the last call, a sentence each.
    pub fn take_news(&mut self) -> Vec<String> {
        let mut news = std::mem::take(&mut self.news);
        // Processes that the mover has set aside, and why.
        news.extend(self.mover.iter().flat_map(Mover::news));
        news
    }

    /// Why the mover has failed, if it has.
    pub fn mover_failure(&self) -> Option<String> {
        self.mover.as_ref().and_then(Mover::failure)
    }

    /// The sources in words.
    pub fn sources(&self) -> String {
        self.sources.told(self.owners.told())
    }

    /// The counters of the hint-fault source, if it is open.
    pub fn source_stats(&self) -> Option<hintfault::Stats> {
        self.sources.hintfault()?.source.stats().ok()
    }

    /// The counters of each open source, with its row.
    pub fn counted(&self) -> Vec<(&'static Row, Counted)> {
        self.sources.counted()
    }

    /// Evidence delivered and lost by the other sources so far.
    pub fn other_rates(&self) -> Vec<Rate> {
        self.sources.others().filter_map(EvidenceSource::rate).collect()
    }

    /// What each open source has given and lost so far, by its name in the configuration.
    pub fn rates(&self) -> Vec<(&'static str, Rate)> {
        self.sources.rates()
    }

    /// Checks whether the sources still work: about once a second. Returns messages to report.
    pub fn check_sources(&mut self) -> Vec<String> {
        self.sources.iter_mut().filter_map(|source| source.check()).collect()
    }

    /// The counters of the reverse map, if there is one.
    pub fn reverse_stats(&self) -> Option<reverse::Stats> {
        self.owners.stats()
    }

    /// The cost of the sources, with `pages_moved` pages moved so far.
    pub fn overhead(&self, pages_moved: u64) -> Overhead {
        self.sources.overhead(cpu_time(), pages_moved)
    }

    /// The mover's counters.
    pub fn mover_stats(&self) -> Option<MoverStats> {
        self.mover.as_ref().map(Mover::stats)
    }

    /// Processes in scope whose faults are not seen, because the kernel's list of processes is
    /// full.
    pub fn unlisted(&self) -> u64 {
        self.managed.unlisted
    }

    /// Ends the demoter, waiting at most `bound` for its current command; the next poll delivers
    /// the results of its last demands.
    pub fn end_demoter(&mut self, bound: Duration) {
        if let Some(mut demoter) = self.demoter.take() {
            self.undone.extend(demoter.shutdown(bound).0);
            self.demoter_stats = Some(demoter.stats());
        }
    }

    /// Ends the mover, waiting at most `bound` for its current batch; returns the last outcomes.
    pub fn close(mut self, bound: Duration) -> Vec<BatchOutcome> {
        let mut outcomes = std::mem::take(&mut self.returned);
        if let Some(mover) = self.mover.take() {
            outcomes.extend(mover.shutdown(bound).outcomes);
        }
        outcomes
    }
}

/// What scopes with a floor or a cap hold, which can be read.
fn holdings(root: &Root, config: &Config, watcher: &Watcher) -> Result<Holdings, MachineError> {
    let holdings = Holdings::new(root, &config.scope)?;
    if let Some(error) = holdings.read(&watcher.discovered().topology, now()).find_map(Result::err) {
        return Err(error.into());
    }
    Ok(holdings)
}
