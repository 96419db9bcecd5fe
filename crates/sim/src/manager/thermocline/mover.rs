//! The mover: batches one by one, each of which takes simulated time.

use std::collections::VecDeque;

use thermocline_core::access::Evidence;
use thermocline_core::limit::Reserve;
use thermocline_core::moves::{Batch, BatchOutcome, Move, Outcome};
use thermocline_core::units::Nanos;

use crate::machine::Costs;
use crate::system::{NEVER, System, Way};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Mover {
    /// Its batches; the first one is being processed.
    batches: VecDeque<Batch>,
    /// When the first one is done.
    pub(super) done: Nanos,
    page_ns: f64,
    batch_ns: f64,
    /// The memory that moves leave free on their target.
    reserve: Reserve,
}

impl Mover {
    pub(super) fn new(cost: &Costs, reserve: Reserve) -> Mover {
        Mover {
            batches: VecDeque::new(),
            done: NEVER,
            page_ns: cost.mover_page_ns,
            batch_ns: cost.mover_batch_ns,
            reserve,
        }
    }

    pub(super) fn submit(&mut self, batches: Vec<Batch>, now: Nanos) {
        let idle = self.batches.is_empty();
        self.batches.extend(batches);
        if idle {
            self.start_next(now);
        }
    }

    /// Completes the first batch if it is due.
    pub(super) fn run(&mut self, system: &mut System, observe: &mut dyn FnMut(Evidence<'_>)) {
        if system.now < self.done {
            return;
        }
        let Some(batch) = self.batches.pop_front() else { return };
        system.aside_ns += self.cost_ns(&batch);
        let outcomes = batch.moves.iter().map(|m| carry_out(system, self.reserve, &batch, m)).collect();
        observe(Evidence::Outcome(&BatchOutcome { id: batch.id, time: system.now, outcomes }));
        self.start_next(system.now);
    }

    fn start_next(&mut self, now: Nanos) {
        self.done = self.batches.front().map_or(NEVER, |batch| now.plus(Nanos(self.cost_ns(batch) as u64)));
    }

    fn cost_ns(&self, batch: &Batch) -> f64 {
        self.batch_ns + self.page_ns * batch.pages() as f64
    }
}

/// The outcome of one move.
fn carry_out(system: &mut System, reserve: Reserve, batch: &Batch, wanted: &Move) -> Outcome {
    let Some(page) = system.page_at(wanted.page) else { return Outcome::Gone };
    let (Some(node), Some(to)) = (system.memory.node(page), system.machine.index(batch.target.0)) else {
        return Outcome::Gone;
    };
    if node == to {
        return Outcome::AlreadyThere;
    }
    if system.machine.nodes[usize::from(node)].id != wanted.from {
        return Outcome::OtherNode;
    }
    // The engine left the target's reserve free when it issued the move; another allocation may
    // have used it since.
    if system.memory.free(to) <= reserve.floor(&system.node_state(to)) {
        return Outcome::NodeFull;
    }
    match system.move_page(page, to) {
        Way::Up => system.counters.engine_promoted += 1,
        Way::Down => system.counters.engine_demoted += 1,
        Way::Within => {}
    }
    Outcome::Moved
}
