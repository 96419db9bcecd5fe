//! Counters, under the kernel's names where the meaning is the same, and the laws that hold between
//! them.
//!
//! The life of a hint fault in tiering mode (Linux 6.12 `kernel/sched/fair.c`,
//! `should_numa_migrate_memory`):
//!
//! ```text
//! numa_hint_faults,
//! handled_ahead and
//! kthread_taken ────┬─ not_promotable          the page is on a top-tier node
//!                   ├─ free_space              the target has plenty of room: attempted at once
//!                   ├─ rejected_latency        not hot
//!                   ├─ left_to_kthread         pghot's kmigrated decides later
//!                   ├─ left_to_engine          Thermocline decides, the kernel does not
//!                   └─ pgpromote_candidate ─┬─ rate_limited
//!                                           └─ attempted
//! free_space + attempted = pgpromote_success + failed_no_room + failed_busy
//! ```

use serde::Serialize;

macro_rules! counters {
    ($( $(#[doc = $doc:literal])+ $name:ident; )*) => {
        /// See the module's description. Pages are base pages.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counters {
            $( $(#[doc = $doc])+ pub $name: u64, )*
        }

        impl Counters {
            /// Every counter with its value.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![ $( (stringify!($name), self.$name), )* ]
            }
        }
    };
}

counters! {
    /// Pages that scans have marked.
    numa_pte_updates;
    /// Hint faults.
    numa_hint_faults;
    /// Hint faults on pages of the node of the faulting CPU.
    numa_hint_faults_local;
    /// Pages that hint faults (or sampled accesses in their place) have migrated.
    numa_pages_migrated;
    /// Pages that the kernel has promoted.
    pgpromote_success;
    /// Pages that were hot, so that they counted against the rate limit.
    pgpromote_candidate;
    /// Pages that passed because the target had plenty of room.
    pgpromote_candidate_nrl;
    /// Pages that kswapd has demoted.
    pgdemote_kswapd;
    /// Pages that allocating tasks have demoted.
    pgdemote_direct;
    /// Pages that DAMON or another kernel thread has demoted.
    pgdemote_other;
    /// Faults on pages that are not below the kernel's top tier, or that cannot go to it.
    not_promotable;
    /// Faults while the target had plenty of room.
    free_space;
    /// Faults whose latency was above the threshold.
    rejected_latency;
    /// Faults that were left to Thermocline's engine: the kernel's own limit is 0.
    left_to_engine;
    /// Faults that were recorded for a kernel thread to decide (pghot).
    left_to_kthread;
    /// Ready records that this kernel thread took: it decides on the page as a fault would.
    kthread_taken;
    /// Sampled accesses that were handled as hint faults, without a mark.
    sampled_hints;
    /// Marked pages that were handled with a fault on another page: the rest of a huge page, or
    /// pages ahead (S2).
    handled_ahead;
    /// Candidates above the rate limit.
    rate_limited;
    /// Candidates whose migration was tried.
    attempted;
    /// Migrations that failed because the target was below its high watermark.
    failed_no_room;
    /// Migrations that failed because the page was busy or gone.
    failed_busy;
    /// Marks lost with the page table entry when the page was moved.
    marks_dropped_by_move;
    /// Marks of processes that have ended.
    marks_dropped_by_exit;
    /// Pages that Thermocline has moved into the kernel's top tier.
    engine_promoted;
    /// Pages that Thermocline has moved out of it.
    engine_demoted;
    /// Pages moved, by any mover, between two nodes of the kernel's top tier, or between two nodes
    /// below it.
    moved_within;
    /// Pages promoted by another kernel thread (DAMON).
    other_promoted;
    /// Promotions of pages that had been demoted before: ping-pong.
    promoted_again;
    /// Accesses; in event mode derived from the elapsed time.
    accesses;
}

/// Values that the laws relate to the counters.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Outstanding marks.
    pub marked: u64,
    /// Top-tier pages at the start, after initial placement.
    pub top_then: u64,
    /// Top-tier pages now.
    pub top_now: u64,
    /// Pages that are on a node, and how many there should be.
    pub pages: (u64, u64),
}

/// A law that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the simulation lost count: {law}: {left} is not {right}; this is a defect of the simulator, please report it"
)]
pub struct Broken {
    /// The law.
    pub law: &'static str,
    /// Its left side.
    pub left: i128,
    /// Its right side.
    pub right: i128,
}

impl Counters {
    /// Pages promoted by any mover.
    pub fn promoted(&self) -> u64 {
        self.pgpromote_success + self.engine_promoted + self.other_promoted
    }

    /// Pages demoted by any mover.
    pub fn demoted(&self) -> u64 {
        self.pgdemote_kswapd + self.pgdemote_direct + self.pgdemote_other + self.engine_demoted
    }

    /// Checks the laws; called at the end of every run, also in release builds.
    ///
    /// # Errors
    /// The first law that does not hold.
    pub fn check(&self, state: &State) -> Result<(), Broken> {
        let law = |law: &'static str, left: &[u64], right: &[u64]| {
            let sum = |terms: &[u64]| terms.iter().map(|t| i128::from(*t)).sum::<i128>();
            let (left, right) = (sum(left), sum(right));
            if left == right { Ok(()) } else { Err(Broken { law, left, right }) }
        };
        law(
            "faults + ahead of them + taken = not promotable + free space + rejected + left to others + candidates",
            &[self.numa_hint_faults, self.handled_ahead, self.kthread_taken],
            &[
                self.not_promotable,
                self.free_space,
                self.rejected_latency,
                self.left_to_engine,
                self.left_to_kthread,
                self.pgpromote_candidate,
            ],
        )?;
        law(
            "candidates = rate limited + attempted",
            &[self.pgpromote_candidate],
            &[self.rate_limited, self.attempted],
        )?;
        law(
            "free space + attempted = promoted + failed",
            &[self.free_space, self.attempted],
            &[self.pgpromote_success, self.failed_no_room, self.failed_busy],
        )?;
        law(
            "marks + samples = faults + ahead of them + outstanding + dropped",
            &[self.numa_pte_updates, self.sampled_hints],
            &[
                self.numa_hint_faults,
                self.handled_ahead,
                state.marked,
                self.marks_dropped_by_move,
                self.marks_dropped_by_exit,
            ],
        )?;
        law(
            "promoted - demoted = change of the top tier's pages",
            &[self.pgpromote_success, self.engine_promoted, self.other_promoted, state.top_then],
            &[
                self.pgdemote_kswapd,
                self.pgdemote_direct,
                self.pgdemote_other,
                self.engine_demoted,
                state.top_now,
            ],
        )?;
        law("every page is somewhere", &[state.pages.0], &[state.pages.1])
    }
}

/// Progress at some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Course {
    /// Time since the start of the first process in seconds, including its allocation of memory.
    pub time_s: f64,
    /// Pages promoted so far by any mover.
    pub promoted: u64,
    /// Pages demoted so far by any mover.
    pub demoted: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_law_is_named_with_its_sides() {
        let counters =
            Counters { numa_pte_updates: 3, numa_hint_faults: 2, rejected_latency: 2, ..Counters::default() };
        let state = State { marked: 1, top_then: 5, top_now: 5, pages: (9, 9) };
        assert_eq!(counters.check(&state), Ok(()));
        let broken = counters.check(&State { marked: 0, ..state }).unwrap_err();
        assert_eq!((broken.left, broken.right), (3, 2));
        assert!(broken.to_string().contains("= faults + ahead of them + outstanding + dropped: 3 is not 2"));
        assert!(counters.check(&State { top_now: 4, ..state }).is_err());
        assert!(counters.check(&State { pages: (8, 9), ..state }).is_err());
    }
}
