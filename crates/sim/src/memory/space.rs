//! The pages of one process.

use std::ops::Range;

use super::layout::Layout;
use super::{CellMap, Page};

/// Base pages of a huge page.
pub const HUGE_PAGES: Page = 512;

/// The pages of one process.
#[derive(Clone, Debug)]
pub struct Space {
    /// Its first page.
    pub start: Page,
    /// Page after its last.
    pub end: Page,
    /// How positions follow from pages.
    pub layout: Layout,
    /// Its cells, by position.
    pub map: CellMap,
    /// Number of its first cell among all.
    pub first_cell: u32,
    /// Its memory is mapped by huge pages.
    pub huge: bool,
}

impl Space {
    /// The position of a page among those of its process.
    #[inline]
    pub fn position(&self, page: Page) -> u32 {
        self.layout.position(page - self.start)
    }

    /// The number, among all, of the cell that holds a page of this space.
    #[inline]
    pub fn cell_of(&self, page: Page) -> u32 {
        self.first_cell + self.map.cell_of(self.position(page))
    }

    /// The page at a position.
    #[inline]
    pub fn page(&self, position: u32) -> Page {
        self.start + self.layout.page(position)
    }

    /// The pages that are mapped together with a page: itself, or the huge page that it is part of.
    pub fn block(&self, page: Page) -> Range<Page> {
        if !self.huge {
            return page..page + 1;
        }
        let start = page - (page - self.start) % HUGE_PAGES;
        start..(start + HUGE_PAGES).min(self.end)
    }

    /// Pages of the process.
    pub fn len(&self) -> u32 {
        self.end - self.start
    }

    /// Whether it has no page.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_begin_with_the_process_and_the_last_may_be_smaller() {
        let map = CellMap::equal(1100, 64);
        let base = Space { start: 7, end: 1107, layout: Layout::Identity, map, first_cell: 0, huge: false };
        assert_eq!(base.block(520), 520..521);
        let huge = Space { huge: true, ..base };
        assert_eq!((huge.block(7), huge.block(518), huge.block(519)), (7..519, 7..519, 519..1031));
        assert_eq!(huge.block(1106), 1031..1107);
    }
}
