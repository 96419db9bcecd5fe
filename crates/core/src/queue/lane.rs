//! A lane: candidates that are always blocked together.

use std::collections::BTreeMap;

use crate::access::Source;
use crate::admission::Route;
use crate::moves::Direction;
use crate::queue::slab::List;
use crate::refusal::RefusalReason;
use crate::units::ScopeId;

/// What the candidates of a lane have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneKey {
    /// Their direction.
    pub direction: Direction,
    /// The scope whose share of the rate limit they use.
    pub scope: ScopeId,
    /// The nodes that they may go to.
    pub route: Route,
    /// The source whose estimate counts most.
    pub source: Source,
}

/// Candidates of one lane, by rank. A full node or a used-up share costs one check, not one per
/// candidate.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Entries of each rank in use, oldest first.
    pub(super) lists: BTreeMap<u32, List>,
    /// Entries.
    pub(super) len: usize,
    /// Their base pages.
    pub(super) pages: u64,
    /// What held the whole lane at the last tick.
    pub(super) held: Option<RefusalReason>,
}

/// A candidate whose turn it may be; the greatest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its rank.
    pub rank: u32,
    /// When it joined the queue with this rank, in joins.
    pub seq: u64,
    pub(super) slot: u32,
}

impl Ord for Turn {
    fn cmp(&self, other: &Turn) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank).then(other.seq.cmp(&self.seq)).then(self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Turn) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
