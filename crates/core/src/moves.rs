//! Moves: what the engine asks for and the outcomes.

use serde::Serialize;

use crate::label::labels;
use crate::units::{Nanos, NodeId, Pfn, Pid, VirtPage};

/// Base pages in a batch at most.
pub const BATCH_PAGES_MAX: u64 = 512;

/// The direction of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To a faster tier.
    Promote,
    /// To a slower tier.
    Demote,
    /// Within a tier, towards the node that accesses it (S1's first half).
    Balance,
}

labels!(Direction {
    Promote = "promote",
    Demote = "demote",
    Balance = "balance",
});

/// Identifies a batch from [`Batch`] to [`BatchOutcome`]; never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct BatchId(pub u64);

/// One folio to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The page by which the mover addresses the folio.
    pub page: VirtPage,
    /// The frame that the evidence was about; if another frame is mapped there now, the heat is not
    /// this page's.
    pub pfn: Option<Pfn>,
    /// log2 of the folio's size in base pages.
    pub order: u8,
    /// The node that the evidence saw the page on.
    pub from: NodeId,
}

impl Move {
    /// Base pages of the folio.
    pub const fn pages(&self) -> u64 {
        1 << self.order
    }
}

/// Folios of one process that go to one node together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number.
    pub id: BatchId,
    /// The process.
    pub pid: Pid,
    /// The target node.
    pub target: NodeId,
    /// The direction.
    pub direction: Direction,
    /// At most [`BATCH_PAGES_MAX`] base pages, except that a single larger folio makes a batch of
    /// its own.
    pub moves: Vec<Move>,
}

impl Batch {
    /// Base pages of the batch.
    pub fn pages(&self) -> u64 {
        self.moves.iter().map(Move::pages).sum()
    }
}

/// How one move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The folio is on the target node and was put there by this move.
    Moved,
    /// The folio was already on the target node.
    AlreadyThere,
    /// The folio is on a third node: somebody else moved it.
    OtherNode,
    /// Another frame is mapped there now: the evidence was about a page that no longer exists.
    OtherPage,
    /// The page or the process is gone, or the mapping changed.
    Gone,
    /// The folio is locked, isolated or under writeback; it may succeed later.
    Busy,
    /// The folio is pinned (DMA, io_uring, a VMM) and cannot move as long as it is.
    Pinned,
    /// Several processes map it and moving shared pages is not allowed by the configuration or the
    /// kernel.
    Shared,
    /// The kernel refuses: EPERM, EACCES, or the process's cpuset does not allow the target.
    NoPermission,
    /// The mapping, or its process, has a memory policy that is respected.
    Mempolicy,
    /// The process is in another scope than when the move was decided, or is excluded.
    Excluded,
    /// The target node has no room above its high watermark and goal.
    NodeFull,
    /// Not tried: the batch was cut short by an earlier failure.
    NotTried,
    /// Nothing moves in this mode (dry run, observe): the decision is the only result.
    DryRun,
}

labels!(Outcome {
    Moved = "moved",
    AlreadyThere = "already_there",
    OtherNode = "other_node",
    OtherPage = "other_page",
    Gone = "gone",
    Busy = "busy",
    Pinned = "pinned",
    Shared = "shared",
    NoPermission = "no_permission",
    Mempolicy = "mempolicy",
    Excluded = "excluded",
    NodeFull = "node_full",
    NotTried = "not_tried",
    DryRun = "dry_run",
});

/// How every move of a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOutcome {
    /// The batch.
    pub id: BatchId,
    /// When the last move ended.
    pub time: Nanos,
    /// One for each of [`Batch::moves`], in order.
    pub outcomes: Vec<Outcome>,
}
