//! Checks: may this process's memory move, and has its scope used up its share?
//!
//! A scope's share of the rate limit binds only while candidates of another scope wait: nobody pays for a share that
//! nobody else wants.

use crate::admission::RefusalReason;
use crate::admission::movable::PID_LIMIT;
use crate::admission::rate::Rate;
use crate::config;
use crate::queue::hash::FixedMap;
use crate::units::{Nanos, Pid, ScopeId};

/// Scopes, who is in them, and what each has used of the rate limit.
#[derive(Debug)]
pub(super) struct Scopes {
    /// By scope number; [`ScopeId::DEFAULT`] first.
    scopes: Vec<Scope>,
    /// Processes of other scopes than the default.
    members: FixedMap<Pid, ScopeId>,
}

#[derive(Debug)]
struct Scope {
    managed: bool,
    share: Rate,
}

impl Scopes {
    /// Without a scope that includes, everything that is not excluded is managed.
    pub(super) fn new(scopes: &[config::Scope], limit_pages: u64) -> Scopes {
        let rest = Scope { managed: scopes.iter().all(|s| s.exclude), share: Rate::new(limit_pages) };
        let named = scopes.iter().map(|s| {
            let share_pages = limit_pages * u64::from(s.rate_share_percent) / 100;
            Scope { managed: !s.exclude, share: Rate::new(share_pages) }
        });
        Scopes { scopes: std::iter::once(rest).chain(named).collect(), members: FixedMap::default() }
    }

    /// Notes a process's scope; false where the process or the scope cannot be.
    pub(super) fn assign(&mut self, pid: Pid, scope: ScopeId) -> bool {
        if pid.0 >= PID_LIMIT || usize::from(scope.0) >= self.scopes.len() {
            return false;
        }
        if scope == ScopeId::DEFAULT {
            self.members.remove(&pid);
        } else {
            self.members.insert(pid, scope);
        }
        true
    }

    pub(super) fn exit(&mut self, pid: Pid) {
        self.members.remove(&pid);
    }

    /// The scope of a process whose memory may move.
    pub(super) fn check(&self, pid: Pid) -> Result<ScopeId, RefusalReason> {
        let scope = self.members.get(&pid).copied().unwrap_or(ScopeId::DEFAULT);
        match self.scopes.get(usize::from(scope.0)) {
            Some(s) if s.managed => Ok(scope),
            _ => Err(RefusalReason::Excluded),
        }
    }

    /// Whether memory of the scope may move.
    pub(super) fn is_managed(&self, scope: ScopeId) -> bool {
        self.scopes.get(usize::from(scope.0)).is_some_and(|s| s.managed)
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
