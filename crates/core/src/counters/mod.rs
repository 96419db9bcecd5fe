//! Counters, declared once: name, unit, meaning and label; status, metrics and the book derive from
//! here.
//!
//! The life of a candidate, so that every one is accounted for ([`Counters::check_balance`]):
//!
//! ```text
//! proposed ─┬─ dropped
//!           ├─ merged
//!           └─ refused{reason} | expired{reason} | queue_evicted | exited | waiting now | issued
//! issued   ───  moved | failed{outcome} | lost | in flight now
//! failed{busy, node_full, not_tried} ── returned ── back to the second line
//! ```
//!
//! The kernel's names are used where the meaning is the kernel's. Our moves go through
//! move_pages(2) and appear in vmstat's pgmigrate_success, never in its pgpromote_success.

use serde::Serialize;

use crate::access::Source;
use crate::label::{By, Label};
use crate::moves::Outcome;
use crate::refusal::RefusalReason;
use crate::statistics::{Figure, Kind, metric_name};

pub use crate::statistics::{Sample, Statistic};

/// What can be counted on.
trait Counted {
    /// What was counted since an earlier count.
    fn since(&self, before: &Self) -> Self;
}

impl Counted for u64 {
    fn since(&self, before: &u64) -> u64 {
        self.saturating_sub(*before)
    }
}

impl<L: Label> Counted for By<L> {
    fn since(&self, before: &By<L>) -> By<L> {
        let mut out = By::default();
        self.iter().for_each(|(label, count)| out.add(label, count.saturating_sub(before.get(label))));
        out
    }
}

macro_rules! label_name {
    () => {
        None
    };
    ($label:literal) => {
        Some($label)
    };
}

macro_rules! counters {
    ($( $(#[doc = $doc:literal])+ $name:ident: $ty:ty $([$label:literal])?, $unit:literal; )*) => {
        /// All counters of an engine since its start.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counters {
            $( $(#[doc = $doc])+ pub $name: $ty, )*
        }

        impl Counters {
            /// The description of each counter, in order of declaration.
            pub fn statistics() -> Vec<Statistic> {
                vec![ $( Statistic {
                    name: stringify!($name),
                    metric: metric_name("", stringify!($name), $unit, Kind::Counter),
                    unit: $unit,
                    kind: Kind::Counter,
                    description: [ $( $doc ),+ ].map(str::trim).join(" "),
                    label: label_name!($($label)?),
                    trouble: false,
                } ),* ]
            }

            /// What was counted since `before`, an earlier state of the same counters.
            #[must_use]
            pub fn since(&self, before: &Counters) -> Counters {
                Counters { $( $name: Counted::since(&self.$name, &before.$name), )* }
            }

            /// Every value, in order of declaration.
            pub fn samples(&self) -> Vec<Sample> {
                let mut out = Vec::new();
                $( Figure::samples(&self.$name, stringify!($name), &mut out); )*
                out
            }
        }
    };
}

counters! {
    /// Accesses that came as evidence, by source; regions for DAMON.
    evidence: By<Source> ["source"], "accesses";
    /// Evidence that cannot be true and was ignored: a folio above 1 GiB, an unknown node, scope or
    /// process number, a region that ends before it starts, a time more than a minute ahead.
    evidence_invalid: u64, "items";
    /// Pages of lower tiers that were looked up because they lie in a region.
    region_pages: u64, "pages";
    /// Hint faults seen; vmstat's numa_hint_faults counts those of every process, ours those that
    /// reached the engine.
    numa_hint_faults: u64, "faults";

    /// Candidates that the rule proposed. Each ends as dropped, merged, refused, expired,
    /// queue_evicted, exited or issued.
    proposed: u64, "candidates";
    /// Proposals beyond what one batch of evidence may bring.
    dropped: u64, "candidates";
    /// Proposals for a page that waited already: its entry was renewed.
    merged: u64, "candidates";
    /// Candidates let go with a reason. The page's evidence is kept.
    refused: By<RefusalReason> ["reason"], "candidates";
    /// Times that a tick held the candidate whose turn it was, and with it those behind it; they
    /// stay in the queue.
    held: By<RefusalReason> ["reason"], "looks";
    /// Candidates whose evidence grew too old while they waited, by what held them last (`expired`:
    /// nothing did, their turn did not come).
    expired: By<RefusalReason> ["reason"], "candidates";
    /// Candidates that gave their place in the full queue to one with a higher rank, or of a source
    /// that had less than its share.
    queue_evicted: u64, "candidates";
    /// Candidates whose process exited, called exec or changed its scope.
    exited: u64, "candidates";
    /// Candidates that came back from a batch to be tried again (and then wait, or are refused).
    returned: u64, "candidates";

    /// Moves asked for in batches. Each ends as moved, failed or lost.
    issued: u64, "moves";
    /// Batches issued.
    batches: u64, "batches";
    /// Moves that put their page on the target.
    moved: u64, "moves";
    /// Moves that did not, by outcome.
    failed: By<Outcome> ["outcome"], "moves";
    /// Moves whose outcome did not come within `admission.outcome_timeout_ms`.
    lost: u64, "moves";
    /// Outcomes of batches that are not in flight: unknown, reported twice, or too late.
    outcomes_unknown: u64, "batches";
    /// Outcomes with more or fewer entries than the batch has moves; missing ones count as not
    /// tried.
    outcomes_malformed: u64, "batches";

    /// Base pages that were candidates for promotion when they joined the queue.
    pgpromote_candidate: u64, "pages";
    /// Base pages moved to a faster tier.
    pgpromote_success: u64, "pages";
    /// Base pages moved to a slower tier; vmstat splits its pgdemote_* by which part of the kernel
    /// did it.
    pgdemote: u64, "pages";
    /// Base pages moved within their tier, towards the node that accesses them.
    pgbalance: u64, "pages";
    /// Base pages moved, whichever way.
    pgmigrate_success: u64, "pages";
    /// Base pages that could not be moved, or whose outcome was lost; those that were gone,
    /// elsewhere or not tried do not count.
    pgmigrate_fail: u64, "pages";

    /// Base pages that the machine was asked to demote by the kernel's reclaim. With
    /// `demotion_over` they are the sum of `demotion_done`, `demotion_short`, `demotion_lost` and
    /// what is under way.
    demotion_asked: u64, "pages";
    /// Base pages that it demoted. The kernel moves them: vmstat has them in pgdemote_proactive,
    /// or, where a kernel lacks that, in pgdemote_direct.
    demotion_done: u64, "pages";
    /// Base pages asked for beyond what was cold enough.
    demotion_short: u64, "pages";
    /// Base pages demoted beyond what was asked for, because reclaim takes them in batches.
    demotion_over: u64, "pages";
    /// Base pages asked for without an answer within `admission.outcome_timeout_ms`.
    demotion_lost: u64, "pages";
    /// Base pages that we promoted after an earlier move of ours within
    /// `admission.ping_pong_window_ms`: a page that was demoted in between was not cold.
    promoted_again: u64, "pages";
    /// Base pages that we promoted and that were accessed on a lower tier within
    /// `admission.ping_pong_window_ms`, after a wait of a quarter of the idle time or less,
    /// estimated from one page in 16.
    came_back: u64, "pages";

    /// Recent moves that had to be forgotten early because `admission.moved_capacity` was reached:
    /// residency and ping-pong do not hold for their pages.
    recent_forgotten: u64, "pages";
    /// Ticks.
    ticks: u64, "ticks";
}

impl Counters {
    /// Whether every candidate and every move is accounted for, given the number waiting and the
    /// number in flight.
    ///
    /// # Errors
    /// The sum that does not balance, with its terms.
    pub fn check_balance(&self, waiting: u64, in_flight: u64) -> Result<(), String> {
        let came = self.proposed + self.returned;
        let refused = self.refused.sum();
        let expired = self.expired.sum();
        let Counters { dropped, merged, queue_evicted, exited, issued, moved, lost, .. } = self;
        let went = dropped + merged + refused + expired + queue_evicted + exited + issued + waiting;
        if came != went {
            return Err(format!(
                "candidates: proposed {} + returned {} = {came}, but dropped {dropped} + merged {merged} + refused \
                 {refused} + expired {expired} + queue_evicted {queue_evicted} + exited {exited} + issued {issued} + \
                 waiting {waiting} = {went}",
                self.proposed, self.returned
            ));
        }
        let failed = self.failed.sum();
        if *issued != moved + failed + lost + in_flight {
            return Err(format!(
                "moves: issued {issued}, but moved {moved} + failed {failed} + lost {lost} + in flight {in_flight}"
            ));
        }
        if self.pgmigrate_success != self.pgpromote_success + self.pgdemote + self.pgbalance {
            return Err(format!(
                "pages: pgmigrate_success {}, but pgpromote_success {} + pgdemote {} + pgbalance {}",
                self.pgmigrate_success, self.pgpromote_success, self.pgdemote, self.pgbalance
            ));
        }
        Ok(())
    }

    /// Whether every page asked for is accounted for, given the pages of demands under way.
    ///
    /// # Errors
    /// The sum that does not balance, with its terms.
    pub fn check_demotion(&self, under_way: u64) -> Result<(), String> {
        let Counters { demotion_asked, demotion_over, demotion_done, demotion_short, demotion_lost, .. } =
            self;
        let went = demotion_done + demotion_short + demotion_lost + under_way;
        if demotion_asked + demotion_over == went {
            return Ok(());
        }
        Err(format!(
            "demotion: asked {demotion_asked} + over {demotion_over}, but done {demotion_done} + short {demotion_short} + lost \
             {demotion_lost} + under way {under_way}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_counter_is_described_and_named_once() {
        let statistics = Counters::statistics();
        let names: BTreeSet<_> = statistics.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), statistics.len());
        for s in &statistics {
            assert!(!s.description.is_empty() && !s.unit.is_empty(), "{}", s.name);
            let has_label =
                Counters::default().samples().iter().any(|v| v.name == s.name && v.label.is_some());
            assert_eq!(s.label.is_some(), has_label, "{}", s.name);
        }
    }

    #[test]
    fn what_was_counted_since_is_the_difference_by_label() {
        let mut before = Counters { proposed: 3, ..Counters::default() };
        before.refused.add(RefusalReason::NodeFull, 2);
        let mut after = Counters { proposed: 7, ticks: 1, ..before.clone() };
        after.refused.add(RefusalReason::NodeFull, 5);
        after.refused.add(RefusalReason::ScopeCap, 1);
        let mut wanted = Counters { proposed: 4, ticks: 1, ..Counters::default() };
        wanted.refused.add(RefusalReason::NodeFull, 5);
        wanted.refused.add(RefusalReason::ScopeCap, 1);
        assert_eq!(after.since(&before), wanted);
        assert_eq!(after.since(&after), Counters::default());
    }

    #[test]
    fn a_missing_candidate_is_noticed() {
        let mut c = Counters { proposed: 3, merged: 1, ..Counters::default() };
        assert!(c.check_balance(1, 0).unwrap_err().contains("proposed 3"));
        c.refused.add(RefusalReason::NodeFull, 1);
        assert_eq!(c.check_balance(1, 0), Ok(()));
        assert!(c.check_balance(0, 1).is_err());
    }
}
