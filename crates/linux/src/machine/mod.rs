//! The live machine behind the engine: evidence in, batches out, nothing in the loop blocks.
//!
//! `poll` delivers what happened, `submit` hands batches to the mover's thread.

mod clock;
mod mappings;
mod members;

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_core::access::{Access, Evidence};
use thermocline_core::config::Config;
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Outcome};
use thermocline_core::rule;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, PAGES_PER_MIB, VirtPage};

use crate::mover::{Mover, MoverConfig, MoverError, MoverStats, Refused};
use crate::node_state::NodeStateReader;
use crate::root::{KernelFileError, Root};
use crate::scope::ScopeError;
use crate::source::hintfault::{Event, HintFaultSource, OpenError, Options, Stats};
use crate::topology::{DiscoverError, Watcher};

use mappings::{Maps, View};
use members::Managed;

pub use clock::{cpu_time, now};

/// Accesses handed to the engine at once.
const BATCH_ACCESSES: usize = 1024;
/// Longest time that one poll goes on reading, so that the rest is not kept waiting when faults come as fast as they are read.
const POLL_MAX: Nanos = Nanos::from_ms(50);
/// Time between two looks at processes and at the extent of the nodes' memory.
const LOOK_EVERY: Nanos = Nanos::from_s(1);
/// Time between two readings of tiers, CPUs and distances, which hardly ever change and are in some dozen files a node.
const TOPOLOGY_EVERY: Nanos = Nanos::from_s(30);

/// Why the live machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Hint faults cannot be watched.
    #[error("hint faults cannot be watched: {0}")]
    Source(#[from] OpenError),
    /// Pages cannot be moved.
    #[error("pages cannot be moved: {0}")]
    Mover(#[from] MoverError),
    /// A file of the kernel cannot be read.
    #[error(transparent)]
    File(#[from] KernelFileError),
    /// A scope cannot be used.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// The topology cannot be read.
    #[error(transparent)]
    Topology(#[from] DiscoverError),
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
    source: HintFaultSource,
    mover: Option<Mover>,
    nodes: NodeStateReader,
    managed: Managed,
    watcher: Watcher,
    maps: Maps,
    looked: Option<Nanos>,
    topology_read: Nanos,
    /// Pages of each batch that the mover has, to tell the source of those that moved.
    moving: BTreeMap<BatchId, Vec<VirtPage>>,
    accesses: Vec<Access>,
    /// Outcomes of batches that never reached the mover.
    returned: Vec<BatchOutcome>,
}

impl LiveMachine {
    /// Attaches to the machine's evidence and, if pages are to move, starts the mover.
    ///
    /// # Errors
    /// As [`MachineError`] tells them apart; nothing stays attached.
    pub fn open(
        root: &Root,
        config: &Config,
        topology: &Topology,
        moving: Moving,
    ) -> Result<LiveMachine, MachineError> {
        let mut nodes = NodeStateReader::new(root);
        nodes.read()?;
        let watcher = Watcher::new(root, &config.tiers, nodes.zones())?;
        let (filter, managed) = Managed::new(root, &config.scope)?;
        let mover = match moving {
            Moving::Off => None,
            Moving::Live => {
                let mut states = NodeStateReader::new(root);
                let settings = MoverConfig {
                    shared_pages: config.admission.shared_pages,
                    free_goal_pages: config.admission.free_goal_mib * PAGES_PER_MIB,
                    capacity: config.admission.batches_in_flight as usize,
                    root: root.clone(),
                    ..MoverConfig::default()
                };
                Some(Mover::start(settings, move |node| {
                    states.read().ok()?.iter().find(|s| s.node == node).copied()
                })?)
            }
        };
        let mut options = Options {
            measure_run_time: true,
            ..Options::from_config(&config.source.hintfault, cpu_nodes(topology))
        };
        if let Some(restamp) = rule::build(config).restamp() {
            options.stamps.restamp = restamp;
        }
        let source = HintFaultSource::open(options, &filter)?;
        Managed::leave_out_ourselves(&source);
        Ok(LiveMachine {
            source,
            mover,
            nodes,
            managed,
            watcher,
            maps: Maps::new(root),
            looked: None,
            topology_read: now(),
            moving: BTreeMap::new(),
            accesses: Vec::with_capacity(BATCH_ACCESSES),
            returned: Vec::new(),
        })
    }

    /// Delivers everything that happened since the last call; never blocks.
    pub fn poll(&mut self, mut observe: impl FnMut(Evidence<'_>)) {
        let mut ended = Vec::new();
        let start = now();
        loop {
            let accesses = &mut self.accesses;
            let read = self.source.poll(BATCH_ACCESSES, |event| match event {
                Event::Fault(fault) => accesses.push(fault.access()),
                // An exec replaces the address space: to the engine that is a process gone and a new one come.
                Event::Exit(pid) | Event::Exec(pid) => ended.push(pid),
                Event::Stamp(_) => {}
            });
            if !self.accesses.is_empty() {
                let view = View { source: &self.source, maps: &self.maps };
                observe(Evidence::Accesses { batch: &self.accesses, mappings: &view });
                self.accesses.clear();
            }
            for pid in ended.drain(..) {
                observe(Evidence::Exit { pid });
            }
            if read < BATCH_ACCESSES || now().since(start) >= POLL_MAX {
                break;
            }
        }
        for outcome in self.returned.drain(..) {
            observe(Evidence::Outcome(&outcome));
        }
        for outcome in self.mover.iter_mut().flat_map(Mover::outcomes) {
            let pages = self.moving.remove(&outcome.id).unwrap_or_default();
            for (page, _) in pages.into_iter().zip(&outcome.outcomes).filter(|(_, o)| **o == Outcome::Moved) {
                self.source.page_moved(page);
            }
            observe(Evidence::Outcome(&outcome));
        }
    }

    /// Looks for processes that entered or left a scope and for memory that came or went, once a second, and for other
    /// changes of the topology, twice a minute. Returns the new topology where it changed.
    ///
    /// # Errors
    /// A file of the kernel cannot be read; what was known stays.
    pub fn look(&mut self, mut observe: impl FnMut(Evidence<'_>)) -> Result<Option<Topology>, MachineError> {
        let at = now();
        if self.looked.is_some_and(|looked| at.since(looked) < LOOK_EVERY) {
            return Ok(None);
        }
        self.looked = Some(at);
        self.managed.look(&self.source, &mut observe)?;
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
        Ok(change.topology.then(|| self.watcher.discovered().topology.clone()))
    }

    /// The state of every node with memory.
    ///
    /// # Errors
    /// zoneinfo is absent or cannot be read.
    pub fn node_states(&mut self) -> Result<&[NodeState], KernelFileError> {
        self.nodes.read()
    }

    /// Nodes on which the kernel promotes every page at its first fault, because they have so much free memory.
    pub fn free_space_promotion(&self) -> Vec<NodeId> {
        let zones = self.nodes.zones();
        let mut nodes: Vec<NodeId> = zones.iter().map(|z| z.node).collect();
        nodes.dedup();
        nodes.retain(|&node| crate::zoneinfo::free_space_promotion(zones, node));
        nodes
    }

    /// Hands batches to the mover and returns at once; what it cannot take comes back as not tried with the next poll.
    pub fn submit(&mut self, batches: Vec<Batch>) {
        for batch in batches {
            let refused = match &mut self.mover {
                None => Some((batch, Outcome::DryRun)),
                Some(mover) => {
                    let (id, pages) = (batch.id, batch.moves.iter().map(|m| m.page).collect());
                    match mover.submit(batch) {
                        Ok(()) => {
                            self.moving.insert(id, pages);
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

    /// Waits until there is enough evidence to be worth a poll, at most `timeout`.
    ///
    /// # Errors
    /// What poll(2) returns, EINTR excepted.
    pub fn wait(&self, timeout: Duration) -> std::io::Result<bool> {
        self.source.wait(timeout)
    }

    /// Why the mover has failed, if it has.
    pub fn mover_failure(&self) -> Option<String> {
        self.mover.as_ref().and_then(Mover::failure)
    }

    /// How far apart the kernel's steps are in scanning the process with the most faults, where known.
    pub fn step_interval(&self) -> Option<Nanos> {
        self.source.step_interval()
    }

    /// What the source counted.
    pub fn source_stats(&self) -> Option<Stats> {
        self.source.stats().ok()
    }

    /// What the mover counted.
    pub fn mover_stats(&self) -> Option<MoverStats> {
        self.mover.as_ref().map(Mover::stats)
    }

    /// Processes in scope whose faults are not seen, because the kernel's list of processes is full.
    pub fn unlisted(&self) -> u64 {
        self.managed.unlisted
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

/// The node of each CPU, by CPU number.
fn cpu_nodes(topology: &Topology) -> Vec<NodeId> {
    let last = topology.nodes.iter().flat_map(|n| n.cpus.iter()).max().map_or(0, |&c| c as usize + 1);
    // A CPU that sysfs does not list belongs to no node with memory; 0 is what the kernel assumes for it.
    let mut nodes = vec![NodeId(0); last];
    for node in &topology.nodes {
        for &cpu in &node.cpus {
            nodes[cpu as usize] = node.id;
        }
    }
    nodes
}
