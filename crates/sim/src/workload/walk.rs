//! A walk: one page after another, a number of accesses to each; at the end of its range it starts
//! again.

use std::ops::Range;

/// Position and direction of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The next position.
    pub at: u32,
    /// Stride in positions; negative for a descending walk.
    pub step: i64,
    /// The range of positions.
    pub within: Range<u32>,
    /// Accesses to a page before the next.
    pub per_page: u32,
    /// Accesses to the current page so far.
    pub done: u32,
}

impl Walk {
    /// A walk that begins at `at`.
    pub fn new(at: u32, step: i64, within: Range<u32>, per_page: u32) -> Walk {
        Walk { at, step, within, per_page: per_page.max(1), done: 0 }
    }

    /// Advances to the next page.
    pub fn advance(&mut self) {
        let size = i64::from(self.within.end - self.within.start).max(1);
        let offset = (i64::from(self.at) - i64::from(self.within.start) + self.step).rem_euclid(size);
        self.at = self.within.start + offset as u32;
        self.done = 0;
    }

    /// The position of the next access.
    #[inline]
    pub fn access(&mut self) -> u32 {
        if self.done == self.per_page {
            self.advance();
        }
        self.done += 1;
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_down_and_in_strides_around_its_range() {
        let take = |mut walk: Walk, n: usize| (0..n).map(|_| walk.access()).collect::<Vec<_>>();
        assert_eq!(take(Walk::new(8, 1, 8..11, 2), 8), [8, 8, 9, 9, 10, 10, 8, 8]);
        assert_eq!(take(Walk::new(8, -1, 8..11, 1), 4), [8, 10, 9, 8]);
        assert_eq!(take(Walk::new(0, 3, 0..8, 1), 5), [0, 3, 6, 1, 4]);
    }
}
