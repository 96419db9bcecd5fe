//! NUMA balancing's state of the nodes that it promotes to.

use thermocline_core::published::threshold::{RateLimit, Threshold};
use thermocline_core::units::Nanos;

/// The kernel's state of a node that pages are promoted to.
#[derive(Clone, Debug, Default)]
pub struct Balance {
    /// The hot threshold.
    pub threshold: Threshold,
    /// The rate limit's window.
    pub rate: RateLimit,
    /// Candidates so far, in pages.
    pub candidates: u64,
    /// When the threshold was adjusted, and its new value in ms.
    pub course: Vec<(Nanos, u64)>,
}
