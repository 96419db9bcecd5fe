//! Which pages are hot.
//!
//! Pages come in grains of one or more; a seeded shuffle puts the grains in an order, and the hot
//! ones are a window of that order. Drift moves the window: grains that leave it turn cold, grains
//! that enter it turn hot.

use clap::ValueEnum;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// How hot grains lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HotLayout {
    /// Anywhere, by the seeded shuffle.
    Scattered,
    /// In one block, which starts at the first page.
    Contiguous,
}

/// The order of the grains and the sizes; see the module.
#[derive(Clone, Debug)]
pub struct HotSet {
    order: Vec<u32>,
    hot: u32,
    grain_pages: u32,
}

impl HotSet {
    /// `pages` in grains of `grain_pages`, of which the share `hot_share` (0 to 1) is hot, at least
    /// one and not all.
    ///
    /// # Errors
    /// When there are fewer than two grains, pages that fill no grain, or more pages than 32 bits
    /// number.
    pub fn new(
        pages: u64,
        grain_pages: u32,
        hot_share: f64,
        layout: HotLayout,
        seed: u64,
    ) -> anyhow::Result<HotSet> {
        anyhow::ensure!(grain_pages > 0, "a grain has at least one page");
        anyhow::ensure!(
            pages.is_multiple_of(u64::from(grain_pages)),
            "{pages} pages are not a whole number of grains of {grain_pages}; change --mib or --grain-kib"
        );
        anyhow::ensure!(pages < 1 << 32, "{pages} pages are more than this program can number (2^32 - 1)");
        let grains = (pages / u64::from(grain_pages)) as u32;
        anyhow::ensure!(
            grains >= 2,
            "with fewer than two grains nothing can be both hot and cold; raise --mib"
        );
        let order = match layout {
            HotLayout::Scattered => shuffled(grains, seed),
            HotLayout::Contiguous => (0..grains).collect(),
        };
        let hot = ((f64::from(grains) * hot_share).round() as u32).clamp(1, grains - 1);
        Ok(HotSet { order, hot, grain_pages })
    }

    /// Number of hot pages.
    pub fn hot_pages(&self) -> u32 {
        self.hot * self.grain_pages
    }

    /// Number of cold pages.
    pub fn cold_pages(&self) -> u32 {
        (self.order.len() as u32 - self.hot) * self.grain_pages
    }

    /// The step of the window with which the share `replaced` (0 to 1) of the hot grains turns
    /// cold, at least one grain.
    pub fn step(&self, replaced: f64) -> u32 {
        ((f64::from(self.hot) * replaced).round() as u32).clamp(1, self.hot)
    }

    /// The window's start after a move by `step`.
    pub fn moved(&self, start: u32, step: u32) -> u32 {
        ((u64::from(start) + u64::from(step)) % self.order.len() as u64) as u32
    }

    /// The hot page number `index` (below [`hot_pages`](Self::hot_pages)) while the window starts
    /// at `start`.
    pub fn hot_page(&self, start: u32, index: u32) -> u32 {
        self.page(start, index)
    }

    /// The cold page number `index` (below [`cold_pages`](Self::cold_pages)) while the window
    /// starts at `start`.
    pub fn cold_page(&self, start: u32, index: u32) -> u32 {
        self.page(self.moved(start, self.hot), index)
    }

    fn page(&self, start: u32, index: u32) -> u32 {
        let grain = self.order[self.moved(start, index / self.grain_pages) as usize];
        grain * self.grain_pages + index % self.grain_pages
    }

    /// The hot pages as [first, end) in ascending order, neighbours joined, while the window starts
    /// at `start`.
    pub fn hot_ranges(&self, start: u32) -> Vec<(u32, u32)> {
        let mut grains: Vec<u32> = (0..self.hot).map(|i| self.order[self.moved(start, i) as usize]).collect();
        grains.sort_unstable();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for grain in grains {
            let (first, end) = (grain * self.grain_pages, (grain + 1) * self.grain_pages);
            match ranges.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => ranges.push((first, end)),
            }
        }
        ranges
    }
}

/// The numbers below `count` in an order that `seed` decides.
pub fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut rng = Pcg32::seed_from_u64(seed);
    for last in (1..count).rev() {
        order.swap(last as usize, below(rng.next_u32(), last + 1) as usize);
    }
    order
}

/// Scales 32 random bits to `0..bound`, evenly within bound / 2^32.
pub fn below(random: u32, bound: u32) -> u32 {
    ((u64::from(random) * u64::from(bound)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn hot(set: &HotSet, start: u32) -> BTreeSet<u32> {
        (0..set.hot_pages()).map(|i| set.hot_page(start, i)).collect()
    }

    #[test]
    fn hot_and_cold_share_out_all_pages() {
        for (grain, layout) in
            [(1, HotLayout::Scattered), (8, HotLayout::Scattered), (4, HotLayout::Contiguous)]
        {
            let set = HotSet::new(1000, grain, 0.2, layout, 7).unwrap();
            assert_eq!(set.hot_pages(), 200);
            for start in [0, 3, (1000 / grain) - 1] {
                let hot = hot(&set, start);
                let cold: BTreeSet<u32> = (0..set.cold_pages()).map(|i| set.cold_page(start, i)).collect();
                assert_eq!((hot.len(), cold.len()), (200, 800));
                assert!(hot.is_disjoint(&cold));
                assert!(hot.union(&cold).copied().eq(0..1000));
                assert!(set.hot_ranges(start).into_iter().flat_map(|(first, end)| first..end).eq(hot));
            }
        }
    }

    #[test]
    fn drift_replaces_the_asked_share() {
        let set = HotSet::new(1000, 1, 0.2, HotLayout::Scattered, 7).unwrap();
        let before = hot(&set, 0);
        let after = hot(&set, set.moved(0, set.step(0.25)));
        assert_eq!(before.intersection(&after).count(), 150);
        let after = hot(&set, set.moved(0, set.step(1.0)));
        assert_eq!(before.intersection(&after).count(), 0);
    }

    #[test]
    fn layouts() {
        let block = HotSet::new(1000, 1, 0.2, HotLayout::Contiguous, 7).unwrap();
        assert_eq!(block.hot_ranges(0), [(0, 200)]);
        let scattered = HotSet::new(1000, 1, 0.2, HotLayout::Scattered, 7).unwrap();
        // 200 hot among 1000 leave about 160 separate runs.
        assert!((140..=180).contains(&scattered.hot_ranges(0).len()));
        let other = HotSet::new(1000, 1, 0.2, HotLayout::Scattered, 8).unwrap();
        assert_ne!(scattered.hot_ranges(0), other.hot_ranges(0));
        // Golden: a seed must mean the same pages in every version.
        assert_eq!(
            (0..6).map(|i| scattered.hot_page(0, i)).collect::<Vec<_>>(),
            [294, 450, 716, 694, 429, 280]
        );
    }

    #[test]
    fn impossible_sets_are_refused() {
        assert!(HotSet::new(1, 1, 0.5, HotLayout::Scattered, 0).is_err());
        assert!(HotSet::new(10, 3, 0.5, HotLayout::Scattered, 0).is_err());
        assert!(HotSet::new(10, 0, 0.5, HotLayout::Scattered, 0).is_err());
        assert!(HotSet::new(1 << 33, 1, 0.5, HotLayout::Scattered, 0).is_err());
        let set = HotSet::new(10, 1, 0.0, HotLayout::Scattered, 0).unwrap();
        assert_eq!((set.hot_pages(), set.cold_pages()), (1, 9));
        let set = HotSet::new(10, 1, 1.0, HotLayout::Scattered, 0).unwrap();
        assert_eq!((set.hot_pages(), set.cold_pages()), (9, 1));
    }
}
