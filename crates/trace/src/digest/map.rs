//! Which addresses were accessed when, and which of them moved: rows of addresses, columns of time.
//!
//! Memory is bounded: an [`Area`] that has more than [`ROWS_MAX`] rows makes each row twice as
//! large, and of more than [`AREAS_MAX`] areas those with the least evidence go. What goes does not
//! come back, so that an area that is there is whole.

use std::collections::{BTreeMap, BTreeSet};

use thermocline_core::access::RegionSpace;
use thermocline_core::moves::Direction;
use thermocline_core::units::VirtPage;

use super::span::BINS;

/// Rows that an area has at most.
pub const ROWS_MAX: usize = 512;
/// Areas that are kept.
pub const AREAS_MAX: usize = 16;
/// Areas that are remembered as left out; more are left out without being counted.
const LEFT_OUT_MAX: usize = 1 << 16;

/// What the heat of an area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Accesses that were seen, one by one.
    Accesses,
    /// The share of DAMON's checks that found an access.
    Checks,
    /// What another program has counted.
    Counts,
}

/// What is known of a row in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Accesses; of checks, the sum of their shares over the pages that were checked.
    pub heat: f32,
    /// Pages that were checked, each as often as it was.
    pub checked: f32,
    /// Accesses that were seen in the top tier.
    pub top: f32,
    /// Base pages promoted.
    pub up: u32,
    /// Base pages demoted.
    pub down: u32,
}

impl Cell {
    fn plus(&mut self, other: &Cell) {
        self.heat += other.heat;
        self.checked += other.checked;
        self.top += other.top;
        self.up = self.up.saturating_add(other.up);
        self.down = self.down.saturating_add(other.down);
    }
}

/// The cells of a row.
pub type Row = Vec<Cell>;

/// The accessed pages of an address space.
#[derive(Clone, Debug, Default)]
pub struct Area {
    /// log2 of the pages of a row.
    shift: u32,
    rows: BTreeMap<u64, Row>,
    /// Pieces of evidence.
    pub pieces: u64,
}

impl Area {
    /// Rows with evidence, by their first page.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &Row)> {
        self.rows.iter().map(|(number, row)| (number << self.shift, row))
    }

    /// Pages of a row.
    pub fn row_pages(&self) -> u64 {
        1 << self.shift
    }

    /// The same with at most `rows` rows, or one.
    pub fn with_rows(&self, rows: usize) -> Area {
        let mut out = self.clone();
        out.coarsen(rows.max(1));
        out
    }

    fn cell(&mut self, page: u64, bin: usize) -> &mut Cell {
        let row = self.rows.entry(page >> self.shift).or_insert_with(|| vec![Cell::default(); BINS]);
        &mut row[bin.min(BINS - 1)]
    }

    /// Makes rows larger until there are at most `most`.
    fn coarsen(&mut self, most: usize) {
        while self.rows.len() > most && self.shift < u64::BITS - 1 {
            self.double();
        }
    }

    fn double(&mut self) {
        self.shift += 1;
        for (number, row) in std::mem::take(&mut self.rows) {
            match self.rows.get_mut(&(number >> 1)) {
                None => drop(self.rows.insert(number >> 1, row)),
                Some(into) => into.iter_mut().zip(&row).for_each(|(into, cell)| into.plus(cell)),
            }
        }
    }

    /// Adds to all rows that pages `start` to `end` lie in, by the pages that lie there.
    fn range(&mut self, [start, end]: [u64; 2], bin: usize, mut add: impl FnMut(&mut Cell, f64)) {
        let Some(last) = end.checked_sub(1).filter(|last| start <= *last) else { return };
        while (last >> self.shift) - (start >> self.shift) >= ROWS_MAX as u64 {
            self.double();
        }
        for number in start >> self.shift..=last >> self.shift {
            let first = (number << self.shift).max(start);
            let until = (number << self.shift).saturating_add(self.row_pages() - 1).min(last);
            add(self.cell(first, bin), (until - first) as f64 + 1.0);
        }
        self.coarsen(ROWS_MAX);
    }
}

/// The areas of a recording.
#[derive(Clone, Debug, Default)]
pub struct Map {
    areas: BTreeMap<(RegionSpace, Kind), Area>,
    left_out: BTreeSet<(RegionSpace, Kind)>,
}

impl Map {
    /// Areas, those with the most evidence first.
    pub fn areas(&self) -> Vec<(RegionSpace, Kind, &Area)> {
        let mut out: Vec<_> = self.areas.iter().map(|((space, kind), area)| (*space, *kind, area)).collect();
        out.sort_by_key(|(.., area)| std::cmp::Reverse(area.pieces));
        out
    }

    /// How many others there were.
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Notes accesses to a page, in the top tier or not.
    pub fn access(&mut self, space: RegionSpace, page: u64, bin: usize, accesses: f64, top: bool) {
        let Some(area) = self.area(space, Kind::Accesses) else { return };
        let cell = area.cell(page, bin);
        cell.heat += accesses as f32;
        if top {
            cell.top += accesses as f32;
        }
        area.coarsen(ROWS_MAX);
    }

    /// Notes that a share of DAMON's checks found a region accessed.
    pub fn region(&mut self, space: RegionSpace, pages: [u64; 2], bin: usize, share: f64) {
        let Some(area) = self.area(space, Kind::Checks) else { return };
        area.range(pages, bin, |cell, pages| {
            cell.heat += (share * pages) as f32;
            cell.checked += pages as f32;
        });
    }

    /// Notes what another program has counted of a region.
    pub fn counted(&mut self, space: RegionSpace, pages: [u64; 2], bin: usize, accesses: f64) {
        let Some(area) = self.area(space, Kind::Counts) else { return };
        let all = pages[1].saturating_sub(pages[0]).max(1) as f64;
        area.range(pages, bin, |cell, pages| cell.heat += (accesses * pages / all) as f32);
    }

    /// Notes that a page moved, in areas that know something of its process.
    pub fn moved(&mut self, page: VirtPage, bin: usize, direction: Direction, pages: u64) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        for kind in [Kind::Accesses, Kind::Checks] {
            let Some(area) = self.areas.get_mut(&(RegionSpace::Virtual(page.pid), kind)) else { continue };
            let cell = area.cell(page.vpn, bin);
            match direction {
                Direction::Promote => cell.up = cell.up.saturating_add(pages),
                Direction::Demote => cell.down = cell.down.saturating_add(pages),
                Direction::Balance => {}
            }
            area.coarsen(ROWS_MAX);
        }
    }

    /// The area that a piece of evidence belongs to, unless it is left out.
    fn area(&mut self, space: RegionSpace, kind: Kind) -> Option<&mut Area> {
        let key = (space, kind);
        if !self.areas.contains_key(&key) {
            if self.left_out.contains(&key) || self.left_out.len() >= LEFT_OUT_MAX {
                return None;
            }
            if self.areas.len() >= AREAS_MAX {
                let least = self.areas.iter().min_by_key(|(_, area)| area.pieces).map(|(key, _)| *key)?;
                self.areas.remove(&least);
                self.left_out.insert(least);
            }
        }
        let area = self.areas.entry(key).or_default();
        area.pieces += 1;
        Some(area)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thermocline_core::units::Pid;

    use super::*;

    const SPACE: RegionSpace = RegionSpace::Virtual(Pid(1));

    fn sum(map: &Map, of: impl Fn(&Cell) -> f64) -> f64 {
        map.areas().iter().flat_map(|(.., area)| area.rows()).flat_map(|(_, row)| row).map(of).sum()
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_rows_are_bounded(
            pages in prop::collection::vec((any::<u64>(), 0..BINS), 1..2000), few in 1..40usize,
        ) {
            let mut map = Map::default();
            for (n, (page, bin)) in pages.iter().enumerate() {
                // Some close together, some anywhere.
                let page = if n % 3 == 0 { page % 5000 } else { *page };
                map.access(SPACE, page, *bin, 1.0, n % 2 == 0);
                map.moved(VirtPage { pid: Pid(1), vpn: page }, *bin, Direction::Promote, 1);
            }
            let all = pages.len() as f64;
            prop_assert_eq!(sum(&map, |cell| cell.heat.into()), all);
            prop_assert_eq!(sum(&map, |cell| cell.up.into()), all);
            let (_, _, area) = map.areas()[0];
            prop_assert!(area.rows().count() <= ROWS_MAX);
            let coarse = area.with_rows(few);
            prop_assert!(coarse.rows().count() <= few.max(2));
            let again: f64 = coarse.rows().flat_map(|(_, row)| row).map(|cell| f64::from(cell.heat)).sum();
            prop_assert_eq!(again, all);
        }

        #[test]
        fn a_region_is_in_its_rows_whole(start in any::<u64>(), length in 1..1u64 << 40, share in 0.0..1.0f64) {
            let end = start.saturating_add(length);
            prop_assume!(start < end);
            let mut map = Map::default();
            map.region(SPACE, [start, end], 3, share);
            let pages = (end - start) as f64;
            let checked = sum(&map, |cell| cell.checked.into());
            prop_assert!((checked / pages - 1.0).abs() < 1e-3, "{} of {}", checked, pages);
            let found = sum(&map, |cell| cell.heat.into());
            prop_assert!((found - share * pages).abs() <= 1e-3 * pages);
        }
    }

    #[test]
    fn of_many_processes_those_with_most_evidence_stay_and_are_whole() {
        let mut map = Map::default();
        for round in 0..100u64 {
            map.access(SPACE, round, 0, 1.0, false);
            map.access(RegionSpace::Virtual(Pid(1000 + round as u32)), 0, 0, 1.0, false);
        }
        let areas = map.areas();
        assert_eq!((areas.len(), map.left_out()), (AREAS_MAX, 101 - AREAS_MAX));
        assert_eq!((areas[0].0, areas[0].2.pieces), (SPACE, 100));
    }
}
