//! Check: does the target keep its goal?
//!
//! move_pages allocates on its target and reclaims there directly when the target is short (Linux
//! mm/migrate.c), at the expense of the moved process. So a folio goes to a node only if that
//! leaves the node's free pages, less everything in flight to it, at or above the high watermark
//! plus a reserve: `admission.free_goal_mib`, but at most a hundredth of a small node.

use std::collections::BTreeMap;

use crate::limit::Reserve;
use crate::refusal::RefusalReason;
use crate::topology::NodeState;
use crate::units::NodeId;

/// How many pages every node can take at this tick.
#[derive(Debug)]
pub(super) struct Rooms {
    /// Pages above the high watermark and the goal, by node.
    nodes: BTreeMap<NodeId, u64>,
}

impl Rooms {
    /// `on_their_way` gives the base pages in flight towards a node.
    pub(super) fn new(states: &[NodeState], reserve: Reserve, on_their_way: impl Fn(NodeId) -> u64) -> Rooms {
        let room = |state: &NodeState| {
            let free = state.free_pages.saturating_sub(on_their_way(state.node));
            free.saturating_sub(reserve.floor(state))
        };
        Rooms { nodes: states.iter().map(|s| (s.node, room(s))).collect() }
    }

    /// The first of `targets` with room for `pages`, else the reason of the target that is closest
    /// to having it.
    pub(super) fn check(&self, targets: &[NodeId], pages: u64) -> Result<NodeId, RefusalReason> {
        let mut reason = RefusalReason::NodeUnknown;
        for target in targets {
            match self.nodes.get(target) {
                Some(room) if *room >= pages => return Ok(*target),
                Some(1..) => reason = RefusalReason::BelowGoal,
                Some(0) if reason == RefusalReason::NodeUnknown => reason = RefusalReason::NodeFull,
                _ => {}
            }
        }
        Err(reason)
    }

    /// Base pages that all of `targets` can take together.
    pub(super) fn sum(&self, targets: &[NodeId]) -> u64 {
        targets.iter().filter_map(|target| self.nodes.get(target)).sum()
    }

    /// Records that `pages` go to `target`.
    pub(super) fn take(&mut self, target: NodeId, pages: u64) {
        if let Some(room) = self.nodes.get_mut(&target) {
            *room = room.saturating_sub(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Watermarks;

    fn state(node: u16, free_pages: u64) -> NodeState {
        let watermarks = Watermarks { high_pages: 100, ..Watermarks::default() };
        NodeState { node: NodeId(node), free_pages, managed_pages: 10_000, watermarks }
    }

    #[test]
    fn what_is_on_its_way_counts_as_used() {
        let rooms = Rooms::new(&[state(0, 1000)], Reserve::of_pages(50), |_| 350);
        assert_eq!(rooms.check(&[NodeId(0)], 500), Ok(NodeId(0)));
        assert_eq!(rooms.check(&[NodeId(0)], 501), Err(RefusalReason::BelowGoal));
        let rooms = Rooms::new(&[state(0, 1000)], Reserve::of_pages(50), |_| 850);
        assert_eq!(rooms.check(&[NodeId(0)], 1), Err(RefusalReason::NodeFull));
    }

    #[test]
    fn the_next_target_is_taken_when_the_first_is_full() {
        let mut rooms = Rooms::new(&[state(0, 110), state(1, 200)], Reserve::of_pages(5), |_| 0);
        let both = [NodeId(0), NodeId(1)];
        assert_eq!(rooms.check(&both, 5), Ok(NodeId(0)));
        assert_eq!(rooms.check(&both, 6), Ok(NodeId(1)));
        rooms.take(NodeId(1), 95);
        assert_eq!(rooms.check(&both, 6), Err(RefusalReason::BelowGoal), "node 0 has room for 5");
        rooms.take(NodeId(0), 5);
        assert_eq!(rooms.check(&both, 1), Err(RefusalReason::NodeFull));
        assert_eq!(rooms.check(&[NodeId(9)], 1), Err(RefusalReason::NodeUnknown));
    }
}
