//! What came of a batch.

use crate::admission::{Flight, RefusalReason};
use crate::engine::Engine;
use crate::journal::{Decision, What};
use crate::moves::{BatchOutcome, Direction, Move, Outcome};
use crate::queue::Waiting;
use crate::units::Nanos;

impl Engine {
    /// Takes in how a batch ended.
    pub(super) fn settle(&mut self, outcome: &BatchOutcome) {
        let Some(flight) = self.admission.land(outcome.id) else {
            self.counters.outcomes_unknown += 1;
            return;
        };
        if outcome.outcomes.len() != flight.candidates.len() {
            self.counters.outcomes_malformed += 1;
        }
        let told = outcome.outcomes.iter().copied().chain(std::iter::repeat(Outcome::NotTried));
        for (waiting, ended) in flight.candidates.iter().zip(told) {
            self.end(&flight, waiting, ended);
        }
    }

    /// Gives up batches whose outcome never came, so that what they hold is not lost for ever.
    pub(super) fn give_up_overdue(&mut self, now: Nanos) {
        while let Some(flight) = self.admission.lose(now) {
            for waiting in &flight.candidates {
                self.counters.lost += 1;
                self.counters.pgmigrate_fail += 1 << waiting.candidate.order;
                // The mover may still be at it: the page must not get into a second batch meanwhile.
                self.admission.quarantine(waiting.page, now, RefusalReason::Lost);
                self.tell(&flight, waiting, What::Lost { batch: flight.id });
            }
        }
        self.counters.recent_forgotten = self.admission.recent_forgotten();
    }

    fn end(&mut self, flight: &Flight, waiting: &Waiting, ended: Outcome) {
        let batch = flight.id;
        match ended {
            Outcome::Moved => {
                self.count_moved(flight.direction, 1 << waiting.candidate.order);
                self.tell(flight, waiting, What::Moved { batch });
                let moves = self.admission.moved(waiting, self.clock());
                if flight.direction == Direction::Promote && moves > 1 {
                    self.counters.promoted_again += 1 << waiting.candidate.order;
                }
                self.forget(waiting);
            }
            _ => {
                self.counters.failed.add(ended, 1);
                self.tell(flight, waiting, What::Failed { batch, outcome: ended });
            }
        }
        match ended {
            Outcome::Moved => {}
            // The frame is not this page's any more: whoever has it now must not inherit its heat.
            Outcome::AlreadyThere | Outcome::OtherNode | Outcome::OtherPage | Outcome::Gone => {
                self.forget(waiting);
            }
            Outcome::NotTried => self.retry(flight, waiting),
            Outcome::Busy | Outcome::NodeFull => {
                self.counters.pgmigrate_fail += 1 << waiting.candidate.order;
                self.retry(flight, waiting);
            }
            Outcome::DryRun => self.admission.quarantine(waiting.page, self.clock(), RefusalReason::DryRun),
            Outcome::Pinned => self.leave_alone(waiting, RefusalReason::Pinned),
            Outcome::Shared => self.leave_alone(waiting, RefusalReason::Shared),
            Outcome::NoPermission => self.leave_alone(waiting, RefusalReason::NoPermission),
            Outcome::Mempolicy => self.leave_alone(waiting, RefusalReason::Mempolicy),
            Outcome::Excluded => self.counters.pgmigrate_fail += 1 << waiting.candidate.order,
        }
        let c = &waiting.candidate;
        let done = Move { page: waiting.page, pfn: c.pfn, order: c.order, from: c.from };
        self.rule.on_outcome(&done, ended, &mut self.out);
    }

    fn count_moved(&mut self, direction: Direction, pages: u64) {
        self.counters.moved += 1;
        self.counters.pgmigrate_success += pages;
        match direction {
            Direction::Promote => self.counters.pgpromote_success += pages,
            Direction::Demote => self.counters.pgdemote += pages,
            Direction::Balance => self.counters.pgbalance += pages,
        }
    }

    fn leave_alone(&mut self, waiting: &Waiting, why: RefusalReason) {
        self.counters.pgmigrate_fail += 1 << waiting.candidate.order;
        self.admission.quarantine(waiting.page, self.clock(), why);
    }

    /// Lets the candidate wait for its next try, each time twice as long, until it has had its tries. Either way its
    /// evidence stays.
    fn retry(&mut self, flight: &Flight, waiting: &Waiting) {
        if flight.exited {
            return;
        }
        self.counters.returned += 1;
        let tries = waiting.tries.saturating_add(1);
        if tries > self.retries {
            return self.refuse(&waiting.candidate, RefusalReason::GaveUp);
        }
        let delay = Nanos(self.retry_delay.0.saturating_mul(1 << (tries - 1).min(63)));
        let not_before = Some(self.clock().plus(delay));
        self.enqueue(&Waiting { tries, not_before, held: None, ..*waiting });
    }

    fn forget(&mut self, waiting: &Waiting) {
        if let Some(pfn) = waiting.candidate.pfn {
            self.table.clear(pfn, waiting.candidate.order);
        }
    }

    fn tell(&mut self, flight: &Flight, waiting: &Waiting, what: What) {
        self.journal.write(Decision::bound(waiting, self.clock(), flight.target, what));
    }
}
