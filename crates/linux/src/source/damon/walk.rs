//! Looks up the pages of accessed regions of lower tiers, the hottest first, within a budget.
//!
//! A snapshot is walked until all of its pages have been looked up, but for at most two seconds.
//! Then the newest one replaces it, because its hottest regions matter more than the lukewarm ones
//! of an old one. So a large region is spread over ticks.

use std::collections::BTreeMap;

use thermocline_core::access::{Region, RegionPage, RegionSnapshot, RegionSpace};
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, NodeId, Pfn};

use crate::reverse::Resident;
use crate::source::Owners;
use crate::source::budget::Budget;

/// Time limit for a snapshot.
const WALK_MAX: Nanos = Nanos::from_s(2);
/// Minimum time between the starts of two walks: candidates of the last one are still in flight.
const WALK_EVERY: Nanos = Nanos::from_ms(500);

/// The walk through one node's regions.
#[derive(Debug)]
struct Walk {
    node: NodeId,
    /// When the walk of the present regions began; `None` before the first.
    began: Option<Nanos>,
    time: Nanos,
    /// The remaining regions, the hottest last.
    regions: Vec<Region>,
    /// The next page of the hottest; before its first page initially.
    at: u64,
    /// The newest regions, to be walked next.
    next: Option<(Nanos, Vec<Region>)>,
}

/// The walks of all nodes.
#[derive(Debug)]
pub(super) struct Walks {
    budget: Budget,
    walks: BTreeMap<NodeId, Walk>,
    looked_up: u64,
    cut_short: u64,
}

impl Walks {
    pub(super) fn new(pages_per_s: u32) -> Walks {
        Walks { budget: Budget::new(pages_per_s), walks: BTreeMap::new(), looked_up: 0, cut_short: 0 }
    }

    /// Takes the newest regions of a node, if it is of a lower tier.
    pub(super) fn offer(&mut self, snapshot: &RegionSnapshot, topology: &Topology) {
        let Some(RegionSpace::Physical(node)) = snapshot.regions.first().map(|region| region.space) else {
            return;
        };
        if !topology.is_lower(node) {
            self.walks.remove(&node);
            return;
        }
        let accessed = snapshot.regions.iter().copied().filter(|region| region.access_rate_bp > 0);
        let mut regions: Vec<Region> = accessed.collect();
        regions.sort_by_key(|r| (r.access_rate_bp, r.age, std::cmp::Reverse(r.start)));
        let fresh =
            || Walk { node, began: None, time: snapshot.time, regions: Vec::new(), at: 0, next: None };
        let walk = self.walks.entry(node).or_insert_with(fresh);
        walk.next = Some((snapshot.time, regions));
    }

    /// Looks up pages, an equal share for each node, and appends those found.
    pub(super) fn walk(
        &mut self,
        now: Nanos,
        owners: &mut (impl Owners + ?Sized),
        pages: &mut Vec<RegionPage>,
    ) {
        let mut budget = self.budget.available(now);
        for walk in self.walks.values_mut() {
            self.cut_short += u64::from(walk.turn(now));
        }
        let mut left = self.walks.values().filter(|walk| !walk.regions.is_empty()).count() as u64;
        for walk in self.walks.values_mut().filter(|walk| !walk.regions.is_empty()) {
            let share = budget / left.max(1);
            let used = walk.step(share, owners, pages);
            (budget, left) = (budget - used, left - 1);
            self.looked_up += used;
            self.budget.spend(used);
        }
    }

    /// Pages looked up, and walks given up for newer ones.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.looked_up, self.cut_short)
    }
}

impl Walk {
    /// Switches to the newest regions when due; returns whether others were dropped for them.
    fn turn(&mut self, now: Nanos) -> bool {
        let every = if self.regions.is_empty() { WALK_EVERY } else { WALK_MAX };
        if self.next.is_none() || self.began.is_some_and(|began| now.since(began) < every) {
            return false;
        }
        let cut_short = !self.regions.is_empty();
        if let Some((time, regions)) = self.next.take() {
            (self.began, self.time, self.regions, self.at) = (Some(now), time, regions, 0);
        }
        cut_short
    }

    /// Looks up at most `most` pages; returns their number.
    fn step(&mut self, most: u64, owners: &mut (impl Owners + ?Sized), pages: &mut Vec<RegionPage>) -> u64 {
        let mut used = 0;
        while used < most {
            let Some(&region) = self.regions.last() else { break };
            let at = Pfn(self.at.max(region.start));
            if at.0 >= region.end {
                self.regions.pop();
                self.at = 0;
                continue;
            }
            used += 1;
            self.at = at.0 + 1;
            let Some(Resident { page, pfn, order }) = owners.owner(at) else { continue };
            // The page may reach beyond the region, and its head may lie before it.
            self.at = self.at.max(pfn.0.saturating_add(1 << order));
            pages.push(RegionPage { page, pfn: Some(pfn), order, node: self.node, region, time: self.time });
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::{Pid, VirtPage};

    use super::super::testing::{self, topology};
    use super::*;

    /// Every frame is that of process 1 with the same number, from 1 << 20 on in huge pages; odd
    /// frames below 64 have no known owner.
    struct Everybody;

    impl Owners for Everybody {
        fn owner(&mut self, pfn: Pfn) -> Option<Resident> {
            let order = if pfn.0 < 1 << 20 { 0 } else { 9 };
            let head = Pfn(pfn.0 >> order << order);
            let page = VirtPage { pid: Pid(1), vpn: head.0 };
            (pfn.0 >= 64 || pfn.0.is_multiple_of(2)).then_some(Resident { page, pfn: head, order })
        }
    }

    fn snapshot(node: u16, time_ms: u64, regions: &[(u64, u64, u16)]) -> RegionSnapshot {
        testing::snapshot(RegionSpace::Physical(NodeId(node)), time_ms, regions)
    }

    fn walk(walks: &mut Walks, at_ms: u64) -> Vec<u64> {
        let mut pages = Vec::new();
        walks.walk(Nanos::from_ms(at_ms), &mut Everybody, &mut pages);
        pages.iter().map(|at| at.pfn.unwrap().0).collect()
    }

    #[test]
    fn the_hottest_come_first_and_the_budget_spreads_the_rest() {
        let mut walks = Walks::new(400);
        let regions = [(100, 300, 500), (300, 350, 9000), (350, 1000, 0)];
        walks.offer(&snapshot(2, 0, &regions), &topology());
        // The budget saved in a quarter of a second, and no more.
        let first = walk(&mut walks, 0);
        assert_eq!(first, (300..350).chain(100..150).collect::<Vec<_>>());
        assert_eq!(walk(&mut walks, 100), (150..190).collect::<Vec<_>>());
        assert_eq!(walk(&mut walks, 1500).len(), 100);
        assert_eq!(walk(&mut walks, 1600), (290..300).collect::<Vec<_>>(), "and the rest was not accessed");
        assert_eq!((walk(&mut walks, 1700), walks.counts()), (vec![], (250, 0)));
    }

    #[test]
    fn a_newer_snapshot_waits_for_its_turn_but_not_for_ever() {
        let mut walks = Walks::new(400);
        walks.offer(&snapshot(2, 0, &[(100, 1 << 19, 500)]), &topology());
        assert_eq!(walk(&mut walks, 0).len(), 100);
        walks.offer(&snapshot(2, 100, &[(70, 80, 500)]), &topology());
        assert_eq!(walk(&mut walks, 1999)[0], 200);
        assert_eq!(walk(&mut walks, 2250), (70..80).collect::<Vec<_>>());
        assert_eq!(walks.counts().1, 1);
        walks.offer(&snapshot(2, 2251, &[(80, 90, 500)]), &topology());
        assert!(walk(&mut walks, 2600).is_empty(), "too soon for another");
        assert_eq!(walk(&mut walks, 2750).len(), 10);
    }

    #[test]
    fn frames_of_nobody_count_and_huge_pages_count_once() {
        let mut walks = Walks::new(400);
        let huge = 1 << 20;
        let regions = [(0, 64, 900), (huge + 7, huge + 1024 + 1, 500)];
        walks.offer(&snapshot(2, 0, &regions), &topology());
        let found = walk(&mut walks, 0);
        assert_eq!(found[..32], (0..32).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(found[32..], [huge, huge + 512, huge + 1024]);
        assert_eq!(walks.counts().0, 64 + 3);
    }

    #[test]
    fn nobody_is_looked_for_in_the_top_tier() {
        let mut walks = Walks::new(400);
        walks.offer(&snapshot(0, 0, &[(100, 300, 500)]), &topology());
        assert!(walk(&mut walks, 0).is_empty());
    }
}
