//! Why a scope has as much of the top tier as it has.

use serde::Serialize;

use crate::admission::{Braking, Cause, Standing};
use crate::engine::{Engine, ScopeLedger};
use crate::label::Label;
use crate::refusal::RefusalReason;
use crate::units::{PAGES_PER_MIB, ScopeId};

/// What the engine knows of a scope.
#[derive(Clone, Debug, Serialize)]
pub struct ScopeExplanation {
    /// All of it in a sentence.
    pub summary: String,
    /// What it holds and may hold, if that counts.
    pub standing: Option<Standing>,
    /// How it is braked, if it can be.
    pub brake: Option<Braking>,
    /// What was done with its memory.
    pub ledger: ScopeLedger,
    /// Base pages of it that wait to be promoted, retries left out.
    pub waiting_pages: u64,
    /// What holds most of them; `None` if their turn has not come.
    pub held: Option<RefusalReason>,
    /// Base pages that other scopes lack of their shares and have candidates for.
    pub claimed_by_others: u64,
    /// Base pages that other scopes hold above their shares and may give for its own.
    pub above_of_others: u64,
}

impl Engine {
    /// Why a scope has what it has; `None` if its memory is none that may move.
    pub fn explain_scope(&self, scope: ScopeId) -> Option<ScopeExplanation> {
        let ledger = self.ledgers().into_iter().find(|ledger| ledger.scope == scope)?;
        let standings = self.standings();
        let others = || standings.iter().filter(|standing| standing.scope != scope);
        let waiting = self.queue.waiting_of(scope);
        let most = waiting.iter().max_by_key(|(_, pages)| **pages);
        let mut explained = ScopeExplanation {
            summary: String::new(),
            standing: standings.iter().find(|standing| standing.scope == scope).copied(),
            brake: self.brakes().into_iter().find(|braking| braking.scope == scope),
            ledger,
            waiting_pages: waiting.values().sum(),
            held: most.and_then(|(held, _)| *held),
            claimed_by_others: others().map(|standing| standing.claimed_pages).sum(),
            above_of_others: others().map(Standing::above_share).sum(),
        };
        explained.summary = explained.sentence();
        Some(explained)
    }
}

impl ScopeExplanation {
    fn sentence(&self) -> String {
        let Some(standing) = &self.standing else {
            return format!(
                "what it holds is not counted: it has no floor, cap or share, and no other scope has a share; {}",
                self.waits()
            );
        };
        let Some(held) = standing.top_tier_pages else {
            return "what it holds of the top tier is not known, so that no limit of it can be kept"
                .to_owned();
        };
        let of_share = match standing.share_pages {
            0 => format!("holds {}", size(held)),
            share => format!("holds {} of its share of {}", size(held), size(share)),
        };
        if let Some(braking) = self.brake.filter(|braking| braking.by.is_some()) {
            return format!("{of_share}: {}", braked(&braking));
        }
        match standing.cap_pages {
            Some(cap) if held > cap => {
                let (above, cap) = (size(held - cap), size(cap));
                return format!("above its cap of {cap} by {above}, which go down, its coldest first");
            }
            Some(cap) if standing.room_pages == Some(0) => {
                return format!("at its cap of {}: nothing more is promoted into it", size(cap));
            }
            _ => {}
        }
        if held < standing.share_pages {
            return format!("{of_share}: {}", self.lacks(standing.claimed_pages));
        }
        let (above, share) = (held - standing.share_pages, standing.share_pages);
        let above = match (above, share) {
            (0, 0) => return format!("holds nothing of the top tier; {}", self.waits()),
            (0, _) => return format!("holds its share of {}; {}", size(share), self.waits()),
            (_, 0) => format!("holds {} without a share", size(above)),
            _ => format!("above its share of {} by {}", size(share), size(above)),
        };
        match self.claimed_by_others {
            0 => format!("{above}, which nobody wants; {}", self.waits()),
            claimed => format!(
                "{above}, and others want {} of their shares: those furthest above theirs give first",
                size(claimed)
            ),
        }
    }

    /// Why it has less than its share.
    fn lacks(&self, claimed: u64) -> String {
        match (claimed, self.waiting_pages, self.above_of_others) {
            (0, 0, _) => "nothing more of it stood out".to_owned(),
            (0, ..) => self.waits(),
            (_, _, 0) => {
                format!("{} more are wanted, and no scope holds more than its own share", size(claimed))
            }
            _ => format!("{} more are wanted, and on their way from others", size(claimed)),
        }
    }

    /// What waits, and why.
    fn waits(&self) -> String {
        match (self.waiting_pages, self.held) {
            (0, _) => "nothing more of it stood out".to_owned(),
            (pages, None) => format!("{} more wait for their turn", size(pages)),
            (pages, Some(held)) => format!("{} more wait ({})", size(pages), held.name()),
        }
    }
}

fn braked(braking: &Braking) -> String {
    let why = match braking.by {
        Some(Cause::PingPong) => "its pages went back and forth",
        _ => "its memory pressure rose with them",
    };
    match 10_000u64.checked_div(braking.rate_bp) {
        None => format!("its moves are stopped, because {why}"),
        Some(part) => format!("its moves are slowed to 1/{part}, because {why}"),
    }
}

/// An amount of memory as people say it.
fn size(pages: u64) -> String {
    let mib = pages as f64 / PAGES_PER_MIB as f64;
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    const GIB: u64 = 1024 * PAGES_PER_MIB;

    fn explained(held: u64, change: impl Fn(&mut Standing, &mut ScopeExplanation)) -> String {
        let mut standing = Standing {
            scope: ScopeId(1),
            floor_pages: 0,
            never_slow: false,
            cap_pages: None,
            share_pages: 2 * GIB,
            claimed_pages: 0,
            top_tier_pages: Some(held),
            age_ms: Some(5),
            up_pages: 0,
            down_pages: 0,
            room_pages: None,
            spare_pages: None,
        };
        let mut explained = ScopeExplanation {
            summary: String::new(),
            standing: None,
            brake: None,
            ledger: ScopeLedger { braked_ns: Nanos(0), ..ScopeLedger::default() },
            waiting_pages: 0,
            held: None,
            claimed_by_others: 0,
            above_of_others: 0,
        };
        change(&mut standing, &mut explained);
        ScopeExplanation { standing: Some(standing), ..explained }.sentence()
    }

    #[test]
    fn every_state_has_its_sentence() {
        let mib = |n: u64| n * PAGES_PER_MIB;
        let held = mib(1229);
        assert_eq!(
            explained(held, |_, _| ()),
            "holds 1.2 GiB of its share of 2.0 GiB: nothing more of it stood out"
        );
        let claims = |others: u64| {
            explained(held, |s, e| {
                (s.claimed_pages, e.waiting_pages, e.above_of_others) = (mib(300), GIB, others)
            })
        };
        assert!(claims(GIB).ends_with("2.0 GiB: 300 MiB more are wanted, and on their way from others"));
        assert!(claims(0).ends_with("300 MiB more are wanted, and no scope holds more than its own share"));
        let budget = |_: &mut Standing, e: &mut ScopeExplanation| {
            (e.waiting_pages, e.held) = (mib(7), Some(RefusalReason::BudgetSpent));
        };
        assert!(explained(held, budget).ends_with("2.0 GiB: 7 MiB more wait (budget_spent)"));
        let above = 2 * GIB + mib(300);
        assert_eq!(
            explained(above, |_, _| ()),
            "above its share of 2.0 GiB by 300 MiB, which nobody wants; nothing more of it stood out"
        );
        assert_eq!(
            explained(above, |_, e| e.claimed_by_others = mib(40)),
            "above its share of 2.0 GiB by 300 MiB, and others want 40 MiB of their shares: those furthest above theirs \
             give first"
        );
        let capped = |s: &mut Standing, _: &mut ScopeExplanation| {
            (s.cap_pages, s.room_pages) = (Some(3 * GIB), Some(0));
        };
        assert_eq!(explained(3 * GIB, capped), "at its cap of 3.0 GiB: nothing more is promoted into it");
        let over = explained(3 * GIB + mib(5), capped);
        assert_eq!(over, "above its cap of 3.0 GiB by 5 MiB, which go down, its coldest first");
        let without = |s: &mut Standing, _: &mut ScopeExplanation| s.share_pages = 0;
        assert!(explained(mib(9), without).starts_with("holds 9 MiB without a share, which nobody wants"));
        let unknown = |s: &mut Standing, _: &mut ScopeExplanation| s.top_tier_pages = None;
        assert!(explained(0, unknown).contains("is not known"));
    }
}
