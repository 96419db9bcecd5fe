//! What was done with the memory of each scope.

use std::collections::BTreeMap;

use crate::config::ScopeMap;
use crate::demand::DemandReason;
use crate::demotion::Settled;
use crate::engine::Engine;
use crate::moves::Direction;
use crate::units::{Nanos, ScopeId};

crate::statistics! {
    /// What was done with the memory of a scope since the start.
    ScopeLedger "scope" {
        /// Base pages of the scope that were promoted.
        promoted: u64, "pages", Counter;
        /// Base pages of the scope that were demoted, by moves and by demands; the latter are known
        /// by scope where scopes are cgroups.
        demoted: u64, "pages", Counter;
        /// Base pages of the scope that were promoted and soon accessed on a lower tier again,
        /// which `came_back` counts for all.
        came_back: u64, "pages", Counter;
        /// Base pages of the scope that were demoted because others lacked some of their share;
        /// part of `demoted`.
        evicted: u64, "pages", Counter;
        /// How long the scope's brake has slowed or stopped its moves, by whole periods.
        braked_ns: Nanos, "ns", Counter;
    }
    beside {
        /// The scope.
        scope: ScopeId;
    }
}

/// The ledgers of all scopes of which something was moved.
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    by_scope: BTreeMap<ScopeId, ScopeLedger>,
}

impl Ledgers {
    fn of(&mut self, scope: ScopeId) -> &mut ScopeLedger {
        self.by_scope.entry(scope).or_insert(ScopeLedger { scope, ..ScopeLedger::default() })
    }

    pub(super) fn moved(&mut self, scope: ScopeId, direction: Direction, pages: u64) {
        match direction {
            Direction::Promote => self.of(scope).promoted += pages,
            Direction::Demote => self.of(scope).demoted += pages,
            Direction::Balance => {}
        }
    }

    pub(super) fn came_back(&mut self, scope: ScopeId, pages: u64) {
        self.of(scope).came_back += pages;
    }

    pub(super) fn demoted(&mut self, settled: &Settled) {
        for (scope, pages) in settled.by_scope.iter().filter(|(scope, _)| *scope != ScopeId::GONE) {
            let ledger = self.of(*scope);
            ledger.demoted += pages;
            if settled.supply.reason == DemandReason::Share {
                ledger.evicted += pages;
            }
        }
    }

    /// Scopes have other numbers; those that are gone are forgotten.
    pub(super) fn renumber(&mut self, map: &ScopeMap) {
        let before = std::mem::take(&mut self.by_scope);
        for (scope, ledger) in before.into_values().map(|ledger| (map.of(ledger.scope), ledger)) {
            if scope != ScopeId::GONE {
                self.by_scope.insert(scope, ScopeLedger { scope, ..ledger });
            }
        }
    }
}

impl Engine {
    /// The ledger of each scope whose memory may move.
    pub fn ledgers(&self) -> Vec<ScopeLedger> {
        let ledger = |(scope, braked_ns)| {
            let known = self.ledgers.by_scope.get(&scope).cloned();
            ScopeLedger { scope, braked_ns, ..known.unwrap_or_default() }
        };
        self.admission.braked_for().map(ledger).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::Supply;
    use crate::units::NodeId;

    fn settled(reason: DemandReason, by_scope: &[(ScopeId, u64)]) -> Settled {
        let supply = Supply { node: NodeId(0), idle: Nanos(0), reason, asked: 10, short: 0 };
        Settled { supply, over: 0, allowances: Vec::new(), by_scope: by_scope.to_vec() }
    }

    #[test]
    fn what_goes_down_for_others_is_part_of_what_goes_down() {
        let (a, b) = (ScopeId(1), ScopeId(2));
        let mut ledgers = Ledgers::default();
        ledgers.moved(a, Direction::Promote, 7);
        ledgers.moved(a, Direction::Demote, 2);
        ledgers.moved(b, Direction::Balance, 99);
        ledgers.demoted(&settled(DemandReason::Waiting, &[(a, 3), (b, 4), (ScopeId::GONE, 9)]));
        ledgers.demoted(&settled(DemandReason::Share, &[(b, 5)]));
        ledgers.came_back(b, 1);
        let a = ScopeLedger { promoted: 7, demoted: 5, scope: a, ..ScopeLedger::default() };
        let b = ScopeLedger { demoted: 9, evicted: 5, came_back: 1, scope: b, ..ScopeLedger::default() };
        assert_eq!(ledgers.by_scope.into_values().collect::<Vec<_>>(), [a, b]);
    }
}
