//! Pattern `latest`: younger items are more popular, by a zipf law (YCSB's `latest`).
//!
//! Items lie in memory in order of insertion, the last one at the end. Without new items that never
//! changes. With them, each replaces the oldest: popularity rotates through memory, in steps of 1 /
//! [`CELLS`] of it, so the most popular items are resolved less finely than without.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ranks::{Ranks, check_exponent};
use super::steady::Steady;
use super::zipf::{exponent, one};
use super::{Distribution, Pattern, Phase, Shape};
use crate::memory::CellMap;
use crate::memory::layout::Layout;
use crate::random::Random;
use crate::spec::{SpecError, require};

/// Steps in which popularity rotates once through memory.
const CELLS: u32 = 256;

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latest {
    /// The r-th youngest item is accessed in proportion to r to the power of minus this.
    #[serde(default = "exponent")]
    pub exponent: f64,
    /// Items on a page.
    #[serde(default = "one")]
    pub items_per_page: u32,
    /// Accesses of each thread.
    pub accesses: u64,
    /// Accesses of a thread from one new item to the next; 0 for none.
    #[serde(default)]
    pub insert_every: u64,
}

impl Latest {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        require(self.accesses > 0, &format!("{place}.accesses"), "is zero", "give each thread an access")?;
        check_exponent(self.exponent, place)?;
        let per_page = (1..=4096).contains(&self.items_per_page);
        require(per_page, &format!("{place}.items_per_page"), "is out of range", "give 1 to 4096")?;
        // Neighbours in rank are neighbours in memory, so a page's popularity follows from its rank
        // among pages.
        let ranks = Ranks::zipf(pages, 1, 1, self.exponent);
        if self.insert_every == 0 {
            let (map, distribution) = ranks.rising();
            let phase = Phase { shape: Shape::Random(Arc::new(distribution)), accesses: self.accesses };
            return Ok(Box::new(Steady::new(map, Layout::Identity, phase, threads)));
        }
        let map = CellMap::equal(pages, pages.div_ceil(CELLS));
        let by_age = by_age(&ranks, &map, pages);
        let items = u64::from(map.size(0)) * u64::from(self.items_per_page);
        // All threads insert, so together they fill a cell sooner by that factor.
        let step = (items.saturating_mul(self.insert_every) / u64::from(threads.max(1))).max(1);
        let cells = map.len() as usize;
        Ok(Box::new(Moving {
            map,
            by_age,
            step,
            made: vec![(0, self.accesses); threads as usize],
            shared: vec![None; cells],
        }))
    }
}

/// Shares of the accesses of cells of equal size, by age.
fn by_age(ranks: &Ranks, map: &CellMap, pages: u32) -> Vec<f64> {
    let starts: Vec<(u32, f64)> = ranks.cells().collect();
    let mut shares = vec![0.0; map.len() as usize];
    for (i, (start, share)) in starts.iter().enumerate() {
        let end = starts.get(i + 1).map_or(pages, |(next, _)| *next);
        let each = share / f64::from(end - start);
        for cell in map.cell_of(*start)..=map.cell_of(end - 1) {
            let range = map.range(cell);
            let common = end.min(range.end) - (*start).max(range.start);
            shares[cell as usize] += each * f64::from(common);
        }
    }
    shares
}

#[derive(Debug)]
struct Moving {
    map: CellMap,
    by_age: Vec<f64>,
    /// Accesses of a thread until the youngest cell is the next one.
    step: u64,
    /// Steps that each thread has made, and its remaining accesses.
    made: Vec<(u64, u64)>,
    /// The distribution for each youngest cell, cached: threads share it.
    shared: Vec<Option<Arc<Distribution>>>,
}

impl Pattern for Moving {
    fn cells(&self) -> CellMap {
        self.map.clone()
    }

    fn next_phase(&mut self, thread: u32, _random: &mut Random) -> Option<Phase> {
        let (steps, left) = self.made.get_mut(thread as usize)?;
        if *left == 0 {
            return None;
        }
        let cells = self.by_age.len();
        let youngest = ((*steps + cells as u64 - 1) % cells as u64) as usize;
        *steps += 1;
        let accesses = self.step.min(*left);
        *left -= accesses;
        let distribution = self.shared[youngest].get_or_insert_with(|| {
            let cell = |(age, share): (usize, &f64)| (((youngest + cells - age) % cells) as u32, *share);
            Arc::new(Distribution::weighted(self.by_age.iter().enumerate().map(cell)))
        });
        Some(Phase { shape: Shape::Random(distribution.clone()), accesses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn popularity_goes_round_with_new_items() {
        let spec = Latest { exponent: 0.99, items_per_page: 2, accesses: 10_000, insert_every: 10 };
        let mut pattern = spec.build(2560, 2, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let mut hottest = Vec::new();
        let mut accesses = 0;
        while let Some(phase) = pattern.next_phase(0, &mut random) {
            accesses += phase.accesses;
            let Shape::Random(d) = phase.shape else { panic!("random") };
            let best = d.weights().iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            assert!(best.1 > 0.3 && (d.weights().iter().map(|w| w.1).sum::<f64>() - 1.0).abs() < 1e-9);
            hottest.push(best.0);
        }
        assert_eq!(accesses, 10_000);
        // 10 pages of two items, one each 10 accesses, by two threads: a step each 100 accesses.
        assert_eq!(hottest.len(), 100);
        assert_eq!(hottest[..4], [255, 0, 1, 2]);
        let mut other = spec.build(2560, 2, "pattern").unwrap();
        let (a, b) = (other.next_phase(0, &mut random).unwrap(), other.next_phase(1, &mut random).unwrap());
        let (Shape::Random(a), Shape::Random(b)) = (a.shape, b.shape) else { panic!("random") };
        assert!(Arc::ptr_eq(&a, &b), "threads share what they draw from");
    }

    #[test]
    fn without_new_items_the_end_of_memory_is_popular() {
        let spec = Latest { exponent: 0.99, items_per_page: 1, accesses: 7, insert_every: 0 };
        let mut pattern = spec.build(100_000, 1, "pattern").unwrap();
        let map = pattern.cells();
        let phase = pattern.next_phase(0, &mut Random::new(1, Stream::Phases(0))).unwrap();
        let Shape::Random(d) = phase.shape else { panic!("random") };
        let share: f64 = d.weights().iter().filter(|(c, _)| map.range(*c).start >= 90_000).map(|w| w.1).sum();
        assert!((0.75..0.9).contains(&share), "{share}");
    }
}
