//! Outcomes of batches.

use crate::admission::{Admitted, Flight};
use crate::engine::{Engine, LOOK_AHEAD};
use crate::journal::{Decision, What};
use crate::moves::{BatchOutcome, Direction, Move, Outcome};
use crate::refusal::RefusalReason;
use crate::units::Nanos;

impl Engine {
    /// Takes the outcome of a batch.
    pub(super) fn settle(&mut self, outcome: &BatchOutcome) {
        let Some(flight) = self.admission.land(outcome.id) else {
            self.counters.outcomes_unknown += 1;
            return;
        };
        if outcome.outcomes.len() != flight.candidates.len() {
            self.counters.outcomes_malformed += 1;
        }
        debug_assert_eq!(flight.id, outcome.id, "another batch landed");
        debug_assert!(
            flight.candidates.iter().all(|admitted| self.admission.holder(admitted.page).is_none()),
            "a page of batch {} is in flight after it has landed",
            outcome.id.0
        );
        let told = outcome.outcomes.iter().copied().chain(std::iter::repeat(Outcome::NotTried));
        for (i, ended) in (0..flight.candidates.len()).zip(told) {
            if let Some(later) = flight.candidates.get(i + LOOK_AHEAD) {
                self.admission.prefetch(later.page);
                later.candidate.pfn.into_iter().for_each(|pfn| self.table.prefetch(pfn));
            }
            self.end(&flight, &flight.candidates[i], ended);
        }
    }

    /// Gives up batches whose outcome never came, so that they do not hold their pages for ever.
    pub(super) fn give_up_overdue(&mut self, now: Nanos) {
        while let Some(flight) = self.admission.lose(now) {
            for admitted in &flight.candidates {
                self.counters.lost += 1;
                self.counters.pgmigrate_fail += admitted.pages();
                // The mover may still be moving it, so the page must not join a second batch.
                self.admission.quarantine(admitted.page, now, RefusalReason::Lost);
                self.tell(&flight, admitted, What::Lost { batch: flight.id });
            }
        }
        self.counters.recent_forgotten = self.admission.recent_forgotten();
    }

    fn end(&mut self, flight: &Flight, admitted: &Admitted, ended: Outcome) {
        let batch = flight.id;
        match ended {
            Outcome::Moved => {
                self.count_moved(flight.direction, admitted.pages());
                self.ledgers.moved(admitted.scope, flight.direction, admitted.pages());
                let room = self.room_of(admitted.scope);
                if let Some(payoff) = &mut self.payoff {
                    payoff.promoted(&admitted.candidate, room);
                }
                self.tell(flight, admitted, What::Moved { batch });
                let moves = self.admission.moved(admitted, self.clock());
                if flight.direction == Direction::Promote && moves > 1 {
                    self.counters.promoted_again += admitted.pages();
                }
                self.forget(admitted);
            }
            _ => {
                self.counters.failed.add(ended, 1);
                self.tell(flight, admitted, What::Failed { batch, outcome: ended });
            }
        }
        match ended {
            Outcome::Moved => {}
            // The frame no longer belongs to this page: its next page must not inherit the heat.
            Outcome::AlreadyThere | Outcome::OtherNode | Outcome::OtherPage | Outcome::Gone => {
                self.forget(admitted);
            }
            Outcome::NotTried => self.retry(flight, admitted),
            Outcome::Busy | Outcome::NodeFull => {
                self.counters.pgmigrate_fail += admitted.pages();
                self.retry(flight, admitted);
            }
            Outcome::DryRun => self.admission.quarantine(admitted.page, self.clock(), RefusalReason::DryRun),
            Outcome::Pinned => self.leave_alone(admitted, RefusalReason::Pinned),
            Outcome::Shared => self.leave_alone(admitted, RefusalReason::Shared),
            Outcome::NoPermission => self.leave_alone(admitted, RefusalReason::NoPermission),
            Outcome::Mempolicy => self.leave_alone(admitted, RefusalReason::Mempolicy),
            Outcome::Excluded => self.counters.pgmigrate_fail += admitted.pages(),
        }
        let c = &admitted.candidate;
        let done = Move { page: admitted.page, pfn: c.pfn, order: c.order, from: c.from };
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

    fn leave_alone(&mut self, admitted: &Admitted, why: RefusalReason) {
        self.counters.pgmigrate_fail += admitted.pages();
        self.admission.quarantine(admitted.page, self.clock(), why);
    }

    /// Parks the candidate for its next try, each time twice as long, until it has used up its
    /// tries. Its evidence stays in any case.
    fn retry(&mut self, flight: &Flight, admitted: &Admitted) {
        if flight.exited {
            return;
        }
        self.counters.returned += 1;
        let tries = admitted.tries.saturating_add(1);
        if tries > self.retries {
            return self.refuse(&admitted.candidate, RefusalReason::GaveUp);
        }
        let route = match self.admission.route(&self.topology, &admitted.candidate) {
            Ok(route) => route,
            Err(reason) => return self.refuse(&admitted.candidate, reason),
        };
        let delay = Nanos(self.retry_delay.0.saturating_mul(1 << (tries - 1).min(63)));
        let not_before = self.clock().plus(delay);
        self.enqueue(&Admitted { tries, route, ..*admitted }, Some(not_before));
    }

    fn forget(&mut self, admitted: &Admitted) {
        if let Some(pfn) = admitted.candidate.pfn {
            self.table.clear(pfn, admitted.candidate.order);
        }
    }

    fn tell(&mut self, flight: &Flight, admitted: &Admitted, what: What) {
        self.journal.write(Decision::bound(admitted, self.clock(), flight.target, what));
    }
}
