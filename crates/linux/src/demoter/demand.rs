//! Common parts of the ways to carry out a demand.

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_core::units::{Nanos, ScopeId};

/// Time limit of eviction for a demand; the rest is asked for again.
pub(super) const SPAN: Duration = Duration::from_secs(1);
/// CPU time limit of aging for a demand, and again of evicting, except for the last command of
/// each: the time spent is followed by a proportional rest, and in a long rest memory would fill
/// up.
pub(super) const CPU_SPAN: Nanos = Nanos::from_ms(100);
/// Anonymous pages first: they are demoted like all others.
pub(super) const SWAPPINESS: u32 = 200;

/// The pages taken for a demand.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Base pages demoted.
    pub(super) pages: u64,
    /// The pages by scope, as far as known.
    pub(super) by_scope: BTreeMap<ScopeId, u64>,
}
