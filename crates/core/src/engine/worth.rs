//! Pages of a process that are worth asking about.
//!
//! Found in the queue and in the journal, so what neither holds is not found: pages that the rule
//! never proposed, and decisions that newer ones have replaced.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::candidate::gap_of_score;
use crate::engine::Engine;
use crate::journal::{Decision, What};
use crate::moves::Direction;
use crate::refusal::RefusalReason;
use crate::units::{NodeId, Pid, VirtPage};

/// Pages of each kind that are named at most.
const PAGES_MAX: usize = 5;

/// Pages of a process, each kind in the order of what it is chosen for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Worth {
    /// The hottest pages that wait to be promoted.
    pub left_below: Vec<LeftBelow>,
    /// The pages that moved last, the newest first.
    pub moved: Vec<MovedPage>,
    /// The pages that were turned away most often.
    pub refused: Vec<RefusedPage>,
    /// Candidates of the process that wait in all.
    pub waiting: usize,
    /// Decisions on its pages that the journal holds.
    pub decisions: usize,
}

/// A page that waits to be promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeftBelow {
    /// The page.
    pub page: VirtPage,
    /// The node on which it is.
    pub from: NodeId,
    /// The combined score of all sources.
    pub score: u16,
    /// The time between two accesses that the score stands for, in us.
    pub gap_us: u64,
    /// What holds it; `None` if its turn has not come.
    pub held: Option<RefusalReason>,
}

/// A page that has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MovedPage {
    /// The page.
    pub page: VirtPage,
    /// Which way.
    pub direction: Direction,
    /// To this node.
    pub to: Option<NodeId>,
    /// How long ago, in ms.
    pub ms_ago: u64,
}

/// A page that was refused or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedPage {
    /// The page.
    pub page: VirtPage,
    /// How often, in the decisions that the journal holds: it has a refusal for the same reason as
    /// the one before only once.
    pub times: u32,
    /// The latest reason; `None` if it expired before its turn, or failed to move.
    pub reason: Option<RefusalReason>,
    /// How long ago that was, in ms.
    pub ms_ago: u64,
}

impl Engine {
    /// Pages of `pid` that are worth asking about. Looks at every candidate and decision that there
    /// is.
    pub fn worth_asking(&self, pid: Pid) -> Worth {
        let now = self.clock();
        let mut left_below: Vec<LeftBelow> = Vec::new();
        let mut waiting = 0;
        for (admitted, held) in self.queue.of(pid) {
            waiting += 1;
            let candidate = &admitted.candidate;
            if candidate.direction == Direction::Promote {
                let (page, score) = (admitted.page, admitted.score);
                let gap_us = gap_of_score(score).0 / 1000;
                left_below.push(LeftBelow { page, from: candidate.from, score, gap_us, held });
            }
        }
        left_below.sort_by_key(|l| (std::cmp::Reverse(l.score), l.page));
        left_below.truncate(PAGES_MAX);
        let mut moved: Vec<MovedPage> = Vec::new();
        let mut refused: BTreeMap<VirtPage, RefusedPage> = BTreeMap::new();
        let mut decisions = 0;
        for decision in self.journal.entries().rev().filter(|d| d.page.pid == pid) {
            decisions += 1;
            let (page, ms_ago) = (decision.page, now.since(decision.time).ms());
            if matches!(decision.what, What::Moved { .. }) {
                if moved.len() < PAGES_MAX && moved.iter().all(|m| m.page != page) {
                    moved.push(MovedPage { page, direction: decision.direction, to: decision.to, ms_ago });
                }
            } else if let Some(reason) = turned_away(decision) {
                refused.entry(page).or_insert(RefusedPage { page, times: 0, reason, ms_ago }).times += 1;
            }
        }
        let mut refused: Vec<RefusedPage> = refused.into_values().collect();
        refused.sort_by_key(|r| (std::cmp::Reverse(r.times), r.ms_ago, r.page));
        refused.truncate(PAGES_MAX);
        Worth { left_below, moved, refused, waiting, decisions }
    }
}

/// The reason of a decision that let a page stay where it is.
fn turned_away(decision: &Decision) -> Option<Option<RefusalReason>> {
    match decision.what {
        What::Refused { reason } => Some(Some(reason)),
        What::Expired { held } => Some(held),
        What::Failed { .. } => Some(None),
        // Those that are held still wait, and are among those left below.
        What::Held { .. }
        | What::Proposed
        | What::Evicted
        | What::Exited
        | What::Issued { .. }
        | What::Moved { .. }
        | What::Lost { .. } => None,
    }
}
