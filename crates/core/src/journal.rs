//! The journal: a ring of decisions with reasons, which `explain` prints and the dashboard draws.

use std::collections::VecDeque;

use serde::Serialize;

use crate::admission::Admitted;
use crate::candidate::{Candidate, Reason};
use crate::moves::{BatchId, Direction, Outcome};
use crate::refusal::RefusalReason;
use crate::units::{Nanos, NodeId, Pfn, VirtPage};
use crate::weigh::Sources;

/// A decision on a page, or an event of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// The rule proposed it and it waits in the queue.
    Proposed,
    /// It was refused.
    Refused {
        /// The reason.
        reason: RefusalReason,
    },
    /// Its turn came and it has to keep waiting.
    Held {
        /// The reason.
        reason: RefusalReason,
    },
    /// Its evidence grew too old while it waited.
    Expired {
        /// What held it last.
        held: Option<RefusalReason>,
    },
    /// A candidate with a higher rank took its place in the full queue.
    Evicted,
    /// Its process exited, called exec or changed its scope while it waited.
    Exited,
    /// It was asked to move.
    Issued {
        /// In this batch.
        batch: BatchId,
    },
    /// It moved.
    Moved {
        /// In this batch.
        batch: BatchId,
    },
    /// It did not move.
    Failed {
        /// In this batch.
        batch: BatchId,
        /// How it ended.
        outcome: Outcome,
    },
    /// The outcome never came.
    Lost {
        /// Of this batch.
        batch: BatchId,
    },
}

/// An entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// When, in the engine's time: that of the latest tick.
    pub time: Nanos,
    /// The event.
    #[serde(flatten)]
    pub what: What,
    /// The page; for a folio, the one that maps its head.
    pub page: VirtPage,
    /// Its frame, where known.
    pub pfn: Option<Pfn>,
    /// Base pages of the folio.
    pub pages: u32,
    /// The direction.
    pub direction: Direction,
    /// The node on which the evidence saw it.
    pub from: NodeId,
    /// The target node, once chosen.
    pub to: Option<NodeId>,
    /// The combined score of all sources.
    pub score: u16,
    /// Why the rule proposed it.
    pub why: Reason,
    /// The sources of evidence that had not expired.
    pub sources: Sources,
}

impl Decision {
    /// A decision on a candidate that waits, or waited.
    pub fn on(admitted: &Admitted, time: Nanos, what: What) -> Decision {
        let (score, sources) = (admitted.score, admitted.estimates.sources());
        Decision { score, sources, ..Decision::alone(admitted.page, &admitted.candidate, time, what) }
    }

    /// A decision on a proposal that never joined the queue.
    pub fn alone(page: VirtPage, candidate: &Candidate, time: Nanos, what: What) -> Decision {
        Decision {
            time,
            what,
            page,
            pfn: candidate.pfn,
            pages: 1u32.checked_shl(candidate.order.into()).unwrap_or(u32::MAX),
            direction: candidate.direction,
            from: candidate.from,
            to: candidate.target,
            score: candidate.score,
            why: candidate.reason,
            sources: Sources::default().and(candidate.source),
        }
    }

    /// A decision on a candidate that is bound for `to`.
    pub fn bound(admitted: &Admitted, time: Nanos, to: NodeId, what: What) -> Decision {
        Decision { to: Some(to), ..Decision::on(admitted, time, what) }
    }

    /// Whether the decision is about `page`, possibly as part of a larger folio.
    pub fn concerns(&self, page: VirtPage) -> bool {
        let head = self.page;
        head.pid == page.pid && page.vpn.wrapping_sub(head.vpn) < u64::from(self.pages)
    }
}

/// The latest decisions; the oldest is overwritten.
#[derive(Debug)]
pub struct Journal {
    capacity: usize,
    entries: VecDeque<Decision>,
    written: u64,
}

impl Journal {
    /// An empty journal of at most `capacity` decisions; memory is taken as it fills.
    pub fn new(capacity: u32) -> Journal {
        Journal { capacity: capacity as usize, entries: VecDeque::new(), written: 0 }
    }

    /// Records a decision.
    pub fn write(&mut self, decision: Decision) {
        if self.entries.len() >= self.capacity {
            self.entries.pop_front();
        }
        self.entries.push_back(decision);
        self.written += 1;
    }

    /// The decisions that are kept, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Decision> {
        self.entries.iter()
    }

    /// The decisions from number `from` on (the run's first is number 0), as far as they are kept,
    /// and the number to pass next time: for a reader that follows the journal.
    pub fn since(&self, from: u64) -> (impl Iterator<Item = &Decision>, u64) {
        let oldest = self.written - self.entries.len() as u64;
        let skip = usize::try_from(from.saturating_sub(oldest)).unwrap_or(usize::MAX);
        (self.entries.iter().skip(skip), self.written)
    }

    /// The newest `limit` decisions that concern a page, oldest first. Looks at every entry.
    pub fn of(&self, page: VirtPage, limit: usize) -> Vec<Decision> {
        let mut found: Vec<Decision> =
            self.entries.iter().rev().filter(|d| d.concerns(page)).take(limit).copied().collect();
        found.reverse();
        found
    }

    /// Decisions ever written, including those no longer kept.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Decisions kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was decided yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Decision>()
    }

    /// All kept decisions as lines of JSON: equal runs give equal bytes.
    pub fn to_json_lines(&self) -> String {
        let mut out = String::new();
        for decision in &self.entries {
            // Integers, strings and enums only, so serialisation cannot fail.
            out.push_str(&serde_json::to_string(decision).unwrap_or_default());
            out.push('\n');
        }
        out
    }
}
