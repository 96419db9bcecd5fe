//! Which node a page frame is on: from memory blocks of sysfs, or zone spans if these are
//! ambiguous.

use thermocline_core::units::{NodeId, PAGE_SHIFT, Pfn};

use crate::root::{KernelFileError, Root, list_optional, read_optional};
use crate::zoneinfo::Zone;

/// Page frames from `start` up to and without `end` that are online on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PfnRange {
    /// The first frame.
    pub start: Pfn,
    /// One past the last frame.
    pub end: Pfn,
    /// Their node.
    pub node: NodeId,
}

/// The online page frames of every node, ascending and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PfnMap {
    ranges: Vec<PfnRange>,
}

impl PfnMap {
    /// A map of `ranges`; if two overlap, the one that starts first keeps the frames. Neighbours of
    /// one node are joined.
    pub fn new(mut ranges: Vec<PfnRange>) -> PfnMap {
        ranges.sort_unstable();
        let mut joined: Vec<PfnRange> = Vec::new();
        for mut range in ranges {
            if let Some(last) = joined.last_mut() {
                range.start = range.start.max(last.end);
                if range.start < range.end && range.start == last.end && range.node == last.node {
                    last.end = range.end;
                    continue;
                }
            }
            if range.start < range.end {
                joined.push(range);
            }
        }
        PfnMap { ranges: joined }
    }

    /// Reads the machine's memory blocks; `zones` decide if a block has memory of two nodes, or if
    /// the kernel has no memory blocks at all.
    ///
    /// # Errors
    /// sysfs cannot be read.
    pub fn read(root: &Root, zones: &[Zone]) -> Result<PfnMap, KernelFileError> {
        let spans = zone_spans(zones);
        let Some(block_pages) = block_pages(root)? else { return Ok(PfnMap::new(spans)) };
        let mut blocks = blocks(root, block_pages)?;
        blocks.sort_unstable();
        let mut ranges = Vec::with_capacity(blocks.len());
        for (i, &block) in blocks.iter().enumerate() {
            let twice = |j: Option<usize>| {
                j.and_then(|j| blocks.get(j)).is_some_and(|b: &PfnRange| b.start == block.start)
            };
            if !twice(i.checked_sub(1)) && !twice(i.checked_add(1)) {
                ranges.push(block);
                continue;
            }
            // The block is linked from two nodes: their zones determine the parts.
            for span in spans.iter().filter(|s| s.node == block.node) {
                let (start, end) = (span.start.max(block.start), span.end.min(block.end));
                if start < end {
                    ranges.push(PfnRange { start, end, node: block.node });
                }
            }
        }
        Ok(PfnMap::new(if ranges.is_empty() { spans } else { ranges }))
    }

    /// The node of a frame; `None` if it is not online memory.
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        let after = self.ranges.partition_point(|r| r.start <= pfn);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (pfn < range.end).then_some(range.node)
    }

    /// All ranges, ascending.
    pub fn ranges(&self) -> &[PfnRange] {
        &self.ranges
    }

    /// The ranges of this map that `other` does not have on the same node.
    pub fn without(&self, other: &PfnMap) -> Vec<PfnRange> {
        let mut left = Vec::new();
        for &range in &self.ranges {
            let mut start = range.start;
            let first = other.ranges.partition_point(|r| r.end <= range.start);
            for cut in other.ranges[first..].iter().take_while(|c| c.start < range.end) {
                if cut.node != range.node {
                    continue;
                }
                if start < cut.start {
                    left.push(PfnRange { start, end: cut.start, ..range });
                }
                start = start.max(cut.end);
            }
            if start < range.end {
                left.push(PfnRange { start, ..range });
            }
        }
        left
    }
}

/// Base pages of a memory block; `None` if the kernel has no memory blocks.
fn block_pages(root: &Root) -> Result<Option<u64>, KernelFileError> {
    let path = root.sys.join("devices/system/memory/block_size_bytes");
    let Some(text) = read_optional(&path)? else { return Ok(None) };
    let bytes = u64::from_str_radix(text.trim(), 16).ok().filter(|&b| b >> PAGE_SHIFT > 0);
    match bytes {
        Some(bytes) => Ok(Some(bytes >> PAGE_SHIFT)),
        None => Err(KernelFileError::malformed(&path, format!("{:?} is no size", text.trim()))),
    }
}

/// Every online block under each node that links it.
fn blocks(root: &Root, block_pages: u64) -> Result<Vec<PfnRange>, KernelFileError> {
    let folder = root.sys.join("devices/system/node");
    let memory = root.sys.join("devices/system/memory");
    let mut found = Vec::new();
    for node_name in list_optional(&folder)?.unwrap_or_default() {
        let Some(node) = node_name.strip_prefix("node").and_then(|n| n.parse().ok()) else { continue };
        for name in list_optional(&folder.join(&node_name))?.unwrap_or_default() {
            let Some(block) = name.strip_prefix("memory").and_then(|n| n.parse::<u64>().ok()) else {
                continue;
            };
            let state = read_optional(&memory.join(&name).join("state"))?;
            if state.as_deref().is_some_and(|s| s.trim() != "online") {
                continue;
            }
            let range = block.checked_mul(block_pages).and_then(|s| Some((s, s.checked_add(block_pages)?)));
            if let Some((start, end)) = range {
                found.push(PfnRange { start: Pfn(start), end: Pfn(end), node: NodeId(node) });
            }
        }
    }
    Ok(found)
}

fn zone_spans(zones: &[Zone]) -> Vec<PfnRange> {
    let span = |z: &Zone| {
        let start = z.start_pfn?;
        let end = start.checked_add(z.spanned)?;
        Some(PfnRange { start: Pfn(start), end: Pfn(end), node: z.node })
    };
    zones.iter().filter(|z| z.present > 0).filter_map(span).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, end: u64, node: u16) -> PfnRange {
        PfnRange { start: Pfn(start), end: Pfn(end), node: NodeId(node) }
    }

    #[test]
    fn finds_the_node_of_a_frame() {
        let map = PfnMap::new(vec![range(20, 30, 2), range(0, 10, 0), range(10, 15, 0)]);
        assert_eq!(map.ranges(), [range(0, 15, 0), range(20, 30, 2)]);
        let node = |pfn| map.node_of(Pfn(pfn));
        assert_eq!(node(0), Some(NodeId(0)));
        assert_eq!(node(14), Some(NodeId(0)));
        assert_eq!(node(15), None);
        assert_eq!(node(29), Some(NodeId(2)));
        assert_eq!(node(30), None);
        assert_eq!(PfnMap::default().node_of(Pfn(0)), None);
    }

    #[test]
    fn tells_what_came_and_what_went() {
        // old:  [0      10)      [20    30)
        // new:  [0 5)  [8  10)   [20       40)
        let old = PfnMap::new(vec![range(0, 10, 0), range(20, 30, 2)]);
        let new = PfnMap::new(vec![range(0, 5, 0), range(8, 10, 0), range(20, 40, 2)]);
        assert_eq!(old.without(&new), [range(5, 8, 0)]);
        assert_eq!(new.without(&old), [range(30, 40, 2)]);
        let moved = PfnMap::new(vec![range(0, 10, 1)]);
        assert_eq!(moved.without(&old), [range(0, 10, 1)], "another node is another range");
    }

    proptest! {
        #[test]
        fn maps_are_disjoint_and_differences_are_exact(
            a in prop::collection::vec((0u64..60, 0u64..9, 0u16..3), 0..12),
            b in prop::collection::vec((0u64..60, 0u64..9, 0u16..3), 0..12),
        ) {
            let map = |v: Vec<(u64, u64, u16)>| {
                PfnMap::new(v.into_iter().map(|(s, len, n)| range(s, s + len, n)).collect())
            };
            let (a, b) = (map(a), map(b));
            for pair in a.ranges().windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
            }
            let difference = PfnMap::new(a.without(&b));
            for pfn in (0..70).map(Pfn) {
                let expect = a.node_of(pfn).filter(|&n| b.node_of(pfn) != Some(n));
                prop_assert_eq!(difference.node_of(pfn), expect);
            }
        }
    }
}
