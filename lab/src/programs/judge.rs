//! Judges where a program's hot and cold pages are, from outside both the program and Thermocline.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use thermocline_core::units::{Nanos, NodeId, PAGE_SIZE};

use super::report::{Report, Residency};
use super::residency::{NodeMap, mappings, page_frames};

/// The node of each page at one moment, in runs; `None` for a page on no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The program.
    pub pid: u32,
    /// Virtual address of its page 0.
    pub base: u64,
    /// Node and number of pages, from page 0 on.
    pub runs: Vec<(Option<NodeId>, u32)>,
}

impl Snapshot {
    fn new(pid: u32, base: u64, nodes: &[Option<NodeId>]) -> Snapshot {
        let runs = nodes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).collect();
        Snapshot { pid, base, runs }
    }

    fn nodes(&self) -> Vec<Option<NodeId>> {
        self.runs.iter().flat_map(|&(node, pages)| std::iter::repeat_n(node, pages as usize)).collect()
    }
}

/// Pages that changed their node between two snapshots, and how many of them are hot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// Pages.
    pub pages: u64,
    /// Those that are hot now.
    pub hot: u64,
}

impl Moves {
    fn add(&mut self, hot: bool) {
        self.pages += 1;
        self.hot += u64::from(hot);
    }

    /// The share (0 to 1) of the pages that are hot; `None` if nothing moved.
    pub fn hot_share(&self) -> Option<f64> {
        (self.pages > 0).then(|| self.hot as f64 / self.pages as f64)
    }
}

/// Moves since an earlier snapshot. A page that left and came back is not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// All of them.
    pub all: Moves,
    /// From a slower node to DRAM.
    pub promoted: Moves,
    /// From DRAM to a slower node.
    pub demoted: Moves,
    /// The share (0 to 1) of the promoted pages that are hot.
    pub promoted_hot_share: Option<f64>,
    /// By the nodes they left and came to, `2>0`.
    pub routes: BTreeMap<String, Moves>,
}

/// The same mappings by numa_maps. The kernel may move pages between the two readings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossCheck {
    /// Pages in the program's mappings by pagemap.
    pub pagemap: BTreeMap<NodeId, u64>,
    /// The same by numa_maps.
    pub numa_maps: BTreeMap<NodeId, u64>,
    /// The greatest difference on one node, as a share (0 to 1) of all these pages.
    pub difference: f64,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The program.
    pub pid: u32,
    /// When (CLOCK_MONOTONIC).
    pub time: Nanos,
    /// The number of the set of hot pages in force, from 0.
    pub phase: usize,
    /// The nodes that count as DRAM.
    pub dram: Vec<NodeId>,
    /// Where the hot pages are.
    pub hot: Residency,
    /// Where the cold pages are.
    pub cold: Residency,
    /// The share (0 to 1) of hot pages in DRAM.
    pub hot_in_dram: f64,
    /// The share (0 to 1) of cold pages in DRAM.
    pub cold_in_dram: f64,
    /// Moves since the earlier snapshot, if one was given.
    pub moved: Option<Moved>,
    /// The second opinion.
    pub cross_check: CrossCheck,
}

/// Judges the program described by `report`. `sys` and `proc` are normally /sys and /proc.
///
/// # Errors
/// When the program has ended, its pagemap cannot be read, or `before` belongs to another program.
pub fn judge(
    sys: &Path,
    proc: &Path,
    report: &Report,
    dram: &[NodeId],
    before: Option<&Snapshot>,
    time: Nanos,
) -> anyhow::Result<(Verdict, Snapshot)> {
    let map = NodeMap::read(sys)?;
    let hot_pages = report.is_hot()?;
    let nodes = nodes_of_pages(&map, proc, report.pid, report.base / PAGE_SIZE, u64::from(report.pages))?;
    let (mut hot, mut cold) = (Residency::default(), Residency::default());
    for (&node, &is_hot) in nodes.iter().zip(&hot_pages) {
        if is_hot { hot.add(node) } else { cold.add(node) }
    }
    let moved = before.map(|before| moves(before, report, &nodes, &hot_pages, dram)).transpose()?;
    let range = report.base..report.base + u64::from(report.pages) * PAGE_SIZE;
    let verdict = Verdict {
        pid: report.pid,
        time,
        phase: report.phases.len().saturating_sub(1),
        dram: dram.to_vec(),
        hot_in_dram: hot.share(dram),
        cold_in_dram: cold.share(dram),
        hot,
        cold,
        moved,
        cross_check: cross_check(&map, proc, report.pid, &range)?,
    };
    Ok((verdict, Snapshot::new(report.pid, report.base, &nodes)))
}

fn nodes_of_pages(
    map: &NodeMap,
    proc: &Path,
    pid: u32,
    first: u64,
    pages: u64,
) -> anyhow::Result<Vec<Option<NodeId>>> {
    let frames = page_frames(proc, pid, first, pages)?;
    Ok(frames.into_iter().map(|pfn| pfn.and_then(|pfn| map.node(pfn))).collect())
}

fn moves(
    before: &Snapshot,
    report: &Report,
    nodes: &[Option<NodeId>],
    hot: &[bool],
    dram: &[NodeId],
) -> anyhow::Result<Moved> {
    let earlier = before.nodes();
    ensure!(
        (before.pid, before.base, earlier.len()) == (report.pid, report.base, nodes.len()),
        "the snapshot is of another program: pid {} at {:#x}, not pid {} at {:#x}",
        before.pid,
        before.base,
        report.pid,
        report.base
    );
    let mut moved = Moved::default();
    for ((&from, &to), &hot) in earlier.iter().zip(nodes).zip(hot) {
        let (Some(from), Some(to)) = (from, to) else { continue };
        if from == to {
            continue;
        }
        moved.all.add(hot);
        moved.routes.entry(format!("{}>{}", from.0, to.0)).or_default().add(hot);
        match (dram.contains(&from), dram.contains(&to)) {
            (false, true) => moved.promoted.add(hot),
            (true, false) => moved.demoted.add(hot),
            _ => {}
        }
    }
    moved.promoted_hot_share = moved.promoted.hot_share();
    Ok(moved)
}

/// Counts the whole mappings that contain `range`, since numa_maps has no smaller unit.
fn cross_check(map: &NodeMap, proc: &Path, pid: u32, range: &Range<u64>) -> anyhow::Result<CrossCheck> {
    let (mut pagemap, mut numa_maps) = (BTreeMap::new(), BTreeMap::new());
    for mapping in mappings(proc, pid, range)? {
        let pages = (mapping.range.end - mapping.range.start) / PAGE_SIZE;
        for node in
            nodes_of_pages(map, proc, pid, mapping.range.start / PAGE_SIZE, pages)?.into_iter().flatten()
        {
            *pagemap.entry(node).or_default() += 1;
        }
        for (node, pages) in mapping.by_node {
            *numa_maps.entry(node).or_default() += pages;
        }
    }
    let difference = difference(&pagemap, &numa_maps);
    Ok(CrossCheck { pagemap, numa_maps, difference })
}

fn difference(a: &BTreeMap<NodeId, u64>, b: &BTreeMap<NodeId, u64>) -> f64 {
    let on = |pages: &BTreeMap<NodeId, u64>, node| pages.get(node).copied().unwrap_or(0);
    let greatest = a.keys().chain(b.keys()).map(|node| on(a, node).abs_diff(on(b, node))).max().unwrap_or(0);
    let all: u64 = a.values().sum();
    if greatest == 0 { 0.0 } else { greatest as f64 / all.max(1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::hot_set::HotLayout;
    use super::*;

    const DRAM: [NodeId; 2] = [NodeId(0), NodeId(1)];

    fn report(pages: u32, hot: &[(u32, u32)]) -> Report {
        Report {
            pid: 9,
            base: 0x10_0000,
            pages,
            hot_share: 0.5,
            access_share: 0.9,
            hot_layout: HotLayout::Scattered,
            grain_pages: 1,
            seed: 1,
            phases: vec![Nanos(1), Nanos(2)],
            hot_ranges: hot.to_vec(),
        }
    }

    fn on(nodes: &[u16]) -> Vec<Option<NodeId>> {
        nodes.iter().map(|&node| (node < 9).then_some(NodeId(node))).collect()
    }

    #[test]
    fn moves_by_direction() {
        let report = report(6, &[(0, 3)]);
        let hot = report.is_hot().unwrap();
        let before = Snapshot::new(9, report.base, &on(&[2, 2, 0, 2, 0, 9]));
        assert_eq!(before.runs.len(), 5);
        let moved = moves(&before, &report, &on(&[0, 1, 1, 0, 2, 0]), &hot, &DRAM).unwrap();
        assert_eq!(moved.all, Moves { pages: 5, hot: 3 });
        assert_eq!(moved.promoted, Moves { pages: 3, hot: 2 });
        assert_eq!(moved.demoted, Moves { pages: 1, hot: 0 });
        assert_eq!(moved.promoted_hot_share, Some(2.0 / 3.0));
        assert_eq!(moved.routes["2>0"], Moves { pages: 2, hot: 1 });
        assert_eq!(moved.routes["0>1"], Moves { pages: 1, hot: 1 });
        let same = moves(&before, &report, &before.nodes(), &hot, &DRAM).unwrap();
        assert_eq!(same, Moved::default());

        let other = Snapshot { pid: 10, ..before };
        assert!(moves(&other, &report, &on(&[0; 6]), &hot, &DRAM).is_err());
    }

    #[test]
    fn second_opinions_differ_by_share() {
        let here = BTreeMap::from([(NodeId(0), 90), (NodeId(2), 10)]);
        assert_eq!(difference(&here, &here), 0.0);
        let there = BTreeMap::from([(NodeId(0), 95), (NodeId(1), 1), (NodeId(2), 4)]);
        assert_eq!(difference(&here, &there), 0.06);
        assert_eq!(difference(&here, &BTreeMap::new()), 0.9);
    }

    /// This process itself: needs no tiers, only a kernel that shows page frames.
    #[test]
    fn judges_a_live_process() {
        let memory = super::super::memory::StampedMemory::new(512);
        let report =
            Report { pid: std::process::id(), base: memory.base(), ..report(512, &[(0, 100), (200, 201)]) };
        let (sys, proc) = (Path::new("/sys"), Path::new("/proc"));
        let judged = judge(sys, proc, &report, &DRAM, None, Nanos(3));
        let (verdict, before) = match judged {
            Ok(judged) => judged,
            Err(why) => return println!("skipped: {why:#}"),
        };
        assert_eq!((verdict.hot.pages(), verdict.hot.absent), (101, 0));
        assert_eq!((verdict.cold.pages(), verdict.phase), (411, 1));
        assert_eq!(verdict.hot_in_dram, 1.0);
        assert!(verdict.cross_check.difference < 0.05, "{:?}", verdict.cross_check);
        let (verdict, _) = judge(sys, proc, &report, &DRAM, Some(&before), Nanos(4)).unwrap();
        assert_eq!(verdict.moved, Some(Moved::default()));
        memory.check_all(|_| 0).unwrap();
    }
}
