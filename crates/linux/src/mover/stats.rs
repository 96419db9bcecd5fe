//! The mover's counters.

use serde::Serialize;
use thermocline_core::moves::Outcome;
use thermocline_core::units::Nanos;

/// How many moves (folios) and base pages ended in one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Folios.
    pub moves: u64,
    /// Base pages in them.
    pub pages: u64,
}

/// Ends of moves by kind, as in [`Outcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutcomeCounts {
    /// See [`Outcome::Moved`].
    pub moved: Count,
    /// See [`Outcome::AlreadyThere`].
    pub already_there: Count,
    /// See [`Outcome::OtherNode`].
    pub other_node: Count,
    /// See [`Outcome::OtherPage`].
    pub other_page: Count,
    /// See [`Outcome::Gone`].
    pub gone: Count,
    /// See [`Outcome::Busy`].
    pub busy: Count,
    /// See [`Outcome::Pinned`].
    pub pinned: Count,
    /// See [`Outcome::Shared`].
    pub shared: Count,
    /// See [`Outcome::NoPermission`].
    pub no_permission: Count,
    /// See [`Outcome::Mempolicy`].
    pub mempolicy: Count,
    /// See [`Outcome::Excluded`].
    pub excluded: Count,
    /// See [`Outcome::NodeFull`].
    pub node_full: Count,
    /// See [`Outcome::NotTried`].
    pub not_tried: Count,
}

impl OutcomeCounts {
    /// Counts one move of `pages` base pages.
    pub fn add(&mut self, outcome: Outcome, pages: u64) {
        let count = match outcome {
            Outcome::Moved => &mut self.moved,
            Outcome::AlreadyThere => &mut self.already_there,
            Outcome::OtherNode => &mut self.other_node,
            Outcome::OtherPage => &mut self.other_page,
            Outcome::Gone => &mut self.gone,
            Outcome::Busy => &mut self.busy,
            Outcome::Pinned => &mut self.pinned,
            Outcome::Shared => &mut self.shared,
            Outcome::NoPermission => &mut self.no_permission,
            Outcome::Mempolicy => &mut self.mempolicy,
            Outcome::Excluded => &mut self.excluded,
            Outcome::NodeFull => &mut self.node_full,
            Outcome::NotTried | Outcome::DryRun => &mut self.not_tried,
        };
        count.moves += 1;
        count.pages = count.pages.saturating_add(pages);
    }
}

thermocline_core::statistics! {
    /// Counters since the mover's start. Every move of an accepted batch is counted in `outcomes`
    /// exactly once.
    #[derive(Copy)]
    MoverStats "mover" {
        /// Batches that have an outcome.
        batches: u64, "batches", Counter;
        /// move_pages calls that move.
        calls: u64, "calls", Counter;
        /// move_pages calls that only ask (nodes = NULL).
        queries: u64, "calls", Counter;
        /// Base pages handed to move_pages.
        pages_asked: u64, "pages", Counter;
        /// Time in move_pages calls that move; divided by `pages_asked` it is the cost of a page.
        move_time: Nanos, "ns", Counter;
        /// Time from taking a batch up to its outcome, all batches together.
        batch_time: Nanos, "ns", Counter;
        /// Batches of a process that was another one when its number was first seen.
        reused_pids: u64, "batches", Counter;
        /// Pages whose frame the kernel did not show (no CAP_SYS_ADMIN), so that only node and
        /// mapping were checked.
        frames_hidden: u64, "pages", Counter;
        /// Moves refused because the state of the target node could not be read.
        state_unknown: u64, "moves", Counter trouble;
        /// Calls that failed with an error that no outcome names; the moves ended as `not_tried`.
        other_errors: u64, "calls", Counter trouble;
    }
    beside {
        /// How moves ended.
        outcomes: OutcomeCounts;
    }
}

impl MoverStats {
    /// Mean time per base page of move_pages calls that move, in ns; `None` before the first.
    pub fn ns_per_page(&self) -> Option<u64> {
        self.move_time.0.checked_div(self.pages_asked)
    }
}
