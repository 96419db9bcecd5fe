//! Demand and supply: what the machine is asked to demote, what scopes may give, and what came of
//! it.

use serde::Serialize;

use crate::units::{Nanos, NodeId, ScopeId};

/// Colder by far: accessed so many times more seldom. Ours.
pub(crate) const COLDER: u64 = 4;
/// A demand is met where no more than one in so many of its pages was not found.
const ENOUGH: u64 = 4;

/// Base pages that may be demoted from a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Allowance {
    /// The scope.
    pub scope: ScopeId,
    /// Base pages, at most.
    pub pages: u64,
}

/// What scopes that do not give everything may give now. What one demand is allowed is taken off
/// for the next.
#[derive(Clone, Debug, Default)]
pub struct Giving {
    /// What scopes with a floor have above it; those that are not named give nothing.
    pub spare: Vec<Allowance>,
    /// What braked scopes may give; a stopped one is named with nothing.
    pub braked: Vec<Allowance>,
}

/// The hottest pages that would move to a node if it had room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// To this node.
    pub node: NodeId,
    /// Base pages, at least.
    pub pages: u64,
    /// Time between accesses of the least hot of them.
    pub gap: Nanos,
}

/// What the machine is asked to demote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// Its name; never used again within a run.
    pub id: u64,
    /// From this node.
    pub node: NodeId,
    /// Base pages.
    pub pages: u64,
    /// Only what has not been accessed for this long.
    pub idle: Nanos,
    /// Of scopes with a floor, at most so much; of those that are not named here, nothing.
    pub allowances: Vec<Allowance>,
    /// Of braked scopes, at most so much.
    pub braked: Vec<Allowance>,
}

impl Demand {
    /// What is told when it has ended with so many base pages demoted, in so much CPU time.
    pub fn done(&self, pages: u64, cpu: Nanos) -> Demoted {
        Demoted { id: self.id, node: self.node, pages, cpu, by_scope: Vec::new() }
    }
}

/// What came of a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demoted {
    /// The demand's name.
    pub id: u64,
    /// The demand's node.
    pub node: NodeId,
    /// Base pages that went down; a huge page more than was asked for is possible.
    pub pages: u64,
    /// CPU time that it took the machine to look for them and to demote them.
    pub cpu: Nanos,
    /// What of it came from which scope, where scopes by cgroup are configured.
    pub by_scope: Vec<(ScopeId, u64)>,
}

/// What pages are demoted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandReason {
    /// For pages that wait to come up.
    Waiting,
    /// For promotions and allocations to come: the goal.
    Goal,
    /// For allocations alone: less than half of what promotions leave is free.
    Allocations,
}

/// What a top-tier node had to give, as a demand found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// The node.
    pub node: NodeId,
    /// For how long a page must not have been accessed.
    pub idle: Nanos,
    /// What they were demoted for.
    pub reason: DemandReason,
    /// Base pages that were asked for.
    pub asked: u64,
    /// Base pages that were not found.
    pub short: u64,
}

impl Supply {
    /// Whether nearly all that was asked for was found.
    pub fn is_met(&self) -> bool {
        self.short <= self.asked / ENOUGH
    }
}
