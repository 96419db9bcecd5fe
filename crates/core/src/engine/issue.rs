//! Issue at a tick: the lanes' best candidates in order of rank pass the gate into batches.

use std::collections::BinaryHeap;

use crate::admission::{Admitted, Gate, Stop};
use crate::engine::Engine;
use crate::engine::batches::Batches;
use crate::journal::{Decision, What};
use crate::moves::{Batch, Move};
use crate::queue::{LaneKey, Turn};
use crate::refusal::{Effect, RefusalReason};
use crate::topology::NodeState;
use crate::units::Nanos;

/// Maximum number of candidates that a tick examines and leaves waiting. It bounds a tick's work
/// when many are held individually (folios too large for the room left, more processes than
/// batches).
const HELD_LOOKS_MAX: u32 = 4096;

type Turns = BinaryHeap<(Turn, LaneKey)>;

impl Engine {
    pub(super) fn issue(&mut self, now: Nanos, nodes: &[NodeState]) -> Vec<Batch> {
        let mut gate = self.admission.gate(now, nodes, &self.wanting());
        let mut turns = self.open_lanes(&gate);
        let mut batches = Batches::new(self.admission.batches_free(), self.batch_pages);
        let mut looks = 0;
        while let Some((turn, key)) = turns.pop() {
            let Some(admitted) = self.queue.at(turn).copied() else { continue };
            let next = self.queue.after(key, turn);
            next.into_iter().for_each(|next| self.queue.prefetch_turn(next));
            if admitted.candidate.expires <= now {
                let held = self.queue.held_at(turn);
                self.queue.take(turn);
                self.expire(&admitted, held);
                turns.extend(next.map(|t| (t, key)));
                continue;
            }
            let others_wait = turns.iter().any(|(_, other)| other.scope != key.scope);
            match self.admit(&mut gate, &mut batches, turn, &admitted, others_wait) {
                Ok(()) => turns.extend(next.map(|t| (t, key))),
                Err(stop) => {
                    let reason = stop.reason();
                    if let Stop::Refused(_) = stop {
                        self.queue.take(turn);
                        self.refuse(&admitted.candidate, reason);
                    } else {
                        self.hold(turn, &admitted, reason);
                        looks += 1;
                    }
                    match stop {
                        Stop::Refused(_) => turns.extend(next.map(|t| (t, key))),
                        Stop::One(_) if looks < HELD_LOOKS_MAX => turns.extend(next.map(|t| (t, key))),
                        Stop::Lane(_) => self.queue.hold_lane(key, reason),
                        Stop::One(_) | Stop::Everybody(_) => {
                            self.queue.hold_lane(key, reason);
                            for (_, other) in turns.drain() {
                                self.queue.hold_lane(other, reason);
                            }
                        }
                    }
                }
            }
        }
        self.seal(batches, now)
    }

    /// The best turn of every lane whose route has room.
    fn open_lanes(&mut self, gate: &Gate) -> Turns {
        let mut turns = Turns::new();
        for (key, turn) in self.queue.heads() {
            match self.admission.open(gate, key.route) {
                Ok(()) => turns.push((turn, key)),
                Err(reason) => {
                    if let Some(admitted) = self.queue.at(turn).copied() {
                        self.hold(turn, &admitted, reason);
                    }
                    self.queue.hold_lane(key, reason);
                }
            }
        }
        turns
    }

    /// Takes a candidate through the gate and into a batch.
    fn admit(
        &mut self,
        gate: &mut Gate,
        batches: &mut Batches,
        turn: Turn,
        admitted: &Admitted,
        others_wait: bool,
    ) -> Result<(), Stop> {
        if batches.are_full() {
            return Err(Stop::Everybody(RefusalReason::BatchesInFlight));
        }
        if let Some(payoff) = &self.payoff {
            payoff.gate(&admitted.candidate, self.room_of(admitted.scope)).map_err(|reason| match reason
                .effect()
            {
                Effect::Refused => Stop::Refused(reason),
                Effect::Held => Stop::One(reason),
            })?;
        }
        let target = self.admission.pass(gate, admitted, others_wait)?;
        let candidate = &admitted.candidate;
        let m =
            Move { page: admitted.page, pfn: candidate.pfn, order: candidate.order, from: candidate.from };
        let open = batches
            .find(&mut self.next_batch, target, admitted.page.pid, candidate.direction, m.pages())
            .ok_or(Stop::One(RefusalReason::BatchesInFlight))?;
        self.admission.take(gate, open.batch.id, admitted, &m, target);
        self.queue.take(turn);
        self.counters.issued += 1;
        let what = What::Issued { batch: open.batch.id };
        self.journal.write(Decision::bound(admitted, self.now.unwrap_or_default(), target, what));
        open.push(m, *admitted);
        Ok(())
    }

    fn hold(&mut self, turn: Turn, admitted: &Admitted, reason: RefusalReason) {
        self.counters.held.add(reason, 1);
        if self.queue.hold(turn, reason) {
            self.note(admitted, What::Held { reason });
        }
    }

    fn seal(&mut self, batches: Batches, now: Nanos) -> Vec<Batch> {
        let mut out = Vec::new();
        for open in batches.into_open() {
            self.admission.issue(&open.batch, open.candidates, now);
            self.counters.batches += 1;
            out.push(open.batch);
        }
        out
    }
}
