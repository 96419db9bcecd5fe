//! The self-description of a program with known behaviour, for the judge.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thermocline_core::units::{Nanos, NodeId};

use super::hot_set::HotLayout;

/// Written when the memory is ready, and again at each drift.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The program.
    pub pid: u32,
    /// Virtual address of its page 0.
    pub base: u64,
    /// Number of pages of 4 KiB.
    pub pages: u32,
    /// Share (0 to 1) of pages that are hot, as asked.
    pub hot_share: f64,
    /// Share (0 to 1) of accesses that go to hot pages, as asked.
    pub access_share: f64,
    /// How hot grains lie.
    pub hot_layout: HotLayout,
    /// Pages that are hot or cold together.
    pub grain_pages: u32,
    /// Seed of the shuffle and of the accesses.
    pub seed: u64,
    /// When each set of hot pages came into force (CLOCK_MONOTONIC); the last is the present one.
    pub phases: Vec<Nanos>,
    /// The present hot pages as [first, end) in page numbers from `base`, ascending.
    pub hot_ranges: Vec<(u32, u32)>,
}

impl Report {
    /// For each page, whether it is hot.
    ///
    /// # Errors
    /// When the ranges do not lie within the pages.
    pub fn is_hot(&self) -> anyhow::Result<Vec<bool>> {
        let mut hot = vec![false; self.pages as usize];
        for &(first, end) in &self.hot_ranges {
            hot.get_mut(first as usize..end as usize)
                .ok_or_else(|| {
                    anyhow::anyhow!("the report's hot range {first}..{end} is not within its pages")
                })?
                .fill(true);
        }
        Ok(hot)
    }
}

/// Pages by node; those on none (swapped out or absent) separately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residency {
    /// Pages by node.
    pub by_node: BTreeMap<NodeId, u64>,
    /// Pages on no node.
    pub absent: u64,
}

impl Residency {
    /// Counts one page.
    pub fn add(&mut self, node: Option<NodeId>) {
        match node {
            Some(node) => *self.by_node.entry(node).or_default() += 1,
            None => self.absent += 1,
        }
    }

    /// All pages.
    pub fn pages(&self) -> u64 {
        self.by_node.values().sum::<u64>() + self.absent
    }

    /// The share (0 to 1) of pages that are on one of `nodes`; 0 without pages.
    pub fn share(&self, nodes: &[NodeId]) -> f64 {
        let on: u64 = nodes.iter().filter_map(|node| self.by_node.get(node)).sum();
        if on == 0 { 0.0 } else { on as f64 / self.pages() as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_json_and_refuses_ranges_outside() {
        let mut report = Report {
            pid: 12,
            base: 0x7f00_0000_0000,
            pages: 6,
            hot_share: 0.5,
            access_share: 0.9,
            hot_layout: HotLayout::Scattered,
            grain_pages: 1,
            seed: 3,
            phases: vec![Nanos(5)],
            hot_ranges: vec![(0, 2), (5, 6)],
        };
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
        assert_eq!(report.is_hot().unwrap(), [true, true, false, false, false, true]);
        report.hot_ranges.push((5, 7));
        assert!(report.is_hot().is_err());
    }

    #[test]
    fn shares() {
        let mut residency = Residency::default();
        assert_eq!(residency.share(&[NodeId(0)]), 0.0);
        for node in [Some(NodeId(0)), Some(NodeId(1)), Some(NodeId(2)), None] {
            residency.add(node);
        }
        assert_eq!(residency.share(&[NodeId(0), NodeId(1)]), 0.5);
        assert_eq!(
            serde_json::to_string(&residency).unwrap(),
            r#"{"by_node":{"0":1,"1":1,"2":1},"absent":1}"#
        );
    }
}
