//! Checks: floor, cap and share of a scope's memory in the top tier, and their accounting.
//!
//! The machine reports a scope's holding of the top tier from time to time. In between the engine
//! accounts for its own requests, on the safe side: a page in promotion counts as present, and a
//! page in demotion as gone, from the request until the first report after its outcome, whatever
//! that outcome was. So at every moment, as far as our own moves go (`told` is the holding reported
//! last),
//!
//! ```text
//! pages there <= told + up     a promotion is admitted while  told + up + its pages <= cap
//! pages there >= told - down   a demotion is admitted while   told - down - its pages >= floor
//! ```
//!
//! What is above a cap is demoted: by demands for that scope alone, from a little above the cap on,
//! down to the cap.
//!
//! What a scope lacks of its share is claimed as far as its candidates wait, and what others hold
//! above theirs is demoted for that (see `demotion::shares`). Where one has a share, all scopes
//! count. Room is kept for as much again as was promoted of it lately: candidates come a few at a
//! time, and others would take the room of the next ones in between.
//!
//! Without a recent report neither is admitted. Moves between lower tiers are counted as if they
//! were to or from the top.

use std::collections::BTreeMap;

use crate::access::Holding;
use crate::admission::claims::Claims;
use crate::admission::lately::Lately;
use crate::admission::standing::{Standing, floor};
use crate::config::{self, ScopeMap};
use crate::demand::{Allowance, DemandReason, Over};
use crate::demotion::OVER_PAGES;
use crate::moves::Direction;
use crate::refusal::RefusalReason;
use crate::units::{Nanos, PAGES_PER_MIB, ScopeId};

/// How long a report is valid: a machine reports once a second or more often.
const GOOD_FOR: Nanos = Nanos::from_s(5);

/// What is above a cap is demoted from this fraction of the cap on. The kernel counts a scope's
/// memory with an error of 64 pages a CPU, and a scope at its cap allocates and frees all the time.
/// Ours.
const SLACK_DIVISOR: u64 = 64;

/// Pages moving in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    in_flight: u64,
    /// Settled since the last report of the scope's holding.
    settled: u64,
}

impl Flow {
    fn pages(self) -> u64 {
        self.in_flight.saturating_add(self.settled)
    }

    fn settle(&mut self, pages: u64) {
        self.in_flight = self.in_flight.saturating_sub(pages);
        self.settled = self.settled.saturating_add(pages);
    }
}

#[derive(Clone, Debug)]
struct Limit {
    scope: ScopeId,
    floor_pages: u64,
    never_slow: bool,
    cap_pages: Option<u64>,
    share_pages: u64,
    /// Time and value of the last report of the holding.
    told: Option<(Nanos, u64)>,
    up: Flow,
    down: Flow,
    /// What was promoted of it lately.
    lately: Lately,
    /// Its holding is not believed yet.
    is_fenced: bool,
}

impl Limit {
    fn holding(&self, now: Nanos) -> Option<u64> {
        self.told.filter(|(time, _)| now.since(*time) < GOOD_FOR).map(|(_, pages)| pages)
    }

    /// Pages that may be promoted, if there is a cap.
    fn room(&self, now: Nanos) -> Option<Result<u64, RefusalReason>> {
        let cap_pages = self.cap_pages?;
        let held = self.holding(now).ok_or(RefusalReason::ScopeUnknown);
        Some(held.map(|held| cap_pages.saturating_sub(held.saturating_add(self.up.pages()))))
    }

    /// Pages that demotion leaves it.
    fn floor(&self) -> u64 {
        floor(self.never_slow, self.floor_pages)
    }

    /// Pages that may be demoted, if there is a floor.
    fn spare(&self, now: Nanos) -> Option<Result<u64, RefusalReason>> {
        let floor_pages = Some(self.floor()).filter(|floor| *floor > 0)?;
        let held = self.holding(now).ok_or(RefusalReason::ScopeUnknown);
        Some(held.map(|held| held.saturating_sub(self.down.pages()).saturating_sub(floor_pages)))
    }

    /// Pages above its share, or above its floor if it has no share: what others may claim. `None`
    /// while its holding is unknown.
    fn above(&self, now: Nanos) -> Option<u64> {
        let kept = self.share_pages.max(self.floor());
        Some(self.holding(now)?.saturating_sub(self.down.pages()).saturating_sub(kept))
    }

    /// The same without what a command may take beyond what it is asked for.
    fn gives(&self, now: Nanos) -> u64 {
        let margin = if self.share_pages.max(self.floor()) > 0 { OVER_PAGES } else { 0 };
        self.above(now).map_or(0, |above| above.saturating_sub(margin))
    }

    /// Pages that it lacks of its share, as far as it wants them.
    fn claim(&self, now: Nanos, wanted: u64) -> u64 {
        let held = self.holding(now).map(|held| held.saturating_add(self.up.pages()));
        held.map_or(0, |held| self.share_pages.saturating_sub(held).min(wanted))
    }

    /// What is above the cap, if there is one and the holding is known. A command may take a little
    /// more than it is asked for, so as much is left above the floor.
    fn over(&self, now: Nanos) -> Option<Over> {
        let cap_pages = self.cap_pages?;
        let kept = Some(self.floor()).filter(|floor| *floor > 0);
        let kept = kept.map_or(0, |floor| floor.saturating_add(OVER_PAGES)).max(cap_pages);
        let held = self.holding(now)?;
        let over = Over {
            scope: self.scope,
            reason: DemandReason::Cap,
            held_pages: held.saturating_sub(kept),
            pages: held.saturating_sub(self.down.pages()).saturating_sub(kept),
            slack_pages: OVER_PAGES.max(cap_pages / SLACK_DIVISOR),
        };
        (over.held_pages > 0).then_some(over)
    }

    fn flow(&mut self, direction: Direction) -> Option<&mut Flow> {
        match direction {
            Direction::Promote => Some(&mut self.up),
            Direction::Demote => Some(&mut self.down),
            Direction::Balance => None,
        }
    }
}

/// Floors, caps, shares and the accounting of the scopes that have them.
#[derive(Debug)]
pub(super) struct Limits {
    /// By scope number.
    scopes: Vec<Option<Limit>>,
}

impl Limits {
    pub(super) fn new(scopes: &[config::Scope]) -> Limits {
        let pages = |mib: u64| mib.saturating_mul(PAGES_PER_MIB);
        let mut limits = vec![None; scopes.len() + 1];
        for place in config::counted(scopes) {
            let scope = &scopes[place];
            limits[place + 1] = Some(Limit {
                scope: ScopeId::of_place(place),
                floor_pages: pages(scope.top_tier_floor_mib),
                never_slow: scope.never_slow,
                cap_pages: scope.top_tier_cap_mib.map(pages),
                share_pages: pages(scope.top_tier_share_mib),
                told: None,
                up: Flow::default(),
                down: Flow::default(),
                lately: Lately::default(),
                is_fenced: false,
            });
        }
        Limits { scopes: limits }
    }

    /// Takes other scopes, floors and caps. A scope that had neither, or another cgroup, begins
    /// anew: `up` returns its pages whose promotion is in flight. Others may be on their way into
    /// its cgroup or out of it uncounted, so its holding is not believed before they have arrived.
    pub(super) fn reload(
        &mut self,
        before: &[config::Scope],
        after: &[config::Scope],
        map: &ScopeMap,
        up: impl Fn(ScopeId) -> u64,
    ) {
        let mut limits = Limits::new(after);
        limits.scopes.iter_mut().flatten().for_each(|limit| limit.is_fenced = true);
        for (place, was) in before.iter().enumerate() {
            let number = map.of(ScopeId::of_place(place));
            let known = self.scopes.get_mut(place + 1).and_then(Option::take);
            let (Some(known), Some(limit)) = (known, limits.of_mut(number)) else { continue };
            let now = after.get(usize::from(number.0) - 1);
            if now.is_some_and(|now| now.cgroup_alone() == was.cgroup_alone()) {
                *limit = Limit { told: known.told, up: known.up, down: known.down, ..limit.clone() };
                (limit.lately, limit.is_fenced) = (known.lately, known.is_fenced);
            } else {
                (limit.up, limit.down) = (known.up, known.down);
            }
        }
        for limit in limits.scopes.iter_mut().flatten().filter(|limit| limit.is_fenced) {
            limit.up.in_flight = up(limit.scope);
        }
        *self = limits;
    }

    /// What was on its way when scopes changed has arrived.
    pub(super) fn unfence(&mut self) {
        self.scopes.iter_mut().flatten().for_each(|limit| limit.is_fenced = false);
    }

    fn of(&self, scope: ScopeId) -> Option<&Limit> {
        self.scopes.get(usize::from(scope.0))?.as_ref()
    }

    fn of_mut(&mut self, scope: ScopeId) -> Option<&mut Limit> {
        self.scopes.get_mut(usize::from(scope.0))?.as_mut()
    }

    /// Takes a holding; false if the scope has no limit. A holding older than the last one is
    /// ignored.
    pub(super) fn tell(&mut self, holding: &Holding) -> bool {
        let Some(limit) = self.of_mut(holding.scope) else { return false };
        if !limit.is_fenced && limit.told.is_none_or(|(time, _)| time <= holding.time) {
            limit.told = Some((holding.time, holding.pages));
            limit.up.settled = 0;
            limit.down.settled = 0;
        }
        true
    }

    /// Discards the holdings, because the top tier has changed.
    pub(super) fn forget(&mut self) {
        self.scopes.iter_mut().flatten().for_each(|limit| limit.told = None);
    }

    /// The door: if there is no room for a single page, the candidate would only take others'
    /// places in the queue.
    #[inline]
    pub(super) fn door(&self, scope: ScopeId, direction: Direction, now: Nanos) -> Result<(), RefusalReason> {
        match self.check(scope, direction, 1, now) {
            Err(RefusalReason::ScopeUnknown) => Ok(()),
            known => known,
        }
    }

    /// Whether the scope's limits allow `pages` to move.
    pub(super) fn check(
        &self,
        scope: ScopeId,
        direction: Direction,
        pages: u64,
        now: Nanos,
    ) -> Result<(), RefusalReason> {
        let Some(limit) = self.of(scope) else { return Ok(()) };
        let (left, reason) = match direction {
            Direction::Promote => (limit.room(now), RefusalReason::ScopeCap),
            Direction::Demote => (limit.spare(now), RefusalReason::ScopeFloor),
            Direction::Balance => (None, RefusalReason::ScopeUnknown),
        };
        match left.transpose()? {
            Some(left) if left < pages => Err(reason),
            _ => Ok(()),
        }
    }

    /// Charges pages of the scope that start to move.
    pub(super) fn charge(&mut self, scope: ScopeId, direction: Direction, pages: u64) {
        if let Some(flow) = self.of_mut(scope).and_then(|limit| limit.flow(direction)) {
            flow.in_flight = flow.in_flight.saturating_add(pages);
        }
    }

    /// Settles pages whose outcome is known, or will never be known.
    pub(super) fn settle(&mut self, scope: ScopeId, direction: Direction, pages: u64) {
        if let Some(flow) = self.of_mut(scope).and_then(|limit| limit.flow(direction)) {
            flow.settle(pages);
        }
    }

    /// What may be demoted from each scope with a floor; scopes with nothing to spare are left out.
    pub(super) fn spare(&self, now: Nanos) -> Vec<Allowance> {
        let limits = self.scopes.iter().flatten();
        let spare = limits.filter_map(|l| Some(Allowance { scope: l.scope, pages: l.spare(now)?.ok()? }));
        spare.filter(|allowance| allowance.pages > 0).collect()
    }

    /// The scopes that hold more than their cap.
    pub(super) fn over(&self, now: Nanos) -> Vec<Over> {
        self.scopes.iter().flatten().filter_map(|limit| limit.over(now)).collect()
    }

    pub(super) fn has_shares(&self) -> bool {
        self.scopes.iter().flatten().any(|limit| limit.share_pages > 0)
    }

    /// Records that pages of the scope are promoted at `now`.
    pub(super) fn promoted(&mut self, scope: ScopeId, now: Nanos, pages: u64) {
        if let Some(limit) = self.of_mut(scope).filter(|limit| limit.share_pages > 0) {
            limit.lately.add(now, pages);
        }
    }

    pub(super) fn lacks_share(&self, scope: ScopeId, now: Nanos) -> bool {
        self.of(scope).is_some_and(|limit| limit.claim(now, 1) > 0)
    }

    pub(super) fn anyone_lacks_share(&self, now: Nanos) -> bool {
        self.scopes.iter().flatten().any(|limit| limit.claim(now, 1) > 0)
    }

    /// What scopes claim; `waiting` has the base pages that each would hold more if it could.
    pub(super) fn claims(&self, now: Nanos, waiting: &BTreeMap<ScopeId, u64>) -> Claims {
        self.wanted(now, waiting, |_| 0)
    }

    /// What is kept for scopes: what they claim, and will soon if as much comes as came lately.
    pub(super) fn kept(&self, now: Nanos, waiting: &BTreeMap<ScopeId, u64>) -> Claims {
        self.wanted(now, waiting, |limit| limit.lately.pages(now))
    }

    fn wanted(&self, now: Nanos, waiting: &BTreeMap<ScopeId, u64>, soon: impl Fn(&Limit) -> u64) -> Claims {
        let claim = |limit: &Limit| {
            let waiting = waiting.get(&limit.scope).copied().unwrap_or(0);
            (limit.scope, limit.claim(now, waiting.saturating_add(soon(limit))))
        };
        Claims::of(self.scopes.iter().flatten().map(claim).filter(|(_, pages)| *pages > 0))
    }

    /// What each scope may give to claims; those with nothing above their share are left out.
    pub(super) fn above(&self, now: Nanos) -> Vec<Allowance> {
        let all = self.scopes.iter().flatten();
        let gives = all.map(|limit| Allowance { scope: limit.scope, pages: limit.gives(now) });
        gives.filter(|allowance| allowance.pages > 0).collect()
    }

    /// What each scope with a share has above it; nothing while its holding is unknown.
    pub(super) fn beyond_shares(&self, now: Nanos) -> Vec<Allowance> {
        let shared = self.scopes.iter().flatten().filter(|limit| limit.share_pages > 0);
        shared.map(|l| Allowance { scope: l.scope, pages: l.above(now).unwrap_or(0) }).collect()
    }

    /// The state of each scope that counts.
    pub(super) fn standings(&self, now: Nanos, waiting: &BTreeMap<ScopeId, u64>) -> Vec<Standing> {
        let waiting = |scope| waiting.get(&scope).copied().unwrap_or(0);
        let standing = |l: &Limit| Standing {
            scope: l.scope,
            floor_pages: l.floor_pages,
            never_slow: l.never_slow,
            cap_pages: l.cap_pages,
            share_pages: l.share_pages,
            claimed_pages: l.claim(now, waiting(l.scope)),
            top_tier_pages: l.told.map(|(_, pages)| pages),
            age_ms: l.told.map(|(time, _)| now.since(time).ms()),
            up_pages: l.up.pages(),
            down_pages: l.down.pages(),
            room_pages: l.room(now).map(|room| room.unwrap_or(0)),
            spare_pages: l.spare(now).map(|spare| spare.unwrap_or(0)),
        };
        self.scopes.iter().flatten().map(standing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Balance, Demote, Promote};
    use RefusalReason::{ScopeCap, ScopeFloor, ScopeUnknown};

    const A: ScopeId = ScopeId(2);

    /// The second scope has a floor of 256 pages and a cap of 512.
    fn limits() -> Limits {
        let limited =
            config::Scope { top_tier_floor_mib: 1, top_tier_cap_mib: Some(2), ..Default::default() };
        Limits::new(&[config::Scope::default(), limited])
    }

    fn tell(limits: &mut Limits, s: u64, pages: u64) {
        assert!(limits.tell(&Holding { scope: A, time: Nanos::from_s(s), pages }));
    }

    #[test]
    fn what_is_on_its_way_counts_until_it_is_told() {
        let mut l = limits();
        let now = Nanos::from_s(1);
        tell(&mut l, 1, 400);
        assert_eq!(l.check(A, Promote, 112, now), Ok(()));
        assert_eq!(l.check(A, Promote, 113, now), Err(ScopeCap));
        l.charge(A, Promote, 112);
        assert_eq!(l.door(A, Promote, now), Err(ScopeCap));
        l.settle(A, Promote, 112);
        assert_eq!(l.door(A, Promote, now), Err(ScopeCap), "whatever came of it");
        tell(&mut l, 0, 0);
        assert_eq!(l.door(A, Promote, now), Err(ScopeCap), "what is older says nothing");
        tell(&mut l, 2, 410);
        assert_eq!(l.check(A, Promote, 102, now), Ok(()));
        // The same downwards.
        assert_eq!(l.spare(now), [Allowance { scope: A, pages: 154 }]);
        l.charge(A, Demote, 154);
        assert_eq!(l.check(A, Demote, 1, now), Err(ScopeFloor));
        assert!(l.spare(now).is_empty());
        l.settle(A, Demote, 154);
        assert_eq!(l.standings(now, &BTreeMap::new())[0].down_pages, 154);
        tell(&mut l, 3, 256);
        assert_eq!(
            (l.standings(now, &BTreeMap::new())[0].down_pages, l.check(A, Demote, 1, now)),
            (0, Err(ScopeFloor))
        );
    }

    #[test]
    fn room_is_kept_for_what_was_promoted_lately_up_to_the_share() {
        let shared = config::Scope { top_tier_share_mib: 2, ..Default::default() };
        let mut l = Limits::new(&[config::Scope::default(), shared]);
        let kept = |l: &Limits, s, waiting| {
            let waiting = BTreeMap::from([(A, waiting)]);
            [l.claims(Nanos::from_s(s), &waiting), l.kept(Nanos::from_s(s), &waiting)].map(|c| c.of_scope(A))
        };
        tell(&mut l, 1, 100);
        l.promoted(A, Nanos::from_s(1), 80);
        l.promoted(ScopeId(1), Nanos::from_s(1), 80);
        assert_eq!([0, 50, 400].map(|waiting| kept(&l, 1, waiting)), [[0, 80], [50, 130], [400, 412]]);
        tell(&mut l, 15, 500);
        assert_eq!(kept(&l, 15, 50), [12, 12]);
        tell(&mut l, 15, 400);
        assert_eq!(kept(&l, 15, 0), [0, 40], "half of the window has passed");
        tell(&mut l, 20, 400);
        assert_eq!(kept(&l, 20, 0), [0, 0], "it wants no more");
    }

    #[test]
    fn nothing_moves_on_a_holding_that_is_unknown_or_old() {
        let mut l = limits();
        assert_eq!(l.check(A, Promote, 1, Nanos(0)), Err(ScopeUnknown));
        assert_eq!(l.door(A, Promote, Nanos(0)), Ok(()), "it will pass");
        tell(&mut l, 1, 300);
        let late = Nanos::from_s(6);
        assert_eq!(l.check(A, Promote, 1, Nanos(late.0 - 1)), Ok(()));
        assert_eq!((l.check(A, Promote, 1, late), l.spare(late)), (Err(ScopeUnknown), Vec::new()));
        l.forget();
        assert_eq!(l.check(A, Demote, 1, Nanos::from_s(1)), Err(ScopeUnknown));
        assert_eq!(l.check(A, Balance, 1, late), Ok(()), "it stays in its tier");
    }

    #[test]
    fn a_new_cap_waits_for_what_was_on_its_way_and_a_scope_that_stays_keeps_its_account() {
        let capped = |name: &str| config::Scope {
            name: name.to_owned(),
            cgroup: Some(format!("/{name}")),
            top_tier_cap_mib: Some(2),
            ..Default::default()
        };
        let (before, after) = ([capped("a"), capped("b")], [capped("b"), capped("c")]);
        let mut l = Limits::new(&before);
        let now = Nanos::from_s(1);
        tell(&mut l, 1, 400);
        l.charge(A, Promote, 100);
        l.reload(&before, &after, &ScopeMap::new(&before, &after), |_| 7);
        let (b, c) = (ScopeId(1), ScopeId(2));
        assert_eq!((l.check(b, Promote, 12, now), l.check(b, Promote, 13, now)), (Ok(()), Err(ScopeCap)));
        tell(&mut l, 1, 0);
        assert_eq!(l.check(c, Promote, 1, now), Err(ScopeUnknown), "others may be on their way into it");
        l.unfence();
        tell(&mut l, 1, 0);
        assert_eq!((l.check(c, Promote, 505, now), l.check(c, Promote, 506, now)), (Ok(()), Err(ScopeCap)));
        // Another cgroup under the same name is another account.
        let moved = [config::Scope { cgroup: Some("/x".to_owned()), ..capped("b") }];
        l.reload(&after, &moved, &ScopeMap::new(&after, &moved), |_| 0);
        assert_eq!(l.check(b, Promote, 1, now), Err(ScopeUnknown));
    }

    #[test]
    fn scopes_without_limits_are_not_told_of() {
        let mut l = limits();
        let now = Nanos(0);
        for scope in [ScopeId::DEFAULT, ScopeId(1), ScopeId(9)] {
            assert!(!l.tell(&Holding { scope, time: now, pages: 1 }));
            assert_eq!(
                (l.check(scope, Promote, 999, now), l.check(scope, Demote, 999, now)),
                (Ok(()), Ok(()))
            );
            l.charge(scope, Promote, 5);
        }
        assert_eq!(l.standings(now, &BTreeMap::new()).len(), 1);
    }
}
