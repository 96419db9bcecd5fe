//! The known pattern against which the plugin is checked.
//!
//! A block of pages, much larger than the modelled cache, is swept line by line: with
//! least-recently-used replacement every line of every sweep misses once. So the misses by node,
//! page and kind are known exactly beforehand.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use thermocline_core::units::{NodeId, PAGE_SIZE};

use super::residency::{NodeMap, page_frames};
use crate::truth::{Counts, Plugin};

const LINE_BYTES: u64 = 64;
const PAGE_LINES: u64 = PAGE_SIZE / LINE_BYTES;
const LINE_WORDS: usize = (LINE_BYTES / 8) as usize;

/// The block swept and the counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Virtual address of the block.
    pub base: u64,
    /// Page frame of each page, in order.
    pub pfns: Vec<u64>,
    /// Lines loaded of each page.
    pub loads_per_page: u64,
    /// Lines stored to in each page.
    pub stores_per_page: u64,
    /// Pages of the block by node, from pagemap and sysfs.
    pub pages_by_node: BTreeMap<NodeId, u64>,
    /// The plugin's counts.
    pub counts: Counts,
    /// The greatest difference between the counted and the expected misses of any node and kind, as
    /// a share (0 to 1) of all expected ones.
    pub error: f64,
}

/// Sweeps `pages` pages `loads` times reading and `stores` times writing while the plugin at
/// `plugin` counts, and has the page dump written to `dump` (a name in the plugin's dump folder).
///
/// # Errors
/// When the plugin refuses, pagemap hides page frames, or pages moved meanwhile.
pub fn run(plugin: &Path, pages: u32, loads: u64, stores: u64, dump: &str) -> anyhow::Result<Outcome> {
    ensure!(pages > 0, "--pages must be at least 1");
    let words_per_page = (PAGE_SIZE / 8) as usize;
    // One page more than needed, since the allocation need not start at a page.
    let words: Vec<AtomicU64> =
        (1..=(pages as usize + 1) * words_per_page).map(|n| AtomicU64::new(n as u64)).collect();
    let address = words.as_ptr() as u64;
    let base = address.next_multiple_of(PAGE_SIZE);
    let first = ((base - address) / 8) as usize;
    let block = &words[first..first + pages as usize * words_per_page];

    let (sys, proc) = (Path::new("/sys"), Path::new("/proc"));
    let frames = || page_frames(proc, std::process::id(), base / PAGE_SIZE, u64::from(pages));
    let before = frames()?;
    let mut plugin = Plugin::connect(plugin)?;
    plugin.filter(Some((base, base + u64::from(pages) * PAGE_SIZE)))?;
    plugin.start()?;
    plugin.reset()?;
    let mut sum = 0;
    for _ in 0..loads {
        for word in block.iter().step_by(LINE_WORDS) {
            sum ^= word.load(Ordering::Relaxed);
        }
    }
    for sweep in 0..stores {
        for word in block.iter().step_by(LINE_WORDS) {
            word.store(sweep, Ordering::Relaxed);
        }
    }
    // The loads must not be optimised away.
    std::hint::black_box(sum);
    let counts = plugin.counts()?;
    plugin.stop()?;
    plugin.dump_pages(dump)?;
    plugin.filter(None)?;
    ensure!(frames()? == before, "pages moved during the sweep; run it with kernel.numa_balancing=0");

    let map = NodeMap::read(sys)?;
    let mut pages_by_node = BTreeMap::new();
    let mut pfns = Vec::new();
    for pfn in before {
        let pfn = pfn.context("a page of the block is not in memory")?;
        let node = map.node(pfn).with_context(|| format!("page frame {} is on no node", pfn.0))?;
        *pages_by_node.entry(node).or_default() += 1;
        pfns.push(pfn.0);
    }
    let error = error(&counts, &pages_by_node, loads * PAGE_LINES, stores * PAGE_LINES);
    let (loads_per_page, stores_per_page) = (loads * PAGE_LINES, stores * PAGE_LINES);
    Ok(Outcome { base, pfns, loads_per_page, stores_per_page, pages_by_node, counts, error })
}

fn error(counts: &Counts, pages_by_node: &BTreeMap<NodeId, u64>, loads: u64, stores: u64) -> f64 {
    let all: u64 = pages_by_node.values().sum::<u64>() * (loads + stores);
    let greatest = counts.nodes.iter().enumerate().map(|(node, counted)| {
        let pages = pages_by_node.get(&NodeId(node as u16)).copied().unwrap_or(0);
        let of_loads = counted.load_misses.abs_diff(pages * loads);
        of_loads.max(counted.store_misses.abs_diff(pages * stores))
    });
    greatest.max().unwrap_or(0) as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::{NodeCounts, State};

    #[test]
    fn error_is_the_worst_of_all_nodes_and_kinds() {
        let node =
            |load_misses, store_misses| NodeCounts { load_misses, store_misses, ..NodeCounts::default() };
        let mut counts = Counts {
            state: State::Counting,
            epoch: 1,
            host_ns: 0,
            nodes: vec![node(0, 0), node(640, 320)],
            io: 0,
            outside: 0,
            unresolved: 0,
            pages: 0,
            pages_lost: 0,
            instructions: 0,
            program_instructions: 0,
            modelled: None,
        };
        let pages = BTreeMap::from([(NodeId(1), 10)]);
        assert_eq!(error(&counts, &pages, 64, 32), 0.0);
        counts.nodes[1].store_misses -= 24;
        assert_eq!(error(&counts, &pages, 64, 32), 0.025);
        counts.nodes[0].load_misses = 48;
        assert_eq!(error(&counts, &pages, 64, 32), 0.05);
    }
}
