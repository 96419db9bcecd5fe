//! The hot page tracking unit of a CXL memory device (CXL 3.2, CHMU), in epochs.
//!
//! The device counts a random share of the accesses that reach it, by 4 KiB of its memory, in a
//! limited number of counters: an access that finds none free is not counted. At the end of an
//! epoch it lists the pages counted often enough, up to the length of its list, and frees all
//! counters. Losses are reported, since a tracker that runs out of counters or places gives a
//! distorted picture.
//!
//! Source: CXL 3.2, and the RFC of its perf driver. They leave accuracy to the implementation; this
//! one counts its samples exactly. What is not modelled: the always-on mode, coarser units,
//! interleaving over devices.

use std::collections::BTreeMap;

use crate::memory::Page;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Chmu {
    counters: BTreeMap<Page, u32>,
    counters_max: usize,
    threshold: u32,
    list_max: usize,
    /// Sampled accesses that found no counter.
    pub uncounted: u64,
    /// Pages that were hot and found no place in the list.
    pub unlisted: u64,
}

impl Chmu {
    /// A unit with `counters_max` counters and `list_max` places in its list; a page is hot if it
    /// is counted `threshold` times in an epoch.
    pub fn new(counters_max: usize, threshold: u32, list_max: usize) -> Chmu {
        Chmu { counters: BTreeMap::new(), counters_max, threshold, list_max, uncounted: 0, unlisted: 0 }
    }

    /// Counts a sampled access.
    pub fn count(&mut self, page: Page) {
        if let Some(counter) = self.counters.get_mut(&page) {
            *counter = counter.saturating_add(1);
        } else if self.counters.len() < self.counters_max {
            self.counters.insert(page, 1);
        } else {
            self.uncounted += 1;
        }
    }

    /// Ends the epoch: the hot pages in address order, with the count of each.
    pub fn end_epoch(&mut self) -> Vec<(Page, u32)> {
        let counters = std::mem::take(&mut self.counters);
        let mut hot: Vec<(Page, u32)> =
            counters.into_iter().filter(|(_, count)| *count >= self.threshold).collect();
        self.unlisted += hot.len().saturating_sub(self.list_max) as u64;
        hot.truncate(self.list_max);
        hot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_often_enough_is_listed_once_and_then_forgotten() {
        let mut unit = Chmu::new(100, 3, 100);
        for page in [5, 9, 5, 7, 5, 9, 9, 9, 7] {
            unit.count(page);
        }
        assert_eq!(unit.end_epoch(), [(5, 3), (9, 4)]);
        unit.count(5);
        assert_eq!(unit.end_epoch(), []);
        assert_eq!((unit.uncounted, unit.unlisted), (0, 0));
    }

    #[test]
    fn what_finds_no_counter_or_no_place_is_told() {
        let mut unit = Chmu::new(2, 1, 1);
        for page in [1, 2, 3, 3, 1] {
            unit.count(page);
        }
        assert_eq!(unit.uncounted, 2);
        assert_eq!(unit.end_epoch(), [(1, 2)]);
        assert_eq!(unit.unlisted, 1);
        // Counters are free again.
        unit.count(3);
        assert_eq!(unit.end_epoch(), [(3, 1)]);
    }
}
