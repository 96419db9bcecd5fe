//! What both ways of carrying out a demand have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_core::units::{Nanos, ScopeId};

/// How long pages are evicted for a demand; what is left is asked for again.
pub(super) const SPAN: Duration = Duration::from_secs(1);
/// CPU time that is spent on aging for a demand, and again on evicting, but for the last command of
/// each: what is spent has to be paid for by rest, and a long rest would let memory fill up.
pub(super) const CPU_SPAN: Nanos = Nanos::from_ms(100);
/// Anonymous pages first: they are demoted like all others.
pub(super) const SWAPPINESS: u32 = 200;

/// What a demand took.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Base pages that went down.
    pub(super) pages: u64,
    /// What of it is known to have come from which scope.
    pub(super) by_scope: BTreeMap<ScopeId, u64>,
}
