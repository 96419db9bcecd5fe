//! Demotion: how much of each top-tier node to demote, and how long it must have been idle.
//!
//! The engine decides how much, when and from where. The machine chooses the pages, because
//! accesses in the top tier leave no evidence here (hint faults see lower tiers only). So a
//! [`Demand`] names a node, a number of pages and the time for which they must not have been
//! accessed, and the machine answers with how many it found and demoted.
//!
//! * A demand is made for a node whose free memory is below its *goal*, and asks for what is
//!   missing to goal plus hysteresis, plus the pages that wait for promotion, up to a sixteenth of
//!   the node. It never asks for more than the rate limit allows, nor for more than lower tiers
//!   have room for.
//! * A node has one demand at a time. If too few cold pages were found, the next one waits, and
//!   twice as long each time as long as what is found is not worth looking for.
//! * Its cost is bounded: after a demand the next one waits until the CPU time that the machine has
//!   spent on it is at most demotion's share of one CPU's time. So slow demotion cannot consume the
//!   gain of fast memory.
//! * Scopes with a floor give what they have above it: a demand lists how much it may take from
//!   each, and takes nothing from a scope that is not listed.
//! * A scope that holds more than its cap is asked for what is beyond, and nobody else is (see
//!   `by_scope`), and so is one that holds more than its share while another lacks some of its own
//!   (see `shares`).
//! * Braked scopes give no more in a second than their brake leaves them; a stopped one, nothing.
//! * How cold: far colder than the pages that wait for promotion (see `idle`). If promoted pages
//!   are soon accessed on lower tiers again, demoted pages were not cold enough, and the idle time
//!   doubles.
//! * If less than half of the reserve that promotions leave is free, new pages of programs are
//!   about to be allocated on lower tiers, although they are accessed at once. Then the coldest
//!   pages are demoted until the reserve is free again: each such demand that finds too little is
//!   followed by one for pages idle for half as long.
//! * The waiting pages that it makes room for are the hottest quarter. If the node has too few
//!   pages that are cold enough, the next demand is for half as many waiting pages, which are
//!   hotter, so that far colder pages are the likeliest to be found; if all were found, for twice
//!   as many.

mod allowances;
mod by_scope;
mod giving;
mod idle;
mod node;
mod reach;
mod shares;

pub use allowances::{Allowances, Kept};
pub use reach::{Reach, Subtree, reach};

use std::collections::BTreeMap;

use crate::config::{Config, ScopeMap};
use crate::demand::{Allowance, COLDER, Demand, DemandReason, Demoted, Giving, Over, Supply, Wanted};
use crate::limit::{Rate, Reserve};
use crate::published::threshold::rate_limit_pages;
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, NodeId, ScopeId};
use by_scope::ByScope;
use idle::Idle;
use node::{Node, Pending};

/// Base pages that one command to the kernel may take beyond the number asked for, plus those that
/// the kernel has not counted yet: a batch of reclaim is 64 pages (Linux 6.12 mm/vmscan.c,
/// MIN_LRU_BATCH), the last of which may be a huge page, and a per-CPU count may reach 125 pages
/// (mm/vmstat.c). A scope with at most this much above its floor is left alone.
pub const OVER_PAGES: u64 = 1024;

/// Longest idle time that a machine which ages pages waits for within a demand; a longer one passes
/// between two demands.
pub const WAIT_MAX: Nanos = Nanos::from_s(1);
/// Pages that were last aged at least this many idle times ago are aged twice: the longer ago that
/// was, the more idle pages have been accessed since then.
pub const LONG_AGO: u64 = 2;

/// How much room is made before it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Up to the goal and its hysteresis.
    Goal,
    /// None, but for allocations. Nothing is promoted into what is free, so it serves nobody.
    Nothing,
}

/// How a demand ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Pages asked for and found.
    pub supply: Supply,
    /// Base pages that were demoted beyond what was asked for.
    pub over: u64,
    /// Its allowances for scopes with a floor.
    pub allowances: Vec<Allowance>,
    /// Base pages by scope as scopes are numbered now.
    pub by_scope: Vec<(ScopeId, u64)>,
}

/// Demands that were given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Base pages that they asked for.
    pub pages: u64,
    /// Their allowances for scopes with a floor.
    pub allowances: Vec<Allowance>,
}

/// See the module's description.
#[derive(Debug)]
pub struct Demotion {
    goal_bp: u64,
    hysteresis_bp: u64,
    /// The memory that promotions leave free above the high watermark.
    reserve: Reserve,
    timeout: Nanos,
    rate: Rate,
    limit_pages: u64,
    cpu_percent: u64,
    /// The CPU time spent exceeds demotion's share until then.
    paid_until: Nanos,
    idle: Idle,
    nodes: BTreeMap<NodeId, Node>,
    by_scope: ByScope,
    next_id: u64,
}

/// A demand asks for at most this fraction of the node on behalf of pages that wait for promotion.
/// Looking for many cold pages costs about as much as for few.
const FOR_THEM: u64 = 16;
/// A demand pays if it finds one page in this many of the node. To look for them takes programs and
/// the kernel some 125 ns a page of the node, for accessed bits. An exchanged page that is accessed
/// ten times a second gains 45 us in 30 s at 150 ns an access, less 10 us for the moves. Assumed.
const PAYS: u64 = 256;

impl Demotion {
    /// With nothing demoted yet.
    pub fn new(config: &Config) -> Demotion {
        let keys = &config.demotion;
        let limit_pages = rate_limit_pages(keys.rate_limit_mbps);
        Demotion {
            goal_bp: keys.free_goal_bp.into(),
            hysteresis_bp: keys.hysteresis_bp.into(),
            reserve: Reserve::new(&config.admission),
            timeout: Nanos::from_ms(config.admission.outcome_timeout_ms),
            rate: Rate::new(limit_pages),
            limit_pages,
            cpu_percent: keys.cpu_percent.into(),
            paid_until: Nanos(0),
            idle: Idle::new(keys),
            nodes: BTreeMap::new(),
            by_scope: ByScope::new(config),
            next_id: 1,
        }
    }

    /// Takes other keys; demands under way and what was learned stay.
    pub fn reload(&mut self, config: &Config) {
        let Demotion {
            goal_bp,
            hysteresis_bp,
            reserve,
            timeout,
            limit_pages,
            cpu_percent,
            idle,
            by_scope,
            ..
        } = Demotion::new(config);
        (self.goal_bp, self.hysteresis_bp, self.reserve) = (goal_bp, hysteresis_bp, reserve);
        (self.timeout, self.limit_pages, self.cpu_percent) = (timeout, limit_pages, cpu_percent);
        self.rate.set_limit(limit_pages);
        self.idle.reload(&idle);
        self.by_scope.reload(by_scope);
    }

    /// Scopes have other numbers.
    pub fn renumber(&mut self, map: &ScopeMap) {
        for pending in self.nodes.values_mut().filter_map(|node| node.pending.as_mut()) {
            pending.renumber(map);
        }
        self.by_scope.renumber(map);
    }

    /// The number of the next demand.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The oldest demand that is under way.
    pub fn oldest(&self) -> Option<u64> {
        self.pending().map(|pending| pending.id).min()
    }

    /// The demands to make now. A node whose state is not known is left alone, and so is one with a
    /// demand under way. `wanted` lists a node at most once. Nothing that scopes may give is
    /// allowed to two demands.
    pub fn tick(
        &mut self,
        topology: &Topology,
        now: Nanos,
        states: &[NodeState],
        wanted: &[Wanted],
        ahead: Ahead,
        mut giving: Giving,
    ) -> Vec<Demand> {
        self.idle.tick(now);
        shares::ask(&mut giving, &self.by_scope, now);
        let mut room: BTreeMap<NodeId, u64> =
            states.iter().map(|s| (s.node, s.free_pages.saturating_sub(self.floor(s)))).collect();
        let mut demands = self.of_scopes(topology, now, states, &mut room, &mut giving);
        if now < self.paid_until {
            return demands;
        }
        let reserved = self.by_scope.reserved(now);
        for state in states.iter().filter(|s| topology.is_top(s.node)) {
            let missing = self.missing(state);
            let floor = self.floor(state);
            // Only up to the reserve, so that promotions gain nothing from it.
            let low = state.free_pages < u64::midpoint(state.watermarks.high_pages, floor);
            let node = self.nodes.entry(state.node).or_default();
            let wanted = wanted.iter().find(|w| w.node == state.node);
            let Some(reason) = node.reason(now, low, wanted.is_some()).filter(|_| missing > 0) else {
                continue;
            };
            let wanted = wanted.filter(|_| reason == DemandReason::Waiting);
            let missing = match reason {
                DemandReason::Allocations => floor - state.free_pages,
                DemandReason::Goal if ahead == Ahead::Nothing => 0,
                DemandReason::Goal | DemandReason::Waiting | DemandReason::Cap | DemandReason::Share => {
                    missing
                }
            };
            let for_them = wanted.map_or(0, |w| w.pages.min(state.managed_pages / FOR_THEM));
            let targets = topology.demotion_targets(state.node);
            let below: u64 = targets.iter().filter_map(|t| room.get(t)).sum();
            let rate = self.rate.room(now).saturating_sub(reserved);
            let pages = missing.saturating_add(for_them).min(below).min(rate).min(giving.most());
            if pages == 0 {
                continue;
            }
            let mut allowances = giving.above_floors(pages);
            let braked = giving.by_brakes(pages);
            let idle = node.idle(&mut self.idle, reason, wanted.map(|w| w.gap));
            giving.above_shares(pages, idle < self.idle.usual(), &mut allowances);
            node.pending = Some(Pending {
                id: self.next_id,
                pages,
                idle,
                reason,
                since: now,
                pays: state.managed_pages / PAYS,
                allowances: allowances.clone(),
                scopes: None,
            });
            self.rate.charge(now, pages);
            take(&mut room, &targets, pages);
            let (id, node) = (self.next_id, state.node);
            demands.push(Demand { id, node, pages, idle, allowances, braked, only: None });
            self.next_id += 1;
        }
        demands
    }

    /// The demands for what single scopes hold beyond what they may, or what others' shares leave.
    fn of_scopes(
        &mut self,
        topology: &Topology,
        now: Nanos,
        states: &[NodeState],
        room: &mut BTreeMap<NodeId, u64>,
        giving: &mut Giving,
    ) -> Vec<Demand> {
        self.by_scope.see(&giving.over);
        let tops = by_scope::tops(topology, states);
        let mut demands = Vec::new();
        for scope in self.by_scope.in_turn(now) {
            let Some(over) = giving.over.iter().find(|over| over.scope == scope).copied() else { continue };
            let over =
                Over { pages: over.pages.min(giving.brake_of(scope)).min(self.rate.room(now)), ..over };
            let Some(wish) = self.by_scope.wish(&over, &tops, self.idle.usual(), now) else { continue };
            let targets = topology.demotion_targets(wish.node);
            let pages = wish.pages.min(targets.iter().filter_map(|target| room.get(target)).sum());
            if pages == 0 {
                continue;
            }
            let (allowances, braked) = giving.of_scope(scope, pages);
            let pending = Pending {
                id: self.next_id,
                pages,
                idle: wish.idle,
                reason: over.reason,
                since: now,
                pays: 0,
                allowances: allowances.clone(),
                scopes: None,
            };
            self.by_scope.ask(scope, wish.node, tops.len(), pending);
            self.rate.charge(now, pages);
            take(room, &targets, pages);
            let (id, only) = (self.next_id, Some(scope));
            demands.push(Demand { id, node: wish.node, pages, idle: wish.idle, allowances, braked, only });
            self.next_id += 1;
        }
        demands
    }

    /// Whether a node that had too little free memory when it was last seen, or a scope that held
    /// too much, may have a demand now.
    pub fn is_due(&self, now: Nanos) -> bool {
        let of_nodes = self.nodes.values().any(|node| node.active && node.is_rested(now));
        (now >= self.paid_until && of_nodes) || self.by_scope.is_due(now)
    }

    /// A demand has ended at `now`; `None` if it is not under way.
    pub fn done(&mut self, now: Nanos, done: &Demoted) -> Option<Settled> {
        if let Some(settled) = self.by_scope.done(now, done) {
            self.idle.demoted(done.pages);
            return Some(settled);
        }
        let node = self.nodes.get_mut(&done.node)?;
        let pending = node.pending.take_if(|pending| pending.id == done.id)?;
        let supply = pending.supply(done);
        node.settle(now, &supply, done.pages >= pending.pays, &self.idle);
        let earned_by = done.cpu.0.saturating_mul(100) / self.cpu_percent;
        self.paid_until = self.paid_until.max(now).plus(Nanos(earned_by));
        self.idle.demoted(done.pages);
        Some(pending.settled(done, supply))
    }

    /// Gives up demands whose end never came.
    pub fn lose(&mut self, now: Nanos) -> Lost {
        let timeout = self.timeout;
        let overdue = |p: &Pending| now.since(p.since) >= timeout;
        let of_nodes = self.nodes.values_mut().filter_map(|n| n.pending.take_if(|p| overdue(p)));
        let mut lost = Lost::default();
        for pending in of_nodes.chain(self.by_scope.lose(overdue)) {
            lost.pages += pending.pages;
            lost.allowances.extend(pending.allowances);
        }
        lost
    }

    /// `pages` base pages that were promoted within the ping-pong window have been accessed on a
    /// lower tier since.
    pub fn came_back(&mut self, pages: u64) {
        self.idle.came_back(pages);
    }

    /// The next demand from this node is for the hottest one in this many of the pages that wait
    /// for its room.
    pub fn one_in(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or_else(|| Node::default().one_in(), Node::one_in)
    }

    /// Whether a demoted page that comes back after such a wait was no colder than the pages
    /// promoted in its place.
    pub fn is_early(&self, wait: Nanos) -> bool {
        wait <= Nanos(self.idle().0 / COLDER)
    }

    /// Base pages of demands that are under way.
    pub fn pending_pages(&self) -> u64 {
        self.pending().map(|pending| pending.pages).sum()
    }

    fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.nodes.values().filter_map(|node| node.pending.as_ref()).chain(self.by_scope.pending())
    }

    /// The idle time that a page needs now.
    pub fn idle(&self) -> Nanos {
        self.idle.now()
    }

    /// Free pages at which demotion from this node begins.
    pub fn goal(&self, state: &NodeState) -> u64 {
        self.floor(state).saturating_add(part(state, self.goal_bp))
    }

    /// Free pages at which it ends.
    pub fn enough(&self, state: &NodeState) -> u64 {
        self.goal(state).saturating_add(part(state, self.hysteresis_bp))
    }

    /// Free pages available to worthwhile promotions: down to a hysteresis below the goal, so that
    /// a demand follows.
    pub fn spare(&self, state: &NodeState) -> u64 {
        let left = self.goal(state).saturating_sub(part(state, self.hysteresis_bp));
        state.free_pages.saturating_sub(left)
    }

    /// Base pages that may be demoted in any second.
    pub fn limit_pages(&self) -> u64 {
        self.limit_pages
    }

    fn floor(&self, state: &NodeState) -> u64 {
        self.reserve.floor(state)
    }

    /// Pages missing on a node; updates whether demotion goes on there.
    fn missing(&mut self, state: &NodeState) -> u64 {
        let (goal, enough) = (self.goal(state), self.enough(state));
        let node = self.nodes.entry(state.node).or_default();
        node.active = state.free_pages < if node.active { enough } else { goal };
        if node.active { enough - state.free_pages } else { 0 }
    }
}

fn part(state: &NodeState, bp: u64) -> u64 {
    state.managed_pages.saturating_mul(bp) / 10_000
}

/// Subtracts `pages` from the room of `targets`, first ones first.
fn take(room: &mut BTreeMap<NodeId, u64>, targets: &[NodeId], mut pages: u64) {
    for target in targets {
        if let Some(left) = room.get_mut(target) {
            let taken = pages.min(*left);
            *left -= taken;
            pages -= taken;
        }
    }
}

#[cfg(test)]
mod tests;
