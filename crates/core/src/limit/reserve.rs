//! The memory that promotions leave free on a node, so that programs can allocate there without
//! reclaim.

use crate::config;
use crate::topology::NodeState;
use crate::units::PAGES_PER_MIB;

/// The reserve is at most this fraction of a node: 16 MiB are little on a node of hundreds of GiB
/// and much on one of 256 MiB.
const RESERVE_DIVISOR: u64 = 100;

/// The memory that promotions leave free.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    pages: u64,
}

impl Reserve {
    /// The configured reserve.
    pub fn new(keys: &config::Admission) -> Reserve {
        Reserve { pages: keys.free_goal_mib.saturating_mul(PAGES_PER_MIB) }
    }

    /// A reserve of `pages` base pages.
    #[cfg(test)]
    pub(crate) const fn of_pages(pages: u64) -> Reserve {
        Reserve { pages }
    }

    /// Free base pages of a node that promotions do not go below.
    pub fn floor(self, state: &NodeState) -> u64 {
        state.watermarks.high_pages.saturating_add(self.pages.min(state.managed_pages / RESERVE_DIVISOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Watermarks;

    fn state(managed_pages: u64) -> NodeState {
        let watermarks = Watermarks { high_pages: 100, ..Watermarks::default() };
        NodeState { managed_pages, watermarks, ..NodeState::default() }
    }

    #[test]
    fn a_small_node_keeps_a_hundredth_free_and_a_large_one_what_is_configured() {
        let reserve = Reserve::new(&config::Admission::default());
        assert_eq!(reserve.floor(&state(10_000)), 100 + 100);
        assert_eq!(reserve.floor(&state(1 << 26)), 100 + 4096);
    }
}
