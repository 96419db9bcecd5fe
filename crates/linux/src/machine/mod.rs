//! The live machine behind the engine: evidence in, batches out, nothing in the loop blocks.
//!
//! `poll` delivers what happened, `submit` hands batches to the mover's thread.

mod clock;

use std::time::Duration;

use thermocline_core::access::{Access, Evidence, NoMappings};
use thermocline_core::config::Config;
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::rule;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{NodeId, PAGES_PER_MIB, Pid};

use crate::mover::{Mover, MoverConfig, MoverError, MoverStats, Refused};
use crate::node_state::NodeStateReader;
use crate::root::{KernelFileError, Root};
use crate::source::hintfault::{Event, HintFaultSource, OpenError, Options, Scope, Stats};

pub use clock::{cpu_time, now};

/// Accesses handed to the engine at once.
const BATCH_ACCESSES: usize = 1024;
/// Records read from the ring in one poll at most: bounds the time of a poll when faults come faster than they are read.
const RECORDS_PER_POLL: usize = 1 << 20;

/// Why the live machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Hint faults cannot be watched.
    #[error("hint faults cannot be watched: {0}")]
    Source(#[from] OpenError),
    /// Pages cannot be moved.
    #[error("pages cannot be moved: {0}")]
    Mover(#[from] MoverError),
    /// The nodes' state cannot be read.
    #[error(transparent)]
    Nodes(#[from] KernelFileError),
}

/// What `submit` does with batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// Move the pages.
    Live,
    /// Move nothing; every move ends as [`Outcome::NotTried`].
    Off,
}

/// The machine under us.
#[derive(Debug)]
pub struct LiveMachine {
    source: HintFaultSource,
    mover: Option<Mover>,
    nodes: NodeStateReader,
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
        scope: &Scope,
        moving: Moving,
    ) -> Result<LiveMachine, MachineError> {
        let mut nodes = NodeStateReader::new(root);
        nodes.read()?;
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
        let source = HintFaultSource::open(options, scope)?;
        Ok(LiveMachine {
            source,
            mover,
            nodes,
            accesses: Vec::with_capacity(BATCH_ACCESSES),
            returned: Vec::new(),
        })
    }

    /// Delivers everything that happened since the last call; never blocks.
    pub fn poll(&mut self, mut observe: impl FnMut(Evidence<'_>)) {
        let accesses = &mut self.accesses;
        self.source.poll(RECORDS_PER_POLL, |event| match event {
            Event::Fault(fault) => {
                accesses.push(fault.access());
                if accesses.len() == BATCH_ACCESSES {
                    observe(Evidence::Accesses { batch: accesses, mappings: &NoMappings });
                    accesses.clear();
                }
            }
            // An exec replaces the address space: to the engine that is a process gone and a new one come.
            Event::Exit(pid) | Event::Exec(pid) => {
                observe(Evidence::Accesses { batch: accesses, mappings: &NoMappings });
                accesses.clear();
                observe(Evidence::Exit { pid });
            }
            Event::Stamp(_) => {}
        });
        if !accesses.is_empty() {
            observe(Evidence::Accesses { batch: accesses, mappings: &NoMappings });
            accesses.clear();
        }
        for outcome in self.returned.drain(..) {
            observe(Evidence::Outcome(&outcome));
        }
        for outcome in self.mover.iter_mut().flat_map(Mover::outcomes) {
            observe(Evidence::Outcome(&outcome));
        }
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
                None => Some(batch),
                Some(mover) => match mover.submit(batch) {
                    Ok(()) => None,
                    Err(Refused::Full(batch) | Refused::Dead(batch)) => Some(batch),
                },
            };
            if let Some(batch) = refused {
                let outcomes = vec![Outcome::NotTried; batch.moves.len()];
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

    /// What the source counted.
    pub fn source_stats(&self) -> Option<Stats> {
        self.source.stats().ok()
    }

    /// What the mover counted.
    pub fn mover_stats(&self) -> Option<MoverStats> {
        self.mover.as_ref().map(Mover::stats)
    }

    /// Lists a process for the kernel-side filter, or takes it off the list.
    pub fn include(&self, pid: Pid, listed: bool) -> bool {
        self.source.include(pid, listed).is_ok()
    }

    /// Excludes a process in the kernel-side filter, or takes the exclusion back.
    pub fn exclude(&self, pid: Pid, excluded: bool) -> bool {
        self.source.exclude(pid, excluded).is_ok()
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
