//! Checks: may this process's memory move, and has its scope used up its share?
//!
//! A scope's share limits it only while candidates of another scope wait, so that no part of the
//! rate limit stays unused.

use crate::access::Membership;
use crate::admission::movable::PID_LIMIT;
use crate::config::{self, ScopeMap};
use crate::hash::FixedMap;
use crate::limit::Rate;
use crate::refusal::RefusalReason;
use crate::units::{Nanos, Pid, ScopeId};

/// Scopes, their processes, and what each has used of the rate limit.
#[derive(Debug)]
pub(super) struct Scopes {
    /// By scope number; [`ScopeId::DEFAULT`] first.
    scopes: Vec<Scope>,
    /// The membership of every process that was reported; the others are `stranger`.
    known: FixedMap<Pid, Membership>,
    /// The membership of a process that was not reported.
    stranger: Membership,
}

#[derive(Debug)]
struct Scope {
    managed: bool,
    share: Rate,
}

impl Scopes {
    /// Without an including scope, every process is managed that has been examined and is not
    /// excluded; without any scope, every process.
    pub(super) fn new(scopes: &[config::Scope], limit_pages: u64) -> Scopes {
        let rest = Scope { managed: scopes.iter().all(|s| s.exclude), share: Rate::new(limit_pages) };
        let named = scopes
            .iter()
            .map(|s| Scope { managed: !s.exclude, share: Rate::new(share_pages(s, limit_pages)) });
        let stranger = match scopes {
            [] => Membership::Managed(ScopeId::DEFAULT),
            _ => Membership::Unexamined,
        };
        Scopes { scopes: std::iter::once(rest).chain(named).collect(), known: FixedMap::default(), stranger }
    }

    /// Takes other scopes, shares and another rate limit. What a scope has used goes along, and so
    /// do the members of scopes that remain, until they are examined again.
    pub(super) fn reload(&mut self, scopes: &[config::Scope], limit_pages: u64, map: &ScopeMap) {
        let before = std::mem::replace(self, Scopes::new(scopes, limit_pages));
        for (place, mut scope) in before.scopes.into_iter().enumerate() {
            let number = u16::try_from(place).map_or(ScopeId::GONE, |place| map.of(ScopeId(place)));
            if let Some(now) = self.scopes.get_mut(usize::from(number.0)) {
                scope.share.set_limit(now.share.limit());
                now.share = scope.share;
            }
        }
        // Without scopes nobody is left out, and nobody examines who that might be.
        if !map.are_none() {
            let known = before.known.into_iter().map(|(pid, was)| (pid, was.after(map)));
            self.known = known.filter(|(_, now)| *now != self.stranger).collect();
        }
    }

    /// Records the membership of a process; `None` if process or scope number is invalid, else
    /// whether the membership changed.
    pub(super) fn assign(&mut self, pid: Pid, membership: Membership) -> Option<bool> {
        let scope_exists = match membership {
            Membership::Managed(scope) => usize::from(scope.0) < self.scopes.len(),
            Membership::Excluded | Membership::Unexamined => true,
        };
        if pid.0 >= PID_LIMIT || !scope_exists {
            return None;
        }
        let before = self.membership(pid);
        if membership == self.stranger {
            self.known.remove(&pid);
        } else {
            self.known.insert(pid, membership);
        }
        Some(before != membership)
    }

    pub(super) fn exit(&mut self, pid: Pid) {
        self.known.remove(&pid);
    }

    fn membership(&self, pid: Pid) -> Membership {
        self.known.get(&pid).copied().unwrap_or(self.stranger)
    }

    /// The scope of a process whose memory may move.
    pub(super) fn check(&self, pid: Pid) -> Result<ScopeId, RefusalReason> {
        match self.membership(pid) {
            Membership::Managed(scope) if self.is_managed(scope) => Ok(scope),
            Membership::Managed(_) | Membership::Excluded => Err(RefusalReason::Excluded),
            Membership::Unexamined => Err(RefusalReason::Unexamined),
        }
    }

    /// Whether memory of the scope may move.
    pub(super) fn is_managed(&self, scope: ScopeId) -> bool {
        self.scopes.get(usize::from(scope.0)).is_some_and(|s| s.managed)
    }

    /// The scopes whose memory may move.
    pub(super) fn managed(&self) -> impl Iterator<Item = ScopeId> {
        let ids = (0..=u16::MAX).map(ScopeId).zip(&self.scopes);
        ids.filter(|(_, scope)| scope.managed).map(|(id, _)| id)
    }

    /// Whether the scope may use `pages` more of this second.
    pub(super) fn check_share(
        &mut self,
        scope: ScopeId,
        now: Nanos,
        pages: u64,
        others_wait: bool,
    ) -> Result<(), RefusalReason> {
        let fits = self.scopes.get_mut(usize::from(scope.0)).is_none_or(|s| s.share.fits(now, pages));
        if fits || !others_wait { Ok(()) } else { Err(RefusalReason::ShareExceeded) }
    }

    pub(super) fn charge(&mut self, scope: ScopeId, now: Nanos, pages: u64) {
        if let Some(s) = self.scopes.get_mut(usize::from(scope.0)) {
            s.share.charge(now, pages);
        }
    }
}

/// Base pages per second that a scope gets while others wait.
fn share_pages(scope: &config::Scope, limit_pages: u64) -> u64 {
    limit_pages * u64::from(scope.rate_share_percent) / 100
}
