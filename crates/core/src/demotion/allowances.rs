//! What a demand may still take from each scope while it is carried out.

use std::collections::BTreeMap;

use crate::demand::{Allowance, Demand};
use crate::demotion::{OVER_PAGES, Subtree};
use crate::units::ScopeId;

/// What may still be taken: of one scope only, if the demand says so, from scopes with a floor what
/// they have above it, from those that keep their share the same, from braked ones what their brake
/// leaves.
#[derive(Clone, Debug)]
pub struct Allowances {
    only: Option<ScopeId>,
    above_floors: BTreeMap<ScopeId, u64>,
    by_brakes: BTreeMap<ScopeId, u64>,
}

/// Why a scope gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The demand is for another scope's memory.
    Elsewhere,
    /// Its brake lets nothing go.
    Brake,
    /// It has no more than its floor, or than the share that it keeps, or hardly more.
    Floor,
}

impl Allowances {
    /// The limits of a demand of which nothing has been taken yet.
    pub fn of(demand: &Demand) -> Allowances {
        let pages = |of: &[Allowance]| of.iter().map(|a| (a.scope, a.pages)).collect();
        Allowances {
            only: demand.only,
            above_floors: pages(&demand.allowances),
            by_brakes: pages(&demand.braked),
        }
    }

    /// The base pages that a command may ask for from a cgroup of this subtree; `None` is memory
    /// outside every scope. The scope stays above its floor even if the command takes more than
    /// asked for.
    pub fn left(&self, subtree: Option<&Subtree>) -> u64 {
        if self.only.is_some_and(|only| subtree.is_none_or(|subtree| subtree.scope != only)) {
            return 0;
        }
        let Some(Subtree { scope, floor, .. }) = subtree else { return u64::MAX };
        let above = self.above_floors.get(scope).map(|pages| pages.saturating_sub(OVER_PAGES));
        let above = match above {
            None if *floor => 0,
            Some(above) if *floor || self.only.is_none() => above,
            // A demand for a scope without a floor asks for no more than what is above.
            _ => u64::MAX,
        };
        above.min(self.by_brake(*scope))
    }

    /// Why nothing is left of a subtree, or of memory outside every scope; `None` if something is.
    pub fn kept(&self, subtree: Option<&Subtree>) -> Option<Kept> {
        if self.left(subtree) > 0 {
            return None;
        }
        Some(match subtree {
            Some(subtree) if self.only.is_none_or(|only| only == subtree.scope) => {
                if self.by_brake(subtree.scope) == 0 { Kept::Brake } else { Kept::Floor }
            }
            _ => Kept::Elsewhere,
        })
    }

    /// Base pages were asked for, or taken, of a scope.
    pub fn take(&mut self, scope: ScopeId, pages: u64) {
        for of in [&mut self.above_floors, &mut self.by_brakes] {
            if let Some(left) = of.get_mut(&scope) {
                *left = left.saturating_sub(pages);
            }
        }
    }

    fn by_brake(&self, scope: ScopeId) -> u64 {
        self.by_brakes.get(&scope).copied().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanos, NodeId};

    fn subtree(scope: u16, floor: bool) -> Subtree {
        Subtree { path: format!("/{scope}"), scope: ScopeId(scope), floor }
    }

    fn demand(only: Option<u16>, floors: &[(u16, u64)], brakes: &[(u16, u64)]) -> Demand {
        let of = |all: &[(u16, u64)]| {
            all.iter().map(|(scope, pages)| Allowance { scope: ScopeId(*scope), pages: *pages }).collect()
        };
        Demand {
            id: 1,
            node: NodeId(0),
            pages: 100,
            idle: Nanos(0),
            allowances: of(floors),
            braked: of(brakes),
            only: only.map(ScopeId),
        }
    }

    #[test]
    fn what_is_for_one_scope_comes_from_no_other() {
        let all = Allowances::of(&demand(None, &[], &[(3, 0)]));
        let one = Allowances::of(&demand(Some(1), &[], &[(3, 0)]));
        let (a, b, stopped) = (subtree(1, false), subtree(2, false), subtree(3, false));
        assert_eq!([None, Some(&a), Some(&b)].map(|of| all.left(of)), [u64::MAX; 3]);
        assert_eq!([None, Some(&a), Some(&b)].map(|of| one.left(of)), [0, u64::MAX, 0]);
        assert_eq!(
            [None, Some(&a), Some(&b)].map(|of| one.kept(of)),
            [Some(Kept::Elsewhere), None, Some(Kept::Elsewhere)]
        );
        assert_eq!(
            (all.kept(Some(&stopped)), one.kept(Some(&stopped))),
            (Some(Kept::Brake), Some(Kept::Elsewhere))
        );
    }

    #[test]
    fn what_was_taken_is_not_left() {
        let mut left = Allowances::of(&demand(Some(1), &[(1, OVER_PAGES + 50)], &[(1, 70)]));
        let floor = subtree(1, true);
        assert_eq!(left.left(Some(&floor)), 50);
        left.take(ScopeId(1), 45);
        assert_eq!((left.left(Some(&floor)), left.kept(Some(&floor))), (5, None));
        left.take(ScopeId(1), 5);
        assert_eq!(left.kept(Some(&floor)), Some(Kept::Floor));
        left.take(ScopeId(1), 20);
        assert_eq!(left.kept(Some(&floor)), Some(Kept::Brake));
    }
}
