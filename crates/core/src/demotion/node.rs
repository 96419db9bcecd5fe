//! The state kept for a top-tier node: the demand under way, and what the last ones found.

use crate::config::ScopeMap;
use crate::demand::{Allowance, DemandReason, Demoted, Supply};
use crate::demotion::Settled;
use crate::demotion::idle::Idle;
use crate::units::Nanos;

/// A demand is for at most one in this many waiting pages: the hottest quarter.
const ONE_IN_MIN: u64 = 4;
/// A demand is for at least one in this many: from a queue of a few thousand pages, those ahead of
/// all others. Ours.
const ONE_IN_MAX: u64 = 256;
/// Shortest time to the next demand after one that was not met; or an eighth of the idle time.
pub(super) const REST_MIN: Nanos = Nanos::from_ms(500);
/// Rests double at most this often: nothing says when pages cool down, and to look costs programs
/// time (see `PAYS`).
const UNMET_MAX: u32 = 4;

/// A demand that is under way.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) pages: u64,
    pub(super) idle: Nanos,
    pub(super) reason: DemandReason,
    pub(super) since: Nanos,
    /// As many pages pay for finding them.
    pub(super) pays: u64,
    pub(super) allowances: Vec<Allowance>,
    /// From the scopes when it was made to those of now, where they have changed.
    pub(super) scopes: Option<ScopeMap>,
}

impl Pending {
    /// Scopes have other numbers.
    pub(super) fn renumber(&mut self, map: &ScopeMap) {
        self.allowances.iter_mut().for_each(|allowance| allowance.scope = map.of(allowance.scope));
        let before = self.scopes.take();
        self.scopes = Some(before.map_or_else(|| map.clone(), |before| before.then(map)));
    }

    /// Pages asked for and found.
    pub(super) fn supply(&self, done: &Demoted) -> Supply {
        let short = self.pages.saturating_sub(done.pages);
        Supply { node: done.node, idle: self.idle, reason: self.reason, asked: self.pages, short }
    }

    /// How it ended.
    pub(super) fn settled(self, done: &Demoted, supply: Supply) -> Settled {
        let over = done.pages.saturating_sub(self.pages);
        let number = |scope| self.scopes.as_ref().map_or(scope, |map| map.of(scope));
        let by_scope = done.by_scope.iter().map(|(scope, pages)| (number(*scope), *pages)).collect();
        Settled { supply, over, allowances: self.allowances, by_scope }
    }
}

/// The state kept for a top-tier node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Demotion goes on until the goal and the hysteresis are met.
    pub(super) active: bool,
    pub(super) pending: Option<Pending>,
    /// No demand before this, except for allocations.
    rest_until: Nanos,
    /// No demand for allocations before this.
    allocations_rest_until: Nanos,
    /// Number of times that demands for allocations halve the idle time.
    haste: u32,
    /// A demand is for the hottest one in this many waiting pages.
    one_in: u64,
    /// Demands in a row that found too little to pay; the rest after each is twice that before.
    unmet: u32,
}

impl Default for Node {
    fn default() -> Node {
        Node {
            active: false,
            pending: None,
            rest_until: Nanos(0),
            allocations_rest_until: Nanos(0),
            haste: 0,
            one_in: ONE_IN_MIN,
            unmet: 0,
        }
    }
}

impl Node {
    /// The purpose of a demand that may be made now. `low`: new pages are about to go to lower
    /// tiers. `waited_for`: pages wait for promotion.
    pub(super) fn reason(&self, now: Nanos, low: bool, waited_for: bool) -> Option<DemandReason> {
        if self.pending.is_some() {
            None
        } else if low && now >= self.allocations_rest_until {
            Some(DemandReason::Allocations)
        } else if now >= self.rest_until {
            Some(if waited_for { DemandReason::Waiting } else { DemandReason::Goal })
        } else {
            None
        }
    }

    /// Whether a demand for any purpose may be made now.
    pub(super) fn is_rested(&self, now: Nanos) -> bool {
        self.pending.is_none() && now >= self.rest_until
    }

    /// The idle time that pages need to be demoted; `gap` is the access interval of the waiting
    /// pages, if the demand is for them.
    pub(super) fn idle(&self, idle: &mut Idle, reason: DemandReason, gap: Option<Nanos>) -> Nanos {
        match reason {
            DemandReason::Allocations => idle.hurried(self.haste),
            DemandReason::Goal | DemandReason::Waiting => idle.wanted(gap),
            DemandReason::Cap | DemandReason::Share => idle.usual(),
        }
    }

    /// A demand has ended; `pays` says whether what it found was worth looking for.
    pub(super) fn settle(&mut self, now: Nanos, supply: &Supply, pays: bool, idle: &Idle) {
        let met = supply.is_met();
        match supply.reason {
            DemandReason::Allocations if met => self.haste = self.haste.saturating_sub(1),
            DemandReason::Allocations => self.haste += u32::from(supply.idle > idle.least()),
            DemandReason::Waiting if met => self.one_in = (self.one_in / 2).max(ONE_IN_MIN),
            DemandReason::Waiting => self.one_in = (self.one_in * 2).min(ONE_IN_MAX),
            DemandReason::Goal | DemandReason::Cap | DemandReason::Share => {}
        }
        match supply.reason {
            _ if supply.short == 0 => self.unmet = 0,
            DemandReason::Allocations => self.allocations_rest_until = now.plus(REST_MIN),
            DemandReason::Goal | DemandReason::Waiting | DemandReason::Cap | DemandReason::Share => {
                let rest = REST_MIN.max(Nanos(idle.now().0 / 8));
                if met || pays {
                    self.unmet = 0;
                }
                self.rest_until = now.plus(Nanos(rest.0.saturating_mul(1 << self.unmet)));
                self.unmet = (self.unmet + u32::from(!(met || pays))).min(UNMET_MAX);
            }
        }
    }

    /// The next demand is for the hottest one in this many waiting pages.
    pub(super) fn one_in(&self) -> u64 {
        self.one_in
    }
}
