//! What scopes may give to demands.

use crate::demand::{Allowance, Giving, Shares};
use crate::demotion::OVER_PAGES;
use crate::units::ScopeId;

impl Giving {
    /// Base pages that a demand may ask for: limited only if the default scope is braked, which
    /// exists only without including scopes.
    pub(super) fn most(&self) -> u64 {
        self.braked.iter().find(|a| a.scope == ScopeId::DEFAULT).map_or(u64::MAX, |a| a.pages)
    }

    /// Takes up to `pages` from the spare memory of each scope with a floor, because the engine
    /// does not know which scope the pages will come from. A scope that is barely above its floor
    /// gives nothing.
    pub(super) fn above_floors(&mut self, pages: u64) -> Vec<Allowance> {
        let share = |of: &mut Allowance| {
            let pages = of.pages.min(pages.saturating_add(OVER_PAGES));
            (pages > OVER_PAGES).then(|| take(of, pages))
        };
        self.spare.iter_mut().filter_map(share).collect()
    }

    /// The same for each scope with a share that keeps what it holds within it: all of them if not
    /// even `usual` idle time is asked for, else those that claim more. Their allowances take the
    /// place of those above their floors.
    pub(super) fn above_shares(&mut self, pages: u64, hurried: bool, allowances: &mut Vec<Allowance>) {
        let Shares { claimed, above, room, beyond } = &mut self.shares;
        // Where nobody can give, nothing comes of a claim but an exchange within the scope.
        let claims = |scope| (*room > 0 || !above.is_empty()) && claimed.iter().any(|a| a.scope == scope);
        for of in beyond.iter_mut().filter(|of| hurried || claims(of.scope)) {
            let taken = take(of, of.pages.min(pages.saturating_add(OVER_PAGES)));
            match allowances.iter_mut().find(|a| a.scope == of.scope) {
                Some(above_floor) => above_floor.pages = above_floor.pages.min(taken.pages),
                None => allowances.push(taken),
            }
        }
    }

    /// The same for each braked scope, which is listed even if it may give nothing.
    pub(super) fn by_brakes(&mut self, pages: u64) -> Vec<Allowance> {
        self.braked.iter_mut().map(|of| take(of, of.pages.min(pages))).collect()
    }
}

fn take(of: &mut Allowance, pages: u64) -> Allowance {
    of.pages -= pages;
    Allowance { scope: of.scope, pages }
}
