//! Shares of the top tier: whose memory goes down for a scope that lacks some of its own.
//!
//! The law:
//!  1. A scope claims what it lacks of its share, as far as its candidates for promotion wait and
//!     nothing but room or rate holds them.
//!  2. Room and rate go to claims first, and so does room for as much again as was promoted of the
//!     scope in the last 10 s; what they leave is anybody's.
//!  3. For what claims lack of room, scopes that hold more than their own share are asked, each for
//!     its own coldest memory (`by_scope`). A scope without a share has a share of its floor, or of
//!     none.
//!  4. Those furthest above go first, until all that are asked are equally far above.
//!  5. One that found nothing although any page would have done, or whose brake is closed, is
//!     passed over until it has rested.
//!  6. Nobody is asked for what would leave it with less than its share and 4 MiB.
//!  7. Other demotion takes nothing from within the share of a scope that claims more, and from
//!     within any share only what has been idle for `demotion.idle_ms`.

use crate::demand::{Allowance, DemandReason, Giving, Over};
use crate::demotion::by_scope::ByScope;
use crate::units::{Nanos, ScopeId};

/// Adds to those who hold more than they may who is asked for the claims of others.
pub(super) fn ask(giving: &mut Giving, by_scope: &ByScope, now: Nanos) {
    let claimed = giving.shares.claimed.iter().fold(0u64, |sum, claim| sum.saturating_add(claim.pages));
    let missing = claimed.saturating_sub(giving.shares.room);
    if missing == 0 {
        return;
    }
    let is_open = |of: &&Allowance| giving.brake_of(of.scope) > 0;
    let (rest, able): (Vec<Allowance>, Vec<Allowance>) =
        giving.shares.above.iter().filter(is_open).partition(|of| by_scope.gives_nothing(of.scope, now));
    let asked = level(&able, missing.saturating_sub(by_scope.under_way(DemandReason::Share)));
    // What one who rests has learned is kept, so that it is asked again when it has rested.
    let asked = asked.into_iter().chain(rest.into_iter().map(|of| (of.scope, of.pages, 0)));
    for (scope, held_pages, pages) in asked.collect::<Vec<_>>() {
        let over = Over { scope, reason: DemandReason::Share, held_pages, pages, slack_pages: 0 };
        match giving.over.iter_mut().find(|over| over.scope == scope) {
            // It is asked for what is above its cap, which is above its share, in any case.
            Some(cap) if cap.pages >= pages && cap.held_pages > cap.slack_pages => {}
            Some(cap) => *cap = over,
            None => giving.over.push(over),
        }
    }
}

/// How much each is asked for, so that `missing` pages come from those that are furthest above,
/// down to one level: scope, what it has above, what it is asked for. Whoever is asked for nothing
/// is left out unless something is missing no more, while what is under way arrives.
fn level(above: &[Allowance], missing: u64) -> Vec<(ScopeId, u64, u64)> {
    let mut all: Vec<Allowance> = above.to_vec();
    all.sort_by_key(|of| (std::cmp::Reverse(of.pages), of.scope));
    let mut sum = 0u64;
    let mut level = 0;
    for (n, of) in (1..).zip(&all) {
        sum = sum.saturating_add(of.pages);
        let next = all.get(n).map_or(0, |next| next.pages);
        let n = n as u64;
        // Down to the next one's height these alone give enough.
        if sum - next * n >= missing {
            level = (sum - missing) / n;
            break;
        }
    }
    let mut left = missing;
    let give = |of: &Allowance| {
        let pages = of.pages.saturating_sub(level).min(left);
        left -= pages;
        (of.scope, of.pages, pages)
    };
    all.iter().map(give).filter(|(_, _, pages)| missing == 0 || *pages > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(above: &[u64], missing: u64) -> Vec<(u16, u64)> {
        let above: Vec<Allowance> = (1..)
            .zip(above)
            .map(|(scope, pages)| Allowance { scope: ScopeId(scope), pages: *pages })
            .collect();
        level(&above, missing).into_iter().map(|(scope, _, pages)| (scope.0, pages)).collect()
    }

    #[test]
    fn those_furthest_above_give_down_to_one_level() {
        assert_eq!(asked(&[100, 40, 70], 20), [(1, 20)]);
        assert_eq!(asked(&[100, 40, 70], 50), [(1, 40), (3, 10)]);
        assert_eq!(asked(&[100, 40, 70], 91), [(1, 61), (3, 30)], "the level is 39.7");
        assert_eq!(asked(&[100, 40, 70], 210), [(1, 100), (3, 70), (2, 40)]);
        assert_eq!(asked(&[100, 40, 70], 999), [(1, 100), (3, 70), (2, 40)], "no more than they have");
        assert_eq!(asked(&[], 5), []);
        assert_eq!(asked(&[7, 7], 1), [(1, 1)]);
    }
}
