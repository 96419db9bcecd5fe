//! Demand and supply: what the machine is asked to demote, what scopes may give, and the result.

use serde::Serialize;

use crate::units::{Nanos, NodeId, ScopeId};

/// *Far colder* means accessed this many times less often. Ours.
pub(crate) const COLDER: u64 = 4;
/// A demand is met if at most one in this many of its pages was not found.
const ENOUGH: u64 = 4;

/// Base pages that may be demoted from a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Allowance {
    /// The scope.
    pub scope: ScopeId,
    /// Base pages, at most.
    pub pages: u64,
}

/// What scopes with a floor or a brake may give now. The allowance of one demand is subtracted for
/// the next.
#[derive(Clone, Debug, Default)]
pub struct Giving {
    /// The memory above its floor of each scope with a floor; scopes not listed give nothing.
    pub spare: Vec<Allowance>,
    /// What braked scopes may give; a stopped one is listed with 0.
    pub braked: Vec<Allowance>,
    /// Scopes that hold more than they may, each once.
    pub over: Vec<Over>,
    /// What scopes lack of their shares and what others hold beyond theirs.
    pub shares: Shares,
}

/// What scopes claim of their shares, and what others may give for it.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// What each scope claims.
    pub claimed: Vec<Allowance>,
    /// Base pages that may be promoted into what is free.
    pub room: u64,
    /// What each scope may give for claims; empty where nobody claims.
    pub above: Vec<Allowance>,
    /// What each scope with a share holds beyond it.
    pub beyond: Vec<Allowance>,
}

/// A scope that holds more of the top tier than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// The scope.
    pub scope: ScopeId,
    /// Beyond its cap, or beyond its share while others claim theirs.
    pub reason: DemandReason,
    /// Base pages that it holds beyond, by the last report.
    pub held_pages: u64,
    /// Base pages of these that are not on their way down yet.
    pub pages: u64,
    /// Base pages beyond from which on it is asked for them.
    pub slack_pages: u64,
}

/// The hottest pages that would move to a node if it had room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// To this node.
    pub node: NodeId,
    /// Base pages, a lower bound.
    pub pages: u64,
    /// Access interval of the least hot of them.
    pub gap: Nanos,
}

/// What the machine is asked to demote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// Its number; never reused within a run.
    pub id: u64,
    /// From this node.
    pub node: NodeId,
    /// Base pages.
    pub pages: u64,
    /// Only pages that have not been accessed for this long.
    pub idle: Nanos,
    /// Limits for scopes with a floor, of which nothing is taken if they are not listed, and for
    /// scopes that keep what they hold within their share.
    pub allowances: Vec<Allowance>,
    /// Limits for braked scopes.
    pub braked: Vec<Allowance>,
    /// From this scope alone; `None`: from whoever is within reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<ScopeId>,
}

impl Demand {
    /// The report of its end, after demoting `pages` base pages in `cpu` CPU time.
    pub fn done(&self, pages: u64, cpu: Nanos) -> Demoted {
        Demoted { id: self.id, node: self.node, pages, cpu, by_scope: Vec::new() }
    }
}

/// The result of a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demoted {
    /// The demand's number.
    pub id: u64,
    /// The demand's node.
    pub node: NodeId,
    /// Base pages demoted; may exceed the number asked for by a huge page.
    pub pages: u64,
    /// CPU time that the machine spent on finding and demoting them.
    pub cpu: Nanos,
    /// Pages by scope, if scopes by cgroup are configured.
    pub by_scope: Vec<(ScopeId, u64)>,
}

/// The purpose of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandReason {
    /// For pages that wait for promotion.
    Waiting,
    /// For future promotions and allocations: the goal.
    Goal,
    /// For allocations only: less than half of the reserve that promotions leave is free.
    Allocations,
    /// Because a scope holds more than its cap.
    Cap,
    /// Because a scope holds more than its share, and another lacks some of its own.
    Share,
}

impl DemandReason {
    /// Whether it is for what a node has free, and not for what a scope holds.
    pub const fn is_of_node(self) -> bool {
        !matches!(self, DemandReason::Cap | DemandReason::Share)
    }
}

/// The cold pages of a top-tier node, as a demand found them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// The node.
    pub node: NodeId,
    /// Idle time that a page needed.
    pub idle: Nanos,
    /// The purpose.
    pub reason: DemandReason,
    /// Base pages asked for.
    pub asked: u64,
    /// Base pages not found.
    pub short: u64,
}

impl Supply {
    /// Whether nearly all pages asked for were found.
    pub fn is_met(&self) -> bool {
        self.short <= self.asked / ENOUGH
    }
}
