//! The order of a step, the same for every machine.
//!
//! 1. Poll the machine. Unless a tick is due, that is all.
//! 2. Read the nodes if a candidate waits, a demand is due, or the last reading is too old.
//! 3. Pass on the engine's wishes.
//! 4. Tick, and submit the batches.
//! 5. If the nodes were read in this step, demote. With an older reading, pages demoted since would
//!    be asked for again.
//!
//! A tick is due one tick's length after the last one, or [`IDLE_TICKS`] of them while no candidate
//! waits and no batch is under way: it then has nothing to decide.

use crate::access::Evidence;
use crate::config::{Config, Difference};
use crate::engine::{Engine, ReloadError};
use crate::machine::{Machine, Wishes};
use crate::topology::NodeState;
use crate::units::Nanos;

/// Maximum age of the nodes' state while no candidate waits: reading it takes longer than the rest
/// of a tick.
pub const NODES_EVERY: Nanos = Nanos::from_s(1);
/// Time between ticks, in ticks, while there is nothing to decide.
pub const IDLE_TICKS: u64 = 5;

/// Steps a machine and its engine; see the module's description.
#[derive(Debug)]
pub struct Driver {
    engine: Engine,
    tick: Nanos,
    /// Length of a tick, in ordinary ticks, while there is nothing to decide.
    idle_ticks: u64,
    nodes_every: Nanos,
    /// The latest tick; none before the first.
    ticked: Option<Nanos>,
    /// At the latest poll the machine had more to look for than it had time for.
    looking: bool,
    nodes: Vec<NodeState>,
    nodes_read: Option<Nanos>,
}

impl Driver {
    /// A driver whose first step ticks.
    pub fn new(engine: Engine, config: &Config) -> Driver {
        let tick = Nanos::from_ms(config.engine.tick_ms);
        Driver {
            engine,
            tick,
            idle_ticks: IDLE_TICKS,
            nodes_every: NODES_EVERY,
            ticked: None,
            looking: false,
            nodes: Vec::new(),
            nodes_read: None,
        }
    }

    /// The same, for a machine on which reading the nodes and ticking cost no time: it reads the
    /// nodes for every tick, and ticks as often while idle.
    pub fn sparing_nothing(self) -> Driver {
        Driver { idle_ticks: 1, nodes_every: Nanos(0), ..self }
    }

    /// Performs a step at `now`; returns whether the engine ticked. A clock that goes back does not
    /// stop the loop: a tick is due at once.
    ///
    /// # Errors
    /// The machine's. Batches are submitted by steps that succeed, so that none is lost.
    pub fn step<M: Machine + ?Sized>(&mut self, now: Nanos, machine: &mut M) -> Result<bool, M::Error> {
        let due = is_over(now, self.ticked, self.interval());
        self.poll(now, due, machine)?;
        if !due {
            return Ok(false);
        }
        self.ticked = Some(now);
        let fresh = self.needs_nodes(now);
        if fresh {
            let engine = &mut self.engine;
            let nodes = machine.nodes(&mut |evidence| engine.observe(evidence))?;
            self.nodes.clear();
            self.nodes.extend_from_slice(nodes);
            self.nodes_read = Some(now);
        }
        machine.wish(Wishes { scans: self.engine.pace(now, &self.nodes, machine.pacing()) });
        machine.submit(self.engine.tick(now, &self.nodes));
        if fresh && machine.demotes() {
            machine.demote(self.engine.demote(now, &self.nodes));
        }
        Ok(true)
    }

    /// Polls without a tick: for a machine that is about to end.
    ///
    /// # Errors
    /// The machine's.
    pub fn drain<M: Machine + ?Sized>(&mut self, now: Nanos, machine: &mut M) -> Result<(), M::Error> {
        self.poll(now, false, machine)
    }

    /// Takes evidence between steps: for a machine that cannot keep it until the next poll.
    pub fn observe(&mut self, evidence: Evidence<'_>) {
        self.engine.observe(evidence);
    }

    /// Uses another configuration from now on; returns what differs.
    ///
    /// # Errors
    /// As [`Engine::reload`]; nothing has changed.
    pub fn reload(&mut self, config: &Config) -> Result<Vec<Difference>, ReloadError> {
        let changes = self.engine.reload(config)?;
        self.tick = Nanos::from_ms(config.engine.tick_ms);
        Ok(changes)
    }

    /// When the next tick is due. A step before that only polls.
    pub fn next_due(&self) -> Nanos {
        self.ticked.map_or(Nanos(0), |ticked| ticked.plus(self.interval()))
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The state of the nodes as last read.
    pub fn nodes(&self) -> &[NodeState] {
        &self.nodes
    }

    fn poll<M: Machine + ?Sized>(&mut self, now: Nanos, due: bool, machine: &mut M) -> Result<(), M::Error> {
        let engine = &mut self.engine;
        machine.poll(now, due, &mut |evidence| engine.observe(evidence))?;
        self.looking = machine.is_looking();
        Ok(())
    }

    fn interval(&self) -> Nanos {
        let idle = self.engine.queue().is_empty() && self.engine.moves_in_flight() == 0 && !self.looking;
        if idle { Nanos(self.tick.0.saturating_mul(self.idle_ticks)) } else { self.tick }
    }

    fn needs_nodes(&self, now: Nanos) -> bool {
        !self.engine.queue().is_empty()
            || self.engine.demotion().is_due(now)
            || is_over(now, self.nodes_read, self.nodes_every)
    }
}

/// Whether `span` has passed since a time, or the clock has gone back behind it.
fn is_over(now: Nanos, since: Option<Nanos>, span: Nanos) -> bool {
    since.is_none_or(|since| now < since || now.since(since) >= span)
}
