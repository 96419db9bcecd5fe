//! The live machine behind the engine: evidence in, batches out, nothing in the loop blocks.
//!
//! `poll` delivers what happened, `submit` hands batches to the mover's thread.

mod feeler;
mod mappings;
mod members;
mod owners;
mod sources;
mod stock;

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_core::access::{Access, Evidence, RegionPage};
use thermocline_core::config::Config;
use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::limit::Reserve;
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Move, Outcome};
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, PAGES_PER_MIB, PageSize};

use crate::actuator::Actuator;
use crate::demoter::{Demoter, DemoterStats};
use crate::kernel_moves::KernelMoves;
use crate::lists::nodes_text;
use crate::mover::closed::closed;
use crate::mover::{Mover, MoverConfig, MoverError, MoverStats, Refused};
use crate::node_state::NodeStateReader;
use crate::process;
use crate::reverse::{self, ReverseError};
use crate::root::{KernelFileError, Root};
use crate::scope::{Holdings, ScopeError, Scopes};
use crate::source::chmu::{self, ChmuSource};
use crate::source::damon::{self, DamonSource};
use crate::source::hintfault::stamps::Steps;
use crate::source::{hintfault, hwsample};
use crate::topology::{DiscoverError, Watcher};
use crate::vmstat::Vmstat;

use feeler::Feeler;
use mappings::{Maps, View};
use members::Managed;
use owners::Owners;
use sources::{Ended, Sources};
use stock::Stock;

pub use crate::clock::{cpu_time, now};
pub use sources::Overhead;

/// Accesses handed to the engine at once.
const BATCH_ACCESSES: usize = 1024;
/// Longest time that one poll goes on reading, so that the rest is not kept waiting when faults come as fast as they are read.
const POLL_MAX: Nanos = Nanos::from_ms(50);
/// Time between two looks at processes and at the extent of the nodes' memory.
const LOOK_EVERY: Nanos = Nanos::from_s(1);
/// Time for a look at processes, of which another one goes on with the rest after a pause.
const LOOK_MAX: Nanos = Nanos::from_ms(20);
const LOOK_PAUSE: Nanos = Nanos::from_ms(30);
/// Time between two readings of tiers, CPUs and distances, which hardly ever change and are in some dozen files a node.
const TOPOLOGY_EVERY: Nanos = Nanos::from_s(30);

/// Why the live machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Hint faults cannot be watched.
    #[error("hint faults cannot be watched: {0}")]
    HintFault(#[from] hintfault::OpenError),
    /// Accesses cannot be sampled.
    #[error("accesses cannot be sampled: {0}")]
    HwSample(#[from] hwsample::OpenError),
    /// No device lists what is hot.
    #[error("hot lists cannot be read: {0}")]
    Chmu(#[from] chmu::OpenError),
    /// Nobody can tell whose the frames are that samples, regions or hot lists name.
    #[error("frames cannot be put to processes: {0}")]
    Reverse(#[from] ReverseError),
    /// All sources are switched off.
    #[error(
        "no source is switched on: set source.hintfault.enabled, source.hwsample.enabled, source.damon.enabled or source.chmu.enabled"
    )]
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
    /// There is no thread to be had.
    #[error("the thread that looks what scopes hold cannot be started: {0}")]
    Thread(std::io::Error),
}

/// What `submit` does with batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// Move the pages.
    Live,
    /// Move nothing; every move ends as [`Outcome::DryRun`].
    Off,
}

/// The machine under us.
#[derive(Debug)]
pub struct LiveMachine {
    sources: Sources,
    owners: Owners,
    mover: Option<Mover>,
    demoter: Option<Demoter>,
    /// What the demoter had counted when it ended.
    demoter_stats: Option<DemoterStats>,
    /// Demands that never reached the demoter.
    undone: Vec<Demoted>,
    root: Root,
    /// The kernel's counters at the start.
    vmstat: Vmstat,
    kernel_moves: KernelMoves,
    nodes: NodeStateReader,
    managed: Managed,
    stock: Stock,
    feeler: Feeler,
    watcher: Watcher,
    maps: Maps,
    looked: Option<Nanos>,
    /// When a look at processes was last left.
    left_looking: Nanos,
    topology_read: Nanos,
    /// The moves of each batch that the mover has, to tell source and reverse map what came of them.
    moving: BTreeMap<BatchId, Vec<Move>>,
    accesses: Vec<Access>,
    region_pages: Vec<RegionPage>,
    /// Outcomes of batches that never reached the mover.
    returned: Vec<BatchOutcome>,
}

impl LiveMachine {
    /// Attaches to the machine's evidence and, if pages are to move, starts the mover. `damon` is open already where it is wanted, because its kdamonds are
    /// settings of the kernel.
    ///
    /// # Errors
    /// As [`MachineError`] tells them apart; nothing stays attached.
    pub fn open(
        root: &Root,
        config: &Config,
        moving: Moving,
        damon: Option<DamonSource>,
    ) -> Result<LiveMachine, MachineError> {
        let mut nodes = NodeStateReader::new(root);
        nodes.read()?;
        let watcher = Watcher::new(root, &config.tiers, nodes.zones())?;
        let (filter, mut managed) = Managed::new(root, &config.scope)?;
        let holdings = Holdings::new(root, &config.scope)?;
        if let Some(error) = holdings.read(&watcher.discovered().topology, now()).find_map(Result::err) {
            return Err(error.into());
        }
        let feeler = Feeler::new(root, config, moving)?;
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
        let (topology, frames) = (&watcher.discovered().topology, watcher.pfns());
        let sources = Sources::open(root, config, damon, topology, frames, &filter, now())?;
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
            stock: Stock::new(holdings)?,
            feeler,
            watcher,
            maps: Maps::new(root),
            looked: None,
            left_looking: Nanos(0),
            topology_read: now(),
            moving: BTreeMap::new(),
            accesses: Vec::with_capacity(BATCH_ACCESSES),
            region_pages: Vec::new(),
            returned: Vec::new(),
        })
    }

    /// Demotes from now on, and goes on counting where another demoter has ended.
    pub fn set_demoter(&mut self, mut demoter: Demoter) {
        demoter.count_on(self.demoter_stats.take().unwrap_or_default());
        self.demoter = Some(demoter);
    }

    /// Delivers everything that happened since the last call; never blocks.
    pub fn poll(&mut self, mut observe: impl FnMut(Evidence<'_>)) {
        let mut ended = Vec::new();
        let start = now();
        loop {
            let (sources, managed) = (&mut self.sources, &self.managed);
            let mut more = sources.read_hintfault(BATCH_ACCESSES, start, &mut self.accesses, &mut ended);
            more |= sources.read_hwsample(BATCH_ACCESSES, start, managed, &mut self.accesses, &mut ended);
            self.owners.resolve(&mut self.accesses, &self.managed);
            if let Some(chmu) = &mut self.sources.chmu {
                let known = (self.watcher.pfns(), &self.watcher.discovered().topology);
                let (owners, accesses) = (&mut self.owners, &mut self.accesses);
                let looked = owners.read_counted(chmu, BATCH_ACCESSES, start, known, &self.managed, accesses);
                more |= looked >= BATCH_ACCESSES;
            }
            if !self.accesses.is_empty() {
                let view = View { source: self.sources.hintfault.as_ref(), maps: &self.maps };
                observe(Evidence::Accesses { batch: &self.accesses, mappings: &view });
                self.accesses.clear();
            }
            for ended in ended.drain(..) {
                match ended {
                    Ended::Exec(pid) => self.managed.exec(pid, &mut observe),
                    Ended::Exit(pid) => self.managed.exit(pid, &mut observe),
                }
            }
            if !more || now().since(start) >= POLL_MAX {
                break;
            }
        }
        self.tell_regions(start, &mut observe);
        for outcome in self.returned.drain(..) {
            observe(Evidence::Outcome(&outcome));
            self.stock.outdate();
        }
        for outcome in self.mover.iter_mut().flat_map(Mover::outcomes) {
            let moves = self.moving.remove(&outcome.id).unwrap_or_default();
            for (done, &ended) in moves.iter().zip(&outcome.outcomes) {
                if let Some(source) = self.sources.hintfault.as_mut().filter(|_| ended == Outcome::Moved) {
                    source.page_moved(done.page);
                }
                self.owners.ended(done, ended);
            }
            observe(Evidence::Outcome(&outcome));
            self.stock.outdate();
        }
        for done in self.undone.drain(..).chain(self.demoter.iter_mut().flat_map(Demoter::outcomes)) {
            observe(Evidence::Demoted(&done));
            self.stock.outdate();
        }
        if self.managed.is_busy() && now().since(self.left_looking) >= LOOK_PAUSE {
            // Where processes cannot be listed the next look that begins anew says so.
            let _ = self.look_at_processes(false, observe);
        }
    }

    fn tell_regions(&mut self, start: Nanos, observe: &mut impl FnMut(Evidence<'_>)) {
        let Some(damon) = &mut self.sources.damon else { return };
        let topology = &self.watcher.discovered().topology;
        damon.read(topology, |snapshot| observe(Evidence::Regions(snapshot)));
        if damon.names_frames_alone() {
            self.owners.look_up(damon, start, &self.managed, &mut self.region_pages);
        } else {
            damon.take_pages(start, self.watcher.pfns(), topology, &mut self.region_pages);
        }
        if !self.region_pages.is_empty() {
            observe(Evidence::RegionPages(&self.region_pages));
            self.region_pages.clear();
        }
    }

    /// Whether a look at processes is to be gone on with soon.
    pub fn is_looking(&self) -> bool {
        self.managed.is_busy() || self.sources.damon.as_ref().is_some_and(DamonSource::is_preparing)
    }

    /// Looks for processes that entered or left a scope and for memory that came or went, once a second, and for other
    /// changes of the topology, twice a minute. Where there are many processes, a look goes on with
    /// the next [`poll`](LiveMachine::poll). Returns the new topology where it changed.
    ///
    /// # Errors
    /// A file of the kernel cannot be read; what was known stays.
    pub fn look(&mut self, mut observe: impl FnMut(Evidence<'_>)) -> Result<Option<Topology>, MachineError> {
        let at = now();
        if self.looked.is_some_and(|looked| at.since(looked) < LOOK_EVERY) {
            return Ok(None);
        }
        self.look_at_processes(true, &mut observe)?;
        self.looked = Some(at);
        self.owners.look(at, &self.managed);
        let zones = self.nodes.zones();
        if at.since(self.topology_read) < TOPOLOGY_EVERY && !self.watcher.extents_differ(zones) {
            return Ok(None);
        }
        self.topology_read = at;
        let change = self.watcher.look(zones)?;
        for range in &change.offline {
            observe(Evidence::MemoryOffline { start: range.start, end: range.end });
        }
        for range in &change.online {
            observe(Evidence::MemoryOnline { node: range.node, start: range.start, end: range.end });
        }
        if !change.is_empty() {
            let (frames, topology) = (self.watcher.pfns(), &self.watcher.discovered().topology);
            self.owners.set_machine(&change.offline, frames, topology);
            self.sources.set_machine(frames, topology)?;
        }
        Ok(change.topology.then(|| self.watcher.discovered().topology.clone()))
    }

    fn look_at_processes(
        &mut self,
        anew: bool,
        observe: impl FnMut(Evidence<'_>),
    ) -> Result<(), MachineError> {
        let at = now();
        let go_on = || now().since(at) < LOOK_MAX;
        let looked = self.managed.look(anew, go_on, self.sources.hintfault.as_ref(), observe);
        self.left_looking = now();
        looked
    }

    /// Has DAMON watch processes that have come, where it watches processes, once a second. Returns what there is to say of it.
    pub fn follow_processes(&mut self, actuator: &mut Actuator) -> Option<String> {
        self.sources.damon.as_mut()?.follow(now(), self.managed.members(), actuator)
    }

    /// The state of every node with memory.
    ///
    /// # Errors
    /// zoneinfo is absent or cannot be read.
    pub fn node_states(&mut self) -> Result<&[NodeState], KernelFileError> {
        self.nodes.read()
    }

    /// Tells what scopes with a floor or a cap hold of the top tier; to be called after [`poll`](LiveMachine::poll), so that it is newer than
    /// every outcome that was told. Where the kernel takes long to add that up it is told later.
    /// Returns why it cannot be read, once.
    pub fn tell_holdings(&mut self, observe: impl FnMut(Evidence<'_>)) -> Option<String> {
        self.stock.tell(&self.watcher.discovered().topology, observe)
    }

    /// Tells, when it is time, how long tasks of the scopes have waited for memory. Returns why that cannot be read, once.
    pub fn tell_pressures(&mut self, observe: impl FnMut(Evidence<'_>)) -> Option<String> {
        self.feeler.tell(now(), observe)
    }

    /// Nodes on which the kernel promotes every page at its first fault, because they have so much free memory.
    pub fn free_space_promotion(&self) -> Vec<NodeId> {
        let zones = self.nodes.zones();
        let mut nodes: Vec<NodeId> = zones.iter().map(|z| z.node).collect();
        nodes.dedup();
        nodes.retain(|&node| crate::zoneinfo::free_space_promotion(zones, node, PageSize::OF_ENGINE));
        nodes
    }

    /// Hands batches to the mover and returns at once; what it cannot take comes back as not tried with the next poll.
    pub fn submit(&mut self, batches: Vec<Batch>) {
        for batch in batches {
            let refused = match &mut self.mover {
                None => Some((batch, Outcome::DryRun)),
                Some(mover) => {
                    let (id, moves) = (batch.id, batch.moves.clone());
                    match mover.submit(batch) {
                        Ok(()) => {
                            self.moving.insert(id, moves);
                            None
                        }
                        Err(Refused::Full(batch) | Refused::Dead(batch)) => Some((batch, Outcome::NotTried)),
                    }
                }
            };
            if let Some((batch, outcome)) = refused {
                let outcomes = vec![outcome; batch.moves.len()];
                self.returned.push(BatchOutcome { id: batch.id, time: now(), outcomes });
            }
        }
    }

    /// Whether demands are carried out.
    pub fn demotes(&self) -> bool {
        self.demoter.is_some()
    }

    /// Hands demands to the demoter and returns at once.
    pub fn demote(&mut self, demands: Vec<Demand>) {
        for demand in demands {
            let undone = match &mut self.demoter {
                Some(demoter) => demoter.submit(demand),
                None => Some(demand.done(0, Nanos(0))),
            };
            self.undone.extend(undone);
        }
    }

    /// Demotes no more where the demoter has failed; returns why.
    pub fn end_failed_demoter(&mut self) -> Option<String> {
        let failure = self.demoter.as_ref()?.failure()?;
        self.end_demoter(Duration::ZERO);
        Some(failure)
    }

    /// What the demoter counted.
    pub fn demoter_stats(&self) -> Option<DemoterStats> {
        self.demoter.as_ref().map(Demoter::stats).or(self.demoter_stats)
    }

    /// What the kernel itself has moved since the start, without what it was told to demote; while a demand is under way, whose pages
    /// could not be told apart yet, what it had moved before that.
    pub fn kernel_moves(&mut self) -> KernelMoves {
        let settled = self.demoter.as_ref().is_none_or(Demoter::is_idle);
        if let Some(now) = Vmstat::read(&self.root).ok().filter(|_| settled) {
            let told = self.demoter_stats().map_or(0, |stats| stats.demoted_pages - stats.by_damon_pages);
            self.kernel_moves = KernelMoves::since(&now, &self.vmstat, told);
        }
        self.kernel_moves
    }

    /// Waits until there is enough evidence to be worth a poll, at most `timeout`.
    ///
    /// # Errors
    /// What poll(2) returns, EINTR excepted.
    pub fn wait(&self, timeout: Duration) -> std::io::Result<bool> {
        let timeout =
            if self.managed.is_busy() { timeout.min(Duration::from_nanos(LOOK_PAUSE.0)) } else { timeout };
        self.sources.wait(timeout)
    }

    /// Processes that the mover has set aside since the last call, and why.
    pub fn mover_news(&self) -> Vec<String> {
        self.mover.as_ref().map(Mover::news).unwrap_or_default()
    }

    /// Why the mover has failed, if it has.
    pub fn mover_failure(&self) -> Option<String> {
        self.mover.as_ref().and_then(Mover::failure)
    }

    /// How the kernel scans the process of which most memory was scanned, where known; with all memory that it has, for its steps pass over the
    /// top tier too.
    pub fn steps(&self) -> Option<Steps> {
        let steps = self.sources.hintfault.as_ref()?.steps()?;
        let stat = process::stat(&self.root, steps.pid).ok().flatten();
        Some(Steps { mib: stat.map_or(steps.mib, |stat| stat.rss_pages / PAGES_PER_MIB), ..steps })
    }

    /// The sources in words.
    pub fn sources(&self) -> String {
        self.sources.told(self.owners.told())
    }

    /// What the hint-fault source counted, where it is open.
    pub fn source_stats(&self) -> Option<hintfault::Stats> {
        self.sources.hintfault.as_ref()?.stats().ok()
    }

    /// What the sampler counted, where it is open.
    pub fn hwsample_stats(&self) -> Option<hwsample::Stats> {
        self.sources.hwsample.as_ref().map(|source| source.stats())
    }

    /// What was counted of DAMON's regions, where they are read.
    pub fn damon_stats(&self) -> Option<damon::Stats> {
        self.sources.damon.as_ref().map(DamonSource::stats)
    }

    /// What was counted of hot lists, where they are read.
    pub fn chmu_stats(&self) -> Option<chmu::Stats> {
        self.sources.chmu.as_ref().map(ChmuSource::stats)
    }

    /// How many kdamonds of ours run, where that are fewer than when last asked; to be asked once a second or so.
    pub fn fewer_kdamonds(&mut self) -> Option<usize> {
        self.sources.damon.as_mut()?.look()
    }

    /// What the reverse map counted, where there is one.
    pub fn reverse_stats(&self) -> Option<reverse::Stats> {
        self.owners.stats()
    }

    /// What the sources cost, with `pages_moved` pages moved by now.
    pub fn overhead(&self, pages_moved: u64) -> Overhead {
        self.sources.overhead(cpu_time(), pages_moved)
    }

    /// What the rule wants the sampling period to be, where it wants something.
    pub fn set_sample_period(&mut self, period: Option<u32>) {
        if let Some(sampler) = &mut self.sources.hwsample {
            sampler.set_wish(period);
        }
    }

    /// What the mover counted.
    pub fn mover_stats(&self) -> Option<MoverStats> {
        self.mover.as_ref().map(Mover::stats)
    }

    /// Processes in scope whose faults are not seen, because the kernel's list of processes is full.
    pub fn unlisted(&self) -> u64 {
        self.managed.unlisted
    }

    /// Ends the demoter, waiting at most `bound` for the command that it is at; the next poll delivers what came of its last demands.
    pub fn end_demoter(&mut self, bound: Duration) {
        if let Some(mut demoter) = self.demoter.take() {
            self.undone.extend(demoter.shutdown(bound).0);
            self.demoter_stats = Some(demoter.stats());
        }
    }

    /// Ends the mover, waiting at most `bound` for the batch it works on; returns the last outcomes.
    pub fn close(mut self, bound: Duration) -> Vec<BatchOutcome> {
        let mut outcomes = std::mem::take(&mut self.returned);
        if let Some(mover) = self.mover.take() {
            outcomes.extend(mover.shutdown(bound).outcomes);
        }
        outcomes
    }
}
