//! Accessed bits: kept in exact mode, drawn when they are read in event mode.

use super::{Memory, Page, flags, lru};

impl Memory {
    /// Records an access to the page.
    #[inline]
    pub fn touch(&mut self, page: Page) {
        self.flags[page as usize] |= flags::ACCESSED;
    }

    /// Records an access for which the kernel sets the bit, so that it costs the program nothing
    /// more: a fault.
    pub fn touch_by_fault(&mut self, page: Page) {
        self.touch(page);
        self.set_lru(page, 0, lru::CLEARED);
    }

    /// Takes the number of accessed bits of a process that its accesses have set again after
    /// somebody had cleared them. They are counted when they are read.
    pub fn take_set_again(&mut self, space: usize) -> u64 {
        std::mem::take(&mut self.set_again[space])
    }

    /// Reads and clears the accessed bit: whether the page has been accessed since the last call. A
    /// huge page has one bit for all its pages.
    pub fn take_accessed(&mut self, page: Page) -> bool {
        self.take_accessed_in(self.space_of(page), page)
    }

    /// The same for a page whose space is known, for loops over many pages.
    #[inline]
    pub fn take_accessed_in(&mut self, space: usize, page: Page) -> bool {
        if !self.spaces[space].huge {
            return self.take_own_accessed(space, page);
        }
        self.spaces[space].block(page).fold(false, |any, page| self.take_own_accessed(space, page) | any)
    }

    #[inline]
    fn take_own_accessed(&mut self, space: usize, page: Page) -> bool {
        let asks = self.lazy && !self.is_marked(page);
        let accesses = if asks { self.cells.accesses(self.spaces[space].cell_of(page)) } else { 0.0 };
        self.take_of_cell(space, page, accesses)
    }

    /// The same for a page of a cell each of whose pages has had `accesses` accesses on average.
    #[inline]
    pub(super) fn take_of_cell(&mut self, space: usize, page: Page, accesses: f64) -> bool {
        let index = page as usize;
        let byte = self.flags[index];
        let mut accessed = byte & flags::ACCESSED != 0;
        if self.lazy && byte & flags::MARKED == 0 {
            accessed = accessed || self.drawn(index, accesses);
            self.notes[index] = (accesses as f32).to_bits();
        }
        self.flags[index] = byte & !flags::ACCESSED;
        if accessed {
            self.set_again[space] += u64::from(self.lru[index] & lru::CLEARED != 0);
            self.lru[index] |= lru::CLEARED;
        }
        accessed
    }

    /// Draws whether an unmarked page was accessed since its note, and keeps the answer in its bit.
    #[inline]
    pub(super) fn settle(&mut self, page: Page, cell: u32) {
        let index = page as usize;
        if self.flags[index] & flags::ACCESSED == 0 && self.drawn(index, self.cells.accesses(cell)) {
            self.flags[index] |= flags::ACCESSED;
        }
    }

    /// Draws whether an unmarked page was accessed since its note, when each page of its cell has
    /// had `accesses` accesses on average.
    #[inline]
    fn drawn(&mut self, index: usize, accesses: f64) -> bool {
        let since = accesses - f64::from(f32::from_bits(self.notes[index]));
        // Shortcuts for no access at all, and for many accesses: these are most of the cases.
        since > 0.0 && (since > 40.0 || self.random.exponential_below(since))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::memory;
    use super::*;

    #[test]
    fn a_huge_page_has_one_accessed_bit() {
        for lazy in [false, true] {
            let mut memory = memory(1024, lazy);
            memory.spaces[0].huge = true;
            (0..1024).for_each(|page| {
                memory.take_accessed(page);
            });
            memory.touch(700);
            assert!(!memory.take_accessed(5));
            assert!(memory.take_accessed(1000) && !memory.take_accessed(700));
        }
    }

    #[test]
    fn accessed_bits_are_drawn_with_their_probability_and_only_once() {
        let mut memory = memory(64 * 1024, true);
        assert!((0..memory.pages() as Page).all(|p| memory.take_accessed(p)), "allocation touches");
        for cell in 0..1024 {
            memory.cells.add_accesses(cell, 0.5);
        }
        let accessed = (0..memory.pages() as Page).filter(|p| memory.take_accessed(*p)).count() as f64;
        let expected = (1.0 - (-0.5f64).exp()) * memory.pages() as f64;
        assert!((accessed / expected - 1.0).abs() < 0.02, "{accessed} of {expected}");
        assert!((0..memory.pages() as Page).all(|p| !memory.take_accessed(p)));
    }

    #[test]
    fn an_access_costs_where_somebody_has_cleared_the_bit() {
        for lazy in [false, true] {
            let mut memory = memory(64, lazy);
            let take = |memory: &mut Memory| (0..8).filter(|page| memory.take_accessed(*page)).count();
            assert_eq!((take(&mut memory), memory.take_set_again(0)), (8, 0), "allocation is no access");
            assert_eq!((take(&mut memory), memory.take_set_again(0)), (0, 0));
            (0..3).for_each(|page| memory.touch(page));
            memory.touch_by_fault(3);
            assert_eq!((take(&mut memory), memory.take_set_again(0)), (4, 3));
            memory.touch(3);
            assert_eq!((take(&mut memory), memory.take_set_again(0)), (1, 1));
        }
    }

    #[test]
    fn a_marked_page_has_no_access_since_its_mark() {
        let mut memory = memory(64, true);
        (0..64).for_each(|p| assert!(memory.take_accessed(p)));
        memory.mark(0, 3..4, 1, 1, false);
        memory.cells.add_accesses(0, 1000.0);
        assert!(!memory.take_accessed(3));
        assert!(memory.take_accessed(4));
        memory.unmark(3);
        assert!(!memory.take_accessed(3), "the accesses while it was marked were not its own");
        memory.cells.add_accesses(0, 1000.0);
        assert!(memory.take_accessed(3));
    }

    #[test]
    fn an_access_before_the_mark_is_still_seen_after_it() {
        let mut memory = memory(64, true);
        (0..64).for_each(|p| assert!(memory.take_accessed(p)));
        memory.cells.add_accesses(0, 1000.0);
        memory.mark(0, 3..4, 1, 1, false);
        assert!(memory.take_accessed(3));
        assert!(!memory.take_accessed(3));
    }
}
