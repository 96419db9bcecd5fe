//! A pointer chase: measures the latency of one miss.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, ensure};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use thermocline_core::units::{NodeId, PAGE_SIZE, PAGES_PER_MIB};

use super::modelled::{clock, sum_ns};
use super::residency::{NodeMap, page_frames};

const LINE_WORDS: usize = 8;
/// Loads between two readings of the clock.
const LOADS: u32 = 4096;
/// Number of stretches. The fastest counts, because other load on the processors only makes one
/// slower.
const STRETCHES: u32 = 32;

/// The result of a chase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chase {
    /// Time from one load to the next, which needs its result, ns.
    pub ns_per_load: f64,
    /// The same in the plugin's modelled time, if available, ns.
    #[serde(default)]
    pub modelled_ns_per_load: Option<f64>,
    /// Pages of the block by node, from pagemap and sysfs.
    pub pages_by_node: BTreeMap<NodeId, u64>,
}

/// Follows a cycle through all lines of `mib` MiB, in random order, so that in a smaller cache
/// every load misses.
///
/// # Errors
/// Without memory to chase through, or when pagemap hides page frames.
pub fn run(mib: u32, seed: u64) -> anyhow::Result<Chase> {
    ensure!(mib > 0, "--mib must be at least 1");
    let pages = u64::from(mib) * PAGES_PER_MIB;
    let lines = (pages * PAGE_SIZE) as usize / (LINE_WORDS * 8);
    // Every line holds the index of the next.
    let block: Vec<AtomicU64> = (0..lines * LINE_WORDS).map(|_| AtomicU64::new(0)).collect();
    for (line, next) in cycle(lines, seed).into_iter().enumerate() {
        block[line * LINE_WORDS].store(next * LINE_WORDS as u64, Ordering::Relaxed);
    }
    let mut at = 0;
    // The lines written last stay in the cache until as many others have been loaded.
    for _ in 0..lines / 2 {
        at = block[at].load(Ordering::Relaxed) as usize;
    }
    let clock = clock()?;
    let modelled_ns = || clock.as_ref().map_or(Ok(None), sum_ns);
    let (mut best, mut modelled_best) = (f64::INFINITY, None);
    for _ in 0..STRETCHES {
        let (start, modelled_start) = (Instant::now(), modelled_ns()?);
        for _ in 0..LOADS {
            at = block[at].load(Ordering::Relaxed) as usize;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(LOADS));
        let took_ns = modelled_ns()?.zip(modelled_start).map(|(end, start)| end.saturating_sub(start));
        modelled_best = [modelled_best, took_ns].into_iter().flatten().min();
    }
    // The loads must not be optimised away.
    std::hint::black_box(at);

    let map = NodeMap::read(Path::new("/sys"))?;
    let first = block.as_ptr() as u64 / PAGE_SIZE;
    let mut pages_by_node = BTreeMap::new();
    for pfn in page_frames(Path::new("/proc"), std::process::id(), first, pages)? {
        let pfn = pfn.context("a page of the block is not in memory")?;
        let node = map.node(pfn).with_context(|| format!("page frame {} is on no node", pfn.0))?;
        *pages_by_node.entry(node).or_default() += 1;
    }
    let modelled_ns_per_load = modelled_best.map(|ns| ns as f64 / f64::from(LOADS));
    Ok(Chase { ns_per_load: best, modelled_ns_per_load, pages_by_node })
}

/// The successor of each place in one cycle through all places (Sattolo's algorithm).
fn cycle(places: usize, seed: u64) -> Vec<u64> {
    let mut rng = Pcg32::seed_from_u64(seed);
    let mut next: Vec<u64> = (0..places as u64).collect();
    for last in (1..places).rev() {
        // The remainder is biased to small places by less than one in a thousand, which does not
        // matter here.
        next.swap(last, rng.next_u32() as usize % last);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cycle_goes_through_all_places() {
        for (places, seed) in [(1, 1), (2, 2), (1000, 3)] {
            let next = cycle(places, seed);
            let (mut at, mut steps) = (0, 0);
            loop {
                at = next[at] as usize;
                steps += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(steps, places, "seed {seed}");
        }
    }
}
