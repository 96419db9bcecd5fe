//! Demands for what single scopes hold beyond what they may.
//!
//! * A scope is asked from its slack on, until nothing is beyond: promotion stops at the cap, so
//!   what the two leave between them is neither promoted nor demoted.
//! * Its own coldest memory goes first. What is not idle for long enough does not end it: each time
//!   that every top-tier node has given too little, a quarter of the idle time is enough, down to
//!   none. The kernel keeps what is accessed all the time even then: if next to nothing is found,
//!   the next demands wait, twice as long each time.
//! * What may not be there is asked for in small parts.
//! * One scope after the other: the one whose last demand is longest ago.
//! * All scopes together give no more in a second than a rate of their own, which is at most half
//!   of demotion's. That much is kept for them while one is asked, and the other half for everybody
//!   else. Their CPU time is an account of its own too, half as large.

use std::collections::BTreeMap;

use crate::config::{Config, ScopeMap};
use crate::demand::{Allowance, DemandReason, Demoted, Giving, Over, Supply};
use crate::demotion::node::{Pending, REST_MIN};
use crate::demotion::{OVER_PAGES, Settled};
use crate::limit::Rate;
use crate::published::threshold::rate_limit_pages;
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, NodeId, ScopeId};

/// Each round that finds too little divides the idle time by this.
const HASTE: u64 = 4;
/// A shorter idle time is none: a clock tick of the kernel may take as long.
const NONE_BELOW: Nanos = Nanos::from_ms(10);
/// Rests double at most this often: memory that cannot be moved may become movable.
const UNMET_MAX: u32 = 4;
/// Less than this part of what was asked for is next to nothing. A demand is cut off after some CPU
/// time, so that on a slow machine it may find no more than this at once, and go on.
const LITTLE: u64 = 16;
/// A demand after one that found too little asks for at most this fraction of a second's pages, so
/// that what is not found does not use up the rate; and one for less than the excess for at least
/// as much, because each has a cost of its own.
const PART: u64 = 8;

/// See the module's description.
#[derive(Debug)]
pub(super) struct ByScope {
    /// `None`: what a scope holds stays where it is.
    rate: Option<Rate>,
    cpu_percent: u64,
    paid_until: Nanos,
    scopes: BTreeMap<ScopeId, Scope>,
    asked: BTreeMap<NodeId, Asked>,
}

/// What is remembered of a scope that was asked.
#[derive(Clone, Debug, Default)]
struct Scope {
    /// It is asked until nothing is beyond.
    active: bool,
    /// Its last demand was met.
    met: bool,
    /// The number of its last demand.
    last: u64,
    /// Demands made, met ones left out: the next one is for the next node in turn.
    turn: usize,
    /// Nodes in a row that gave too little.
    short: usize,
    /// Number of times that the idle time is divided.
    haste: u32,
    /// One of them gave something.
    fruitful: bool,
    /// Rounds in a row that gave next to nothing although any page would have done.
    unmet: u32,
    rest_until: Nanos,
}

/// A demand that is under way.
#[derive(Clone, Debug)]
struct Asked {
    scope: ScopeId,
    pending: Pending,
    /// Top-tier nodes when it was made.
    nodes: usize,
}

/// A demand to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) node: NodeId,
    pub(super) pages: u64,
    pub(super) idle: Nanos,
}

impl ByScope {
    pub(super) fn new(config: &Config) -> ByScope {
        let keys = &config.demotion;
        let half = (rate_limit_pages(keys.rate_limit_mbps) / 2).max(1);
        let rate = match keys.scope_rate_mbps {
            0 => None,
            mbps => Some(Rate::new(rate_limit_pages(mbps).min(half))),
        };
        ByScope {
            rate,
            cpu_percent: keys.cpu_percent.into(),
            paid_until: Nanos(0),
            scopes: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// Takes the keys of `new`; demands under way and what was learned stay.
    pub(super) fn reload(&mut self, new: ByScope) {
        self.cpu_percent = new.cpu_percent;
        match (&mut self.rate, new.rate) {
            (Some(rate), Some(new)) => rate.set_limit(new.limit()),
            (rate, new) => *rate = new,
        }
    }

    /// Scopes have other numbers.
    pub(super) fn renumber(&mut self, map: &ScopeMap) {
        let before = std::mem::take(&mut self.scopes);
        let renumbered = before.into_iter().map(|(scope, of)| (map.of(scope), of));
        self.scopes = renumbered.filter(|(scope, _)| *scope != ScopeId::GONE).collect();
        for asked in self.asked.values_mut() {
            asked.scope = map.of(asked.scope);
            asked.pending.renumber(map);
        }
    }

    /// Sees which scopes hold more than they may.
    pub(super) fn see(&mut self, over: &[Over]) {
        if self.rate.is_none() {
            self.scopes.clear();
            return;
        }
        for (scope, of) in &mut self.scopes {
            if of.active && over.iter().all(|over| over.scope != *scope) {
                (of.active, of.met, of.fruitful) = (false, false, false);
                of.haste = of.haste.saturating_sub(1);
                (of.short, of.unmet, of.rest_until) = (0, 0, Nanos(0));
            }
        }
        for over in over.iter().filter(|over| over.held_pages > over.slack_pages) {
            self.scopes.entry(over.scope).or_default().active = true;
        }
    }

    /// Whether the scope was asked for any page it has, found too little, and rests.
    pub(super) fn gives_nothing(&self, scope: ScopeId, now: Nanos) -> bool {
        self.scopes.get(&scope).is_some_and(|of| of.unmet > 0 && now < of.rest_until)
    }

    /// Base pages of demands under way that were made for this reason.
    pub(super) fn under_way(&self, reason: DemandReason) -> u64 {
        self.pending().filter(|pending| pending.reason == reason).map(|pending| pending.pages).sum()
    }

    /// Base pages of this second that are kept for scopes.
    pub(super) fn reserved(&mut self, now: Nanos) -> u64 {
        let asks = self.scopes.values().any(|scope| scope.active);
        self.rate.as_mut().filter(|_| asks).map_or(0, |rate| rate.room(now))
    }

    /// Whether a scope may be asked now.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.paid_until && self.scopes.iter().any(|(id, scope)| self.may_ask(*id, scope, now))
    }

    fn may_ask(&self, id: ScopeId, scope: &Scope, now: Nanos) -> bool {
        scope.active && now >= scope.rest_until && self.asked.values().all(|asked| asked.scope != id)
    }

    /// The scopes that may be asked now, in their order.
    pub(super) fn in_turn(&self, now: Nanos) -> Vec<ScopeId> {
        if now < self.paid_until {
            return Vec::new();
        }
        let may = self.scopes.iter().filter(|(id, scope)| self.may_ask(**id, scope, now));
        let mut turns: Vec<(u64, ScopeId)> = may.map(|(id, scope)| (scope.last, *id)).collect();
        turns.sort_unstable();
        turns.into_iter().map(|(_, id)| id).collect()
    }

    /// The demand for a scope's next node in turn, as far as the rate allows; `usual` is the idle
    /// time without haste.
    pub(super) fn wish(&mut self, over: &Over, tops: &[NodeId], usual: Nanos, now: Nanos) -> Option<Wish> {
        let of = self.scopes.get(&over.scope)?;
        let node = *tops.get(of.turn.checked_rem(tops.len())?)?;
        let rate = self.rate.as_mut().filter(|_| !self.asked.contains_key(&node))?;
        let part = (rate.limit() / PART).max(1);
        let most = if of.met { over.pages } else { over.pages.min(part) };
        let pages = most.min(rate.room(now));
        let enough = pages > 0 && (pages == most || pages >= part);
        enough.then(|| Wish { node, pages, idle: of.idle(usual) })
    }

    /// Records that a demand was made.
    pub(super) fn ask(&mut self, scope: ScopeId, node: NodeId, nodes: usize, pending: Pending) {
        self.scopes.entry(scope).or_default().last = pending.id;
        if let Some(rate) = &mut self.rate {
            rate.charge(pending.since, pending.pages);
        }
        self.asked.insert(node, Asked { scope, pending, nodes });
    }

    /// A demand has ended at `now`; `None` if it is none of these.
    pub(super) fn done(&mut self, now: Nanos, done: &Demoted) -> Option<Settled> {
        let of_node = self.asked.get(&done.node).filter(|asked| asked.pending.id == done.id)?.clone();
        self.asked.remove(&done.node);
        let Asked { scope, pending, nodes } = of_node;
        let supply = pending.supply(done);
        if let Some(of) = self.scopes.get_mut(&scope) {
            of.settle(now, &supply, nodes);
        }
        let earned_by = done.cpu.0.saturating_mul(200) / self.cpu_percent;
        self.paid_until = self.paid_until.max(now).plus(Nanos(earned_by));
        Some(pending.settled(done, supply))
    }

    /// Takes out the demands whose end never came.
    pub(super) fn lose(&mut self, overdue: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let lost: Vec<NodeId> =
            self.asked.iter().filter(|(_, asked)| overdue(&asked.pending)).map(|(node, _)| *node).collect();
        lost.iter().filter_map(|node| self.asked.remove(node)).map(|asked| asked.pending).collect()
    }

    /// The demands under way.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.asked.values().map(|asked| &asked.pending)
    }
}

impl Scope {
    fn idle(&self, usual: Nanos) -> Nanos {
        let idle = Nanos(usual.0 / HASTE.saturating_pow(self.haste));
        if idle < NONE_BELOW { Nanos(0) } else { idle }
    }

    fn settle(&mut self, now: Nanos, supply: &Supply, nodes: usize) {
        self.met = supply.is_met();
        if self.met {
            (self.short, self.fruitful, self.unmet) = (0, false, 0);
            return;
        }
        self.turn = self.turn.wrapping_add(1);
        self.fruitful |= supply.asked.saturating_sub(supply.short) > supply.asked / LITTLE;
        self.short += 1;
        if self.short < nodes {
            return;
        }
        self.short = 0;
        let fruitful = std::mem::take(&mut self.fruitful);
        if fruitful {
            self.unmet = 0;
        }
        self.rest_until = now.plus(Nanos(REST_MIN.0 << self.unmet));
        if supply.idle > Nanos(0) {
            self.haste += 1;
        } else if !fruitful {
            self.unmet = (self.unmet + 1).min(UNMET_MAX);
        }
    }
}

/// The nodes of the top tier whose state is known.
pub(super) fn tops(topology: &Topology, states: &[NodeState]) -> Vec<NodeId> {
    states.iter().map(|state| state.node).filter(|node| topology.is_top(*node)).collect()
}

impl Giving {
    /// What a demand for one scope may take of it: what is beyond its floor, if it has one, so that
    /// others are not allowed the same.
    pub(super) fn of_scope(&mut self, scope: ScopeId, pages: u64) -> (Vec<Allowance>, Vec<Allowance>) {
        let most = match self.spare.iter_mut().find(|of| of.scope == scope) {
            Some(of) => {
                let pages = of.pages.min(pages.saturating_add(OVER_PAGES));
                of.pages -= pages;
                pages
            }
            None => pages,
        };
        let braked = self.braked.iter_mut().find(|of| of.scope == scope).map(|of| {
            let pages = of.pages.min(pages);
            of.pages -= pages;
            Allowance { scope, pages }
        });
        (vec![Allowance { scope, pages: most }], braked.into_iter().collect())
    }

    /// Base pages that the scope's brake leaves it to give.
    pub(super) fn brake_of(&self, scope: ScopeId) -> u64 {
        self.braked.iter().find(|of| of.scope == scope).map_or(u64::MAX, |of| of.pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_while_next_to_nothing_is_found() {
        let (mut scope, now) = (Scope::default(), Nanos::from_s(100));
        let mut rest = |found: u64| {
            let (asked, short) = (1000, 1000 - found);
            let supply =
                Supply { node: NodeId(0), idle: Nanos(0), reason: DemandReason::Share, asked, short };
            scope.settle(now, &supply, 1);
            scope.rest_until.since(now).ms()
        };
        assert_eq!([0, 10, 0, 62, 0, 0].map(&mut rest), [500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!([63, 500, 63].map(&mut rest), [500, 500, 500], "a part at a time");
        assert_eq!([0, 0].map(&mut rest), [500, 1000]);
    }
}
