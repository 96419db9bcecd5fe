//! MIN: on a miss the page is evicted whose next access is furthest away (L. A. Belady, 1966). With
//! free migration no policy that brings pages in on misses serves more accesses from the same
//! amount of fast memory.

use std::collections::{BTreeSet, HashMap};

use crate::memory::{Page, Space};
use crate::random::{Random, Stream};
use crate::scenario::Setup;
use crate::workload::access;

/// Maximum number of accesses of a run that are listed.
const ACCESSES_MAX: u64 = 1 << 22;
/// Accesses per turn of a thread.
const TURN: usize = 64;

/// Accesses of `trace` that hit among `capacity` pages under MIN.
pub fn hits(trace: &[Page], capacity: usize) -> u64 {
    let mut next = vec![usize::MAX; trace.len()];
    let mut last: HashMap<Page, usize> = HashMap::new();
    for (at, page) in trace.iter().enumerate().rev() {
        if let Some(then) = last.insert(*page, at) {
            next[at] = then;
        }
    }
    // Cached pages, by their next access; pages without one are distinguished by their number.
    let mut held: BTreeSet<(usize, Page)> = BTreeSet::new();
    let mut hits = 0;
    for (at, page) in trace.iter().enumerate() {
        if held.remove(&(at, *page)) {
            hits += 1;
        } else if held.len() == capacity {
            // The page itself may be the one not worth caching.
            match held.last().copied() {
                Some(furthest) if furthest.0 > next[at] => held.remove(&furthest),
                _ => continue,
            };
        }
        if capacity > 0 {
            held.insert((next[at], *page));
        }
    }
    hits
}

/// Share of a scenario's accesses that MIN serves from the top tier, if they are few enough to
/// list. Threads take turns.
pub fn top_share(setup: &Setup, seed: u64) -> Option<f64> {
    let mut trace = Vec::new();
    let (mut start, mut thread) = (0, 0);
    let mut threads = Vec::new();
    for spec in setup.each_process() {
        let pages = spec.footprint.pages() as Page;
        let mut pattern = spec.pattern.build(pages, spec.threads, "process").ok()?;
        let (layout, map) = (pattern.layout(), pattern.cells());
        let space = Space { start, end: start + pages, layout, map, first_cell: 0, huge: false };
        start += pages;
        for number in 0..spec.threads {
            let mut phases = Random::new(seed, Stream::Phases(thread));
            let mut draws = Random::new(seed, Stream::Accesses(thread));
            thread += 1;
            let mut own = Vec::new();
            while let Some(mut phase) = pattern.next_phase(number, &mut phases) {
                if phase.accesses + own.len() as u64 > ACCESSES_MAX {
                    return None;
                }
                let from = own.len();
                own.resize(from + phase.accesses as usize, 0);
                access::fill(&space, &mut phase.shape, &mut draws, &mut own[from..]);
            }
            threads.push(own);
        }
    }
    let all: usize = threads.iter().map(Vec::len).sum();
    if all == 0 || all as u64 > ACCESSES_MAX {
        return None;
    }
    for turn in 0..threads.iter().map(Vec::len).max()?.div_ceil(TURN) {
        for own in &threads {
            let range = (turn * TURN).min(own.len())..((turn + 1) * TURN).min(own.len());
            trace.extend_from_slice(&own[range]);
        }
    }
    let top = &setup.machine.nodes[..usize::from(setup.machine.top)];
    let capacity: u64 = top.iter().map(|n| n.pages.saturating_sub(n.watermarks.low_pages)).sum();
    Some(hits(&trace, capacity as usize) as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most hits of any choice of evictions, by exhaustive search.
    fn brute(trace: &[Page], held: &mut Vec<Page>, capacity: usize) -> u64 {
        let Some((page, rest)) = trace.split_first() else { return 0 };
        if held.contains(page) {
            return 1 + brute(rest, held, capacity);
        }
        if held.len() < capacity {
            held.push(*page);
            let best = brute(rest, held, capacity);
            held.pop();
            return best;
        }
        let mut best = brute(rest, held, capacity);
        for i in 0..held.len() {
            let old = std::mem::replace(&mut held[i], *page);
            best = best.max(brute(rest, held, capacity));
            held[i] = old;
        }
        best
    }

    #[test]
    fn nothing_hits_more_often() {
        let mut random = Random::new(1, Stream::Models);
        for round in 0..200 {
            let trace: Vec<Page> = (0..11).map(|_| random.below(5) as Page).collect();
            for capacity in 0..4 {
                let best = brute(&trace, &mut Vec::new(), capacity);
                assert_eq!(hits(&trace, capacity), best, "round {round}: {trace:?} in {capacity}");
            }
        }
    }

    #[test]
    fn of_a_cycle_what_fits_is_hit() {
        let trace: Vec<Page> = (0..50 * 100).map(|i| i % 100).collect();
        let share = hits(&trace, 30) as f64 / trace.len() as f64;
        // 29 of 99: one place is needed for pages that pass through. The first round misses.
        assert!((share - 0.3 * 0.98).abs() < 0.012, "{share}");
    }
}
