//! Pattern `oltp`: transactions on tables of a database, as sysbench's `oltp` makes them (S2's
//! workload).
//!
//! A transaction picks rows: most picks fall on a small part in the middle of each table
//! (sysbench's distribution `special`). A database's page may be larger than the machine's. Point
//! queries and updates search their row's page, from its first base page to its last; range queries
//! walk over the pages that follow theirs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Distribution, Operation, Pattern, Phase, Shape, Visits, Walk};
use crate::memory::CellMap;
use crate::random::Random;
use crate::spec::{SpecError, require};

/// The keys of the pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oltp {
    /// Tables; memory is divided evenly among them.
    pub tables: u32,
    /// Transactions of each thread.
    pub transactions: u64,
    /// Base pages of a page of the database, of which each begins at a multiple: 4 for InnoDB.
    #[serde(default = "one")]
    pub page_pages: u32,
    /// Rows that a transaction's point queries and updates pick.
    #[serde(default = "one")]
    pub points: u32,
    /// Accesses to each of them, in equal parts to the base pages of its page.
    pub point_accesses: u64,
    /// Range queries of a transaction.
    pub ranges: u32,
    /// Base pages that a range query walks over.
    pub range_pages: u32,
    /// Accesses to each of these pages.
    pub range_accesses_per_page: u32,
    /// Share of each table's rows that are picked more often.
    pub hot_share: f64,
    /// Share of the picks that fall on them.
    pub pick_share: f64,
}

fn one() -> u32 {
    1
}

impl Oltp {
    pub(super) fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        let at = |key: &str| format!("{place}.{key}");
        let known = (1..=256).contains(&self.tables) && self.tables <= pages / 16;
        require(known, &at("tables"), "is out of range", "give 1 to 256, of 16 pages or more each")?;
        for (key, share) in [("hot_share", self.hot_share), ("pick_share", self.pick_share)] {
            require(share > 0.0 && share < 1.0, &at(key), "is no share", "give a number between 0 and 1")?;
        }
        let walks = self.ranges > 0;
        let some = self.point_accesses > 0 && self.transactions > 0;
        require(some, place, "makes no access", "give transactions and point_accesses above 0")?;
        let long = self.range_pages > 0 && self.range_accesses_per_page > 0 && self.range_pages < pages;
        require(
            !walks || long,
            &at("range_pages"),
            "makes no walk",
            "give pages and accesses, or no ranges",
        )?;
        let parts = (1..=64).contains(&self.page_pages)
            && self.point_accesses.is_multiple_of(u64::from(self.page_pages))
            && pages > 2 * self.page_pages;
        require(parts, &at("page_pages"), "does not divide point_accesses", "give 1 to 64, a part of it")?;
        require((1..=1000).contains(&self.points), &at("points"), "is out of range", "give 1 to 1000")?;
        require(self.ranges <= 100, &at("ranges"), "is out of range", "give 0 to 100")?;
        let mut starts = Vec::new();
        let mut hot = Vec::new();
        for table in 0..u64::from(self.tables) {
            let (start, end) = (
                u64::from(pages) * table / u64::from(self.tables),
                u64::from(pages) * (table + 1) / u64::from(self.tables),
            );
            let size = ((end - start) as f64 * self.hot_share).round().clamp(1.0, (end - start - 2) as f64);
            let first = start + (end - start - size as u64) / 2;
            for (at, is_hot) in [(start, false), (first, true), (first + size as u64, false)] {
                if starts.last().is_none_or(|last| u64::from(*last) < at) {
                    starts.push(at as u32);
                    hot.push(is_hot);
                }
            }
        }
        let map = CellMap::of(&starts, pages);
        let pages_of = |wanted: bool| -> f64 {
            (0..map.len()).filter(|c| hot[*c as usize] == wanted).map(|c| f64::from(map.size(c))).sum()
        };
        let (hot_pages, cold_pages) = (pages_of(true), pages_of(false));
        let weight = |cell: u32| {
            let of = if hot[cell as usize] {
                self.pick_share / hot_pages
            } else {
                (1.0 - self.pick_share) / cold_pages
            };
            (cell, of * f64::from(map.size(cell)))
        };
        let picks = Arc::new(Distribution::weighted((0..map.len()).map(weight)));
        Ok(Box::new(Running { spec: self.clone(), map, picks, pages, made: vec![0; threads as usize] }))
    }
}

#[derive(Debug)]
struct Running {
    spec: Oltp,
    map: CellMap,
    picks: Arc<Distribution>,
    pages: u32,
    /// Phases that each thread has had: a transaction is one per point query, or one for all where
    /// pages are base pages, plus one per range.
    made: Vec<u64>,
}

impl Pattern for Running {
    fn cells(&self) -> CellMap {
        self.map.clone()
    }

    /// The base pages of a page, and those of a range, count as drawn on their own.
    fn operation(&self) -> Option<Operation> {
        let spec = &self.spec;
        let visits = |pages: u32, number: u32, accesses: f64| {
            let number = f64::from(pages) * f64::from(number);
            Visits { cells: 0..self.map.len(), number: (number, number), accesses }
        };
        let per_page = spec.point_accesses as f64 / f64::from(spec.page_pages);
        let points = visits(spec.page_pages, spec.points, per_page);
        let ranges = visits(spec.range_pages, spec.ranges, f64::from(spec.range_accesses_per_page));
        Some(Operation { kinds: vec![(1.0, vec![points, ranges])], popularity: Some(self.picks.clone()) })
    }

    fn next_phase(&mut self, thread: u32, random: &mut Random) -> Option<Phase> {
        let spec = &self.spec;
        let alike = spec.page_pages == 1;
        let points = if alike { 1 } else { u64::from(spec.points) };
        let each = points + u64::from(spec.ranges);
        let made = self.made.get_mut(thread as usize)?;
        if *made >= each * spec.transactions {
            return None;
        }
        *made += 1;
        let is_point = (*made - 1) % each < points;
        if is_point && alike {
            let shape = Shape::Random(self.picks.clone());
            return Some(Phase { shape, accesses: spec.point_accesses * u64::from(spec.points) });
        }
        let (walked, per_page) = if is_point {
            (spec.page_pages, (spec.point_accesses / u64::from(spec.page_pages)) as u32)
        } else {
            (spec.range_pages, spec.range_accesses_per_page)
        };
        let at = self.picks.draw(&self.map, random).min(self.pages - walked.max(spec.page_pages));
        let walk = Walk::new(at - at % spec.page_pages, 1, 0..self.pages, per_page);
        Some(Phase { shape: Shape::Walk(walk), accesses: u64::from(walked) * u64::from(per_page) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn a_transaction_is_points_and_ranges_and_most_picks_are_hot() {
        let spec = Oltp {
            tables: 10,
            transactions: 2000,
            page_pages: 1,
            points: 3,
            point_accesses: 10,
            ranges: 4,
            range_pages: 5,
            range_accesses_per_page: 64,
            hot_share: 0.01,
            pick_share: 0.75,
        };
        let mut pattern = spec.build(100_000, 1, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let (mut walks, mut hot, mut points) = (0u32, 0u32, 0u32);
        while let Some(phase) = pattern.next_phase(0, &mut random) {
            match phase.shape {
                Shape::Random(_) => points += 1,
                Shape::Walk(walk) => {
                    walks += 1;
                    // Each table has 10,000 pages, the middle 100 of which are hot.
                    hot += u32::from((4950..5050).contains(&(walk.at % 10_000)));
                    assert_eq!(phase.accesses, 320);
                }
            }
        }
        assert_eq!((points, walks), (2000, 8000));
        let share = f64::from(hot) / f64::from(walks);
        assert!((share - 0.7525).abs() < 0.02, "{share}");
    }

    #[test]
    fn a_point_query_goes_through_the_base_pages_of_its_page() {
        let spec = Oltp {
            tables: 10,
            transactions: 50,
            page_pages: 4,
            points: 14,
            point_accesses: 12,
            ranges: 4,
            range_pages: 8,
            range_accesses_per_page: 4,
            hot_share: 0.01,
            pick_share: 0.75,
        };
        let mut pattern = spec.build(100_000, 1, "pattern").unwrap();
        let mut random = Random::new(1, Stream::Phases(0));
        let mut accesses = Vec::new();
        assert_eq!(pattern.operation().unwrap().accesses(), f64::from(14 * 12 + 4 * 32));
        while let Some(phase) = pattern.next_phase(0, &mut random) {
            let Shape::Walk(walk) = phase.shape else { panic!("a draw without neighbours") };
            assert!(walk.at.is_multiple_of(4), "{}", walk.at);
            accesses.push(phase.accesses);
        }
        assert_eq!(accesses.len(), 50 * 18);
        assert!(accesses[..14].iter().all(|n| *n == 12) && accesses[14..18].iter().all(|n| *n == 32));
    }
}
