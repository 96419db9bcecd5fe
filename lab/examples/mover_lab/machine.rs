//! The guest: where frames are, what the kernel counts, and movers to check.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thermocline_core::config::{MemoryPolicies, SharedPages};
use thermocline_core::moves::{Batch, BatchId, Direction, Move, Outcome};
use thermocline_core::topology::NodeState;
use thermocline_core::units::{NodeId, Pid, VirtPage};
use thermocline_linux::mover::{Mover, MoverConfig, node_states};
use thermocline_linux::node_state::NodeStateReader;
use thermocline_linux::pagemap::Pagemap;
use thermocline_linux::root::Root;
use thermocline_linux::topology::PfnMap;
use thermocline_linux::zoneinfo;

/// What a check says: a sentence, or why it failed.
pub(crate) type Checked<T = String> = Result<T, Box<dyn std::error::Error>>;

/// Fails a check unless something holds.
macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+).into());
        }
    };
}
pub(crate) use ensure;

/// DRAM, where pages are promoted to.
pub(crate) const FAST: NodeId = NodeId(0);
/// A second DRAM node, which a check fills.
pub(crate) const SMALL: NodeId = NodeId(1);
/// CXL, where pages start.
pub(crate) const SLOW: NodeId = NodeId(2);
/// What an outcome may take under emulation.
const WAIT: Duration = Duration::from_secs(60);

pub(crate) struct Machine {
    pub(crate) root: Root,
    pub(crate) pages: PathBuf,
    frames: PfnMap,
}

impl Machine {
    /// The lab's guest, with the kernel's own moves switched off.
    pub(crate) fn of_the_lab(pages: PathBuf) -> Checked<Machine> {
        ensure!(Path::new("/run/lab/settings").exists(), "this is not the lab; run it with `lab run`");
        let root = Root::default();
        fs::write("/proc/sys/kernel/numa_balancing", "0")?;
        // Short lists of free pages for each CPU. By default Linux 7.2 keeps thousands of pages of
        // the small node there, which it does not count as free, and how many differs from run to
        // run.
        fs::write("/proc/sys/vm/percpu_pagelist_high_fraction", "1000000")?;
        let zones = zoneinfo::parse(&fs::read_to_string("/proc/zoneinfo")?);
        let frames = PfnMap::read(&root, &zones)?;
        let nodes: Vec<NodeId> = zoneinfo::node_states(&zones).iter().map(|s| s.node).collect();
        ensure!(nodes == [FAST, SMALL, SLOW], "three nodes are needed, this machine has {nodes:?}");
        Ok(Machine { root, pages, frames })
    }

    /// A mover with the default goal.
    pub(crate) fn mover(&self, shared_pages: SharedPages) -> Checked<Mover> {
        let reader = NodeStateReader::new(&self.root);
        let config = MoverConfig {
            shared_pages,
            memory_policies: MemoryPolicies::Bind,
            root: self.root.clone(),
            ..MoverConfig::default()
        };
        Ok(Mover::start(config, node_states(reader))?)
    }

    /// A mover that takes every node for empty.
    pub(crate) fn reckless_mover(&self) -> Checked<Mover> {
        let roomy = |node| Some(NodeState { node, free_pages: u64::MAX, ..NodeState::default() });
        Ok(Mover::start(MoverConfig { root: self.root.clone(), ..MoverConfig::default() }, roomy)?)
    }

    /// The state of a node, read anew.
    pub(crate) fn node(&self, node: NodeId) -> Checked<NodeState> {
        let zones = zoneinfo::parse(&fs::read_to_string("/proc/zoneinfo")?);
        let state = zoneinfo::node_states(&zones).into_iter().find(|s| s.node == node);
        Ok(state.ok_or("the node is gone")?)
    }

    /// Pages of a node that are free above its high watermark. Those that CPUs hold in advance are
    /// free, too, but the kernel does not count them among the free ones.
    pub(crate) fn spare(&self, node: NodeId) -> Checked<u64> {
        let text = fs::read_to_string("/proc/zoneinfo")?;
        let of_node = text.split("Node ").filter(|zone| zone.starts_with(&format!("{},", node.0)));
        let counts = of_node.flat_map(str::lines).filter_map(|l| l.trim().strip_prefix("count:"));
        let held: u64 = counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum();
        let state = self.node(node)?;
        Ok((state.free_pages + held).saturating_sub(state.watermarks.high_pages))
    }

    /// The node of each of `pages` pages, told from their frame numbers: a witness that has nothing
    /// to do with move_pages.
    pub(crate) fn nodes(&self, pid: Pid, vpn: u64, pages: u64) -> Checked<Vec<Option<NodeId>>> {
        let map = Pagemap::open(&self.root.proc, pid)?;
        let node = |vpn| Ok(map.entry(vpn)?.and_then(|e| e.pfn()).and_then(|pfn| self.frames.node_of(pfn)));
        (vpn..vpn + pages).map(node).collect()
    }

    /// Moves for folios of one order on the slow node, with the frames that are there now as
    /// evidence.
    pub(crate) fn moves(&self, pid: Pid, vpn: u64, pages: u64, order: u8) -> Checked<Vec<Move>> {
        let map = Pagemap::open(&self.root.proc, pid)?;
        let of = |vpn| {
            let page = VirtPage { pid, vpn };
            Ok(Move { page, pfn: map.entry(vpn)?.and_then(|e| e.pfn()), order, from: SLOW })
        };
        (vpn..vpn + pages).step_by(1 << order).map(of).collect()
    }
}

/// A batch that promotes.
pub(crate) fn batch(id: u64, pid: Pid, target: NodeId, moves: &[Move]) -> Batch {
    Batch { id: BatchId(id), pid, target, direction: Direction::Promote, moves: moves.to_vec() }
}

/// Moves folios in batches of at most 512 base pages, one after the other.
pub(crate) fn run(mover: &mut Mover, pid: Pid, target: NodeId, moves: &[Move]) -> Checked<Vec<Outcome>> {
    let mut ends = Vec::new();
    let folios = moves.first().map_or(1, |m| (512 / m.pages()).max(1) as usize);
    for (id, part) in moves.chunks(folios).enumerate() {
        mover.submit(batch(id as u64, pid, target, part))?;
        let outcome = mover.wait(WAIT).ok_or_else(|| format!("no outcome: {:?}", mover.failure()))?;
        ensure!(outcome.id.0 == id as u64, "outcome of batch {} for batch {id}", outcome.id.0);
        ends.extend(outcome.outcomes);
    }
    Ok(ends)
}

/// How often each outcome came.
pub(crate) fn tally(ends: &[Outcome]) -> BTreeMap<Outcome, usize> {
    let mut counts = BTreeMap::new();
    ends.iter().for_each(|end| *counts.entry(*end).or_insert(0) += 1);
    counts
}

/// Fails unless every move ended in the same way.
pub(crate) fn all(ends: &[Outcome], wanted: Outcome) -> Checked<()> {
    ensure!(!ends.is_empty() && ends.iter().all(|&e| e == wanted), "not all {wanted:?}: {:?}", tally(ends));
    Ok(())
}

/// The sum of the counters of /proc/vmstat that begin with `prefix`.
pub(crate) fn vmstat(prefix: &str) -> Checked<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let counters = text.lines().filter(|line| line.starts_with(prefix));
    let values: Vec<u64> = counters.filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
    ensure!(!values.is_empty(), "/proc/vmstat has no {prefix}");
    Ok(values.iter().sum())
}

/// Pages by node of the mapping that holds `address`, as /proc/PID/numa_maps tells.
pub(crate) fn numa_maps(pid: Pid, address: u64) -> Checked<BTreeMap<NodeId, u64>> {
    let text = fs::read_to_string(format!("/proc/{}/numa_maps", pid.0))?;
    let start = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let line = text.lines().rfind(|line| start(line).is_some_and(|s| s <= address));
    let words = line.ok_or("no mapping there")?.split(' ');
    let count = |word: &str| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((NodeId(node.parse().ok()?), pages.parse().ok()?))
    };
    Ok(words.filter_map(count).collect())
}
