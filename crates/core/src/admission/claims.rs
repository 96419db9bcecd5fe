//! Check: room and rate are kept for scopes that lack some of their share and have candidates.
//!
//! A scope *claims* what it lacks of its share, as far as its candidates wait. Others may be
//! promoted into what claims leave, so that nothing stays unused for long: a candidate that does
//! not move expires, and claims no more.

use std::collections::BTreeMap;

use crate::demand::Allowance;
use crate::refusal::RefusalReason;
use crate::units::ScopeId;

/// What scopes claim at a tick, in base pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    by_scope: BTreeMap<ScopeId, u64>,
    sum: u64,
}

impl Claims {
    pub(super) fn of(claims: impl Iterator<Item = (ScopeId, u64)>) -> Claims {
        let by_scope: BTreeMap<ScopeId, u64> = claims.collect();
        let sum = by_scope.values().fold(0u64, |sum, pages| sum.saturating_add(*pages));
        Claims { by_scope, sum }
    }

    /// Base pages claimed by all scopes.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Base pages claimed by one.
    pub fn of_scope(&self, scope: ScopeId) -> u64 {
        self.by_scope.get(&scope).copied().unwrap_or(0)
    }

    /// What each claims.
    pub(super) fn by_scope(&self) -> impl Iterator<Item = Allowance> {
        self.by_scope.iter().map(|(scope, pages)| Allowance { scope: *scope, pages: *pages })
    }

    /// Whether `pages` of a scope may be promoted, with so much room or rate left.
    pub(super) fn check(&self, scope: ScopeId, pages: u64, left: u64) -> Result<(), RefusalReason> {
        let own = self.of_scope(scope);
        let others = self.sum - own;
        // A folio that is partly beyond its own share counts as beyond.
        if others == 0 || own >= pages || left >= others.saturating_add(pages) {
            Ok(())
        } else {
            Err(RefusalReason::KeptForShare)
        }
    }

    /// `pages` of a scope are on their way.
    pub(super) fn take(&mut self, scope: ScopeId, pages: u64) {
        if let Some(claim) = self.by_scope.get_mut(&scope) {
            let taken = pages.min(*claim);
            *claim -= taken;
            self.sum -= taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_claims_leave_is_anybodys() {
        let (a, b, c) = (ScopeId(1), ScopeId(2), ScopeId(3));
        let mut claims = Claims::of([(a, 100), (b, 50)].into_iter());
        let kept = Err(RefusalReason::KeptForShare);
        assert_eq!((claims.check(c, 10, 160), claims.check(c, 10, 159)), (Ok(()), kept));
        assert_eq!((claims.check(a, 100, 0), claims.check(a, 101, 0)), (Ok(()), kept));
        claims.take(a, 60);
        assert_eq!((claims.sum(), claims.of_scope(a), claims.check(c, 10, 100)), (90, 40, Ok(())));
        claims.take(a, 512);
        claims.take(b, 50);
        claims.take(c, 50);
        assert_eq!((claims.sum(), claims.check(c, 10, 0)), (0, Ok(())), "nobody claims");
    }
}
