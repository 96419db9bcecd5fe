//! Decisions: how many of each kind, why, and the last ones.

use std::collections::{BTreeMap, VecDeque};

use thermocline_core::candidate::Reason;
use thermocline_core::journal::{Decision, What};
use thermocline_core::moves::Direction;

use crate::rows::columns;

/// Decisions of a kind that are kept, the last ones.
pub const LAST_KEPT: usize = 3;

/// What became of pages that were proposed for a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// Candidates that joined the queue.
    pub proposed: u64,
    /// Moves that put their page on the target.
    pub moved: u64,
    /// Base pages that these moved.
    pub pages: u64,
}

/// What was decided.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// Decisions recorded.
    pub all: u64,
    /// Decisions by what was decided and the reason, if there is one.
    pub kinds: BTreeMap<(&'static str, Option<&'static str>), u64>,
    /// By direction and reason, what became of candidates.
    pub why: BTreeMap<(Direction, Reason), Why>,
    last: BTreeMap<&'static str, VecDeque<Decision>>,
}

impl Decided {
    /// Adds a decision.
    pub fn add(&mut self, decision: &Decision) {
        let (what, reason, _) = columns(decision.what);
        self.all += 1;
        *self.kinds.entry((what, reason)).or_default() += 1;
        let why = self.why.entry((decision.direction, decision.why)).or_default();
        match decision.what {
            What::Proposed => why.proposed += 1,
            What::Moved { .. } => {
                why.moved += 1;
                why.pages = why.pages.saturating_add(decision.pages.into());
            }
            _ => {}
        }
        let last = self.last.entry(what).or_default();
        if last.len() == LAST_KEPT {
            last.pop_front();
        }
        last.push_back(*decision);
    }

    /// How many decisions were `what`, for any reason.
    pub fn count(&self, what: &str) -> u64 {
        self.kinds.iter().filter(|((kind, _), _)| *kind == what).map(|(_, count)| count).sum()
    }

    /// The last [`LAST_KEPT`] decisions of each kind that says how a candidate fared, by time.
    pub fn last(&self) -> Vec<Decision> {
        let told = self.last.iter().filter(|(what, _)| !matches!(**what, "proposed" | "issued"));
        let mut out: Vec<Decision> = told.flat_map(|(_, last)| last.iter().copied()).collect();
        out.sort_by_key(|decision| decision.time);
        out
    }
}
