//! The state of a scope's floor, cap and share, as it is shown.

use serde::{Deserialize, Serialize};

use crate::units::ScopeId;

/// The state of a scope whose holding counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The scope.
    pub scope: ScopeId,
    /// Base pages that demotion leaves in the top tier.
    pub floor_pages: u64,
    /// Whether demotion leaves all of them there.
    pub never_slow: bool,
    /// Base pages at which nothing more is promoted into it; `None` without a cap.
    pub cap_pages: Option<u64>,
    /// Base pages that it gets back when it wants them; 0 without a share.
    pub share_pages: u64,
    /// Base pages that it lacks of its share and has candidates for.
    pub claimed_pages: u64,
    /// Base pages of the top tier that it held by the last report.
    pub top_tier_pages: Option<u64>,
    /// Age of that report.
    pub age_ms: Option<u64>,
    /// Base pages in promotion that are not known to be in that figure.
    pub up_pages: u64,
    /// Base pages that are, or may be, in demotion and are not known to be gone from that figure.
    pub down_pages: u64,
    /// Base pages that may be promoted now; none where there is no cap.
    pub room_pages: Option<u64>,
    /// Base pages that may be demoted now; none where there is no floor.
    pub spare_pages: Option<u64>,
}

impl Standing {
    /// Base pages that others may claim of it.
    pub fn above_share(&self) -> u64 {
        let floor = floor(self.never_slow, self.floor_pages);
        let kept = self.share_pages.max(floor).saturating_add(self.down_pages);
        self.top_tier_pages.map_or(0, |held| held.saturating_sub(kept))
    }
}

/// Pages that demotion leaves a scope.
pub(super) fn floor(never_slow: bool, floor_pages: u64) -> u64 {
    if never_slow { u64::MAX } else { floor_pages }
}
