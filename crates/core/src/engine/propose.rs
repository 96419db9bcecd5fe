//! What the rule proposes: through the door into the queue, or refused.

use crate::admission::Admitted;
use crate::candidate::Candidate;
use crate::engine::{Engine, LOOK_AHEAD};
use crate::journal::{Decision, What};
use crate::moves::Direction;
use crate::payoff::Room;
use crate::queue::Offer;
use crate::refusal::RefusalReason;
use crate::units::{Nanos, ScopeId};

impl Engine {
    /// Takes the rule's proposals to the door.
    pub(super) fn accept_proposals(&mut self) {
        let dropped = self.out.dropped();
        self.counters.proposed += self.out.items().len() as u64 + (dropped - self.out_dropped);
        self.counters.dropped += dropped - self.out_dropped;
        self.out_dropped = dropped;
        for i in 0..self.out.items().len() {
            if let Some(page) = self.out.items().get(i + LOOK_AHEAD).and_then(|later| later.page) {
                self.admission.prefetch(page);
                self.queue.prefetch(page);
            }
            let mut candidate = self.out.items()[i];
            // The configuration limits the expiry that a rule asks for.
            let start = self.now.unwrap_or(candidate.time);
            candidate.expires = candidate.expires.min(start.plus(self.life));
            match self.door(&candidate) {
                Ok(admitted) => self.enqueue(&admitted, None),
                Err(reason) => self.refuse(&candidate, reason),
            }
        }
        drop(self.out.drain());
    }

    /// Whether a candidate may wait.
    fn door(&mut self, candidate: &Candidate) -> Result<Admitted, RefusalReason> {
        let now = self.clock();
        let admitted = self.admission.door(&self.topology, candidate, now)?;
        let room = self.room_of(admitted.scope);
        match &mut self.payoff {
            Some(payoff) => Ok(admitted.rated(payoff.door(candidate, room, now)?)),
            None => Ok(admitted),
        }
    }

    /// What the room costs into which pages of a scope are promoted.
    pub(super) fn room_of(&self, scope: ScopeId) -> Room {
        if self.admission.lacks_share(scope, self.clock()) { Room::Owed } else { Room::Priced }
    }

    /// Queues a candidate; one that failed before is not tried until `not_before`.
    pub(super) fn enqueue(&mut self, admitted: &Admitted, not_before: Option<Nanos>) {
        let candidate = &admitted.candidate;
        match self.queue.offer(admitted, not_before) {
            Offer::Merged => self.counters.merged += 1,
            Offer::Full => self.refuse(candidate, RefusalReason::QueueFull),
            offer @ (Offer::Queued | Offer::Displaced(_)) => {
                if let Offer::Displaced(other) = offer {
                    self.counters.queue_evicted += 1;
                    self.note(&other, What::Evicted);
                }
                // A retry was a candidate before.
                if admitted.tries == 0 {
                    if candidate.direction == Direction::Promote {
                        self.counters.pgpromote_candidate += admitted.pages();
                    }
                    self.note(admitted, What::Proposed);
                }
            }
        }
    }

    pub(super) fn refuse(&mut self, candidate: &Candidate, reason: RefusalReason) {
        self.counters.refused.add(reason, 1);
        if let Some(page) = candidate.page
            && self.admission.is_news(page, reason)
        {
            self.journal.write(Decision::alone(page, candidate, self.clock(), What::Refused { reason }));
        }
    }
}
