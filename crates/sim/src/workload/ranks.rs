//! Popularity by rank, as cells: ranks of similar popularity share a cell.
//!
//! Zipf: the item of rank r is accessed in proportion to r^-s. A page holds several items of
//! unrelated ranks, so its popularity is their sum: each of the most popular items dominates one
//! page, and the popularity of other pages is estimated once, by sampling.

use super::Distribution;
use crate::memory::CellMap;
use crate::random::{Random, Stream};
use crate::spec::{SpecError, require};

/// Maximum number of cells: each has about equally many accesses, unless it is a single page.
const CELLS: u32 = 128;
/// Maximum number of items that are treated individually, if a page holds several.
const HEAD_MAX: u64 = 8192;
/// Pages drawn to estimate the popularity of pages without such an item.
const SAMPLE: u64 = 16_384;
/// Maximum number of items of a page that are drawn; for the rest, the least popular, the mean
/// suffices.
const DRAWN_MAX: f64 = 64.0;
/// Terms that are summed individually; beyond, a term hardly differs from the integral around it.
const EXACT_TERMS: u64 = 128;

/// Pages of falling popularity in cells: the first page of each cell and its share of the accesses.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    starts: Vec<u32>,
    shares: Vec<f64>,
    pages: u32,
}

/// The sum of r^-s for the ranks from `from` to `to`.
fn zipf_sum(from: u64, to: u64, s: f64) -> f64 {
    let exact_end = to.min(EXACT_TERMS);
    let head: f64 = (from..=exact_end).map(|r| (r as f64).powf(-s)).sum();
    let from = from.max(EXACT_TERMS + 1);
    if from > to {
        return head;
    }
    let (a, b) = (from as f64 - 0.5, to as f64 + 0.5);
    let integral =
        if (s - 1.0).abs() < 1e-9 { (b / a).ln() } else { (b.powf(1.0 - s) - a.powf(1.0 - s)) / (1.0 - s) };
    head + integral
}

/// Refuses an invalid exponent.
pub(super) fn check_exponent(exponent: f64, place: &str) -> Result<(), SpecError> {
    let known = (0.0..=5.0).contains(&exponent);
    require(known, &format!("{place}.exponent"), "is no exponent", "give 0 (all alike) to 5")
}

impl Ranks {
    /// `pages` pages with `per_page` items each, of zipf popularity with this exponent. An access
    /// to an item continues through the following pages, `span` pages in all.
    pub(super) fn zipf(pages: u32, per_page: u32, span: u32, exponent: f64) -> Ranks {
        if per_page <= 1 && span <= 1 {
            return Ranks::one_item_each(pages, exponent);
        }
        let weights = page_weights(u64::from(pages), u64::from(per_page), u64::from(span.max(1)), exponent);
        let all: f64 = weights.iter().map(|(count, weight)| count * weight).sum();
        let mut ranks = Ranks { starts: Vec::new(), shares: Vec::new(), pages };
        let (mut place, mut start, mut share) = (0.0, 0u32, 0.0);
        for (i, (count, weight)) in weights.iter().enumerate() {
            place += count;
            share += count * weight / all;
            let end = if i + 1 == weights.len() { pages } else { (place.round() as u32).min(pages) };
            if end > start && (share >= 1.0 / f64::from(CELLS) || end == pages) {
                ranks.starts.push(start);
                ranks.shares.push(share);
                (start, share) = (end, 0.0);
            }
        }
        ranks
    }

    fn one_item_each(pages: u32, exponent: f64) -> Ranks {
        let n = u64::from(pages);
        let goal = zipf_sum(1, n, exponent) / f64::from(CELLS);
        let mut ranks = Ranks { starts: Vec::new(), shares: Vec::new(), pages };
        let mut first = 1;
        while first <= n {
            // The last rank with which the cell does not exceed its part.
            let (mut low, mut high) = (first, n);
            while low < high {
                let middle = low + (high - low).div_ceil(2);
                if zipf_sum(first, middle, exponent) <= goal {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            ranks.starts.push((first - 1) as u32);
            ranks.shares.push(zipf_sum(first, low, exponent));
            first = low + 1;
        }
        ranks
    }

    /// The cells, the most popular pages at the first positions.
    pub(super) fn falling(&self) -> (CellMap, Distribution) {
        let shares = self.shares.iter().enumerate().map(|(i, s)| (i as u32, *s));
        (CellMap::of(&self.starts, self.pages), Distribution::weighted(shares))
    }

    /// The cells, the most popular pages at the last positions.
    pub(super) fn rising(&self) -> (CellMap, Distribution) {
        let ends = self.starts.iter().skip(1).copied().chain([self.pages]);
        let mut starts: Vec<u32> = ends.map(|end| self.pages - end).collect();
        starts.reverse();
        let shares = self.shares.iter().rev().enumerate().map(|(i, s)| (i as u32, *s));
        (CellMap::of(&starts, self.pages), Distribution::weighted(shares))
    }

    /// First page and share of each cell.
    pub(super) fn cells(&self) -> impl Iterator<Item = (u32, f64)> {
        self.starts.iter().copied().zip(self.shares.iter().copied())
    }
}

/// Popularity of pages with several items: how many pages, and the popularity of each, falling. The
/// most popular items are assumed to be on different pages; in fact few of them share one.
fn page_weights(pages: u64, per_page: u64, span: u64, s: f64) -> Vec<(f64, f64)> {
    let items = pages * per_page;
    let reached = per_page * span;
    let head = HEAD_MAX.min(pages / (16 * span)).max(1).min(items - 1);
    let others = items - head;
    let beside = zipf_sum(head + 1, items, s) / others as f64 * (reached - 1) as f64;
    let popular = |rank: u64| (rank as f64).powf(-s);
    let mut weights: Vec<(f64, f64)> = (1..=head).map(|r| (span as f64, popular(r) + beside)).collect();
    let rest = pages.saturating_sub(head * span);
    let sample = SAMPLE.min(rest);
    let mut random = Random::new(0, Stream::Models);
    // The more popular of the others are drawn; the rest are spread about evenly over the pages.
    let each = reached as f64 / others as f64;
    let drawn_ranks = others.min((DRAWN_MAX / each) as u64);
    let known = zipf_sum(head + drawn_ranks + 1, items, s) * each;
    let drawn = each * drawn_ranks as f64;
    for _ in 0..sample {
        let draws = (drawn + random.unit()) as u64;
        let weight: f64 = (0..draws).map(|_| popular(head + 1 + random.below(drawn_ranks))).sum();
        weights.push((rest as f64 / sample as f64, weight + known));
    }
    weights.sort_by(|a, b| b.1.total_cmp(&a.1));
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_series() {
        for s in [0.0, 0.5, 0.99, 1.0, 1.2] {
            for (from, to) in [(1, 50), (1, 20_000), (100, 5000), (5000, 20_000)] {
                let exact: f64 = (from..=to).map(|r| (r as f64).powf(-s)).sum();
                let sum = zipf_sum(from, to, s);
                assert!((sum / exact - 1.0).abs() < 1e-5, "{s} {from}..{to}: {sum} for {exact}");
            }
        }
    }

    #[test]
    fn the_top_pages_have_the_share_that_the_law_says() {
        let ranks = Ranks::zipf(50_000, 1, 1, 0.99);
        let (map, distribution) = ranks.falling();
        let all = zipf_sum(1, 50_000, 0.99);
        let mut share = 0.0;
        for (cell, weight) in distribution.weights() {
            share += weight;
            let end = u64::from(map.range(*cell).end);
            assert!((share - zipf_sum(1, end, 0.99) / all).abs() < 1e-6, "{end}: {share}");
        }
        assert!((100..=160).contains(&map.len()), "{}", map.len());
    }

    #[test]
    fn pages_of_several_items_are_as_popular_as_their_items() {
        // Compared with items placed on pages one by one.
        let (pages, per_page, s) = (20_000u32, 4u32, 0.99);
        let mut random = Random::new(3, Stream::Models);
        let mut order: Vec<u32> = (0..pages * per_page).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let mut weight = vec![0.0; pages as usize];
        for (item, place) in order.iter().enumerate() {
            weight[(place / per_page) as usize] += ((item + 1) as f64).powf(-s);
        }
        weight.sort_by(|a, b| b.total_cmp(a));
        let all: f64 = weight.iter().sum();
        let (map, distribution) = Ranks::zipf(pages, per_page, 1, s).falling();
        let mut share = 0.0;
        for (cell, w) in distribution.weights() {
            share += w;
            let exact: f64 = weight[..map.range(*cell).end as usize].iter().sum::<f64>() / all;
            assert!((share - exact).abs() < 0.01, "cell {cell}: {share} for {exact}");
        }
    }

    #[test]
    fn rising_is_falling_turned_around() {
        let ranks = Ranks::zipf(1000, 1, 1, 0.99);
        let ((falling, _), (rising, distribution)) = (ranks.falling(), ranks.rising());
        let last = rising.len() - 1;
        assert_eq!(rising.size(last), falling.size(0));
        let weights = distribution.weights();
        assert!(weights[last as usize].1 > 5.0 * weights[0].1 / f64::from(rising.size(0)));
    }
}
