//! Memory with verifiable contents.
//!
//! Every 64-bit word holds a stamp derived from its position, so any word read shows whether it
//! came from the right page. The last word of each page is a counter that starts at its stamp: a
//! lost write shows in the sum.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use thermocline_core::units::PAGE_SIZE;

/// Words in a page.
pub const PAGE_WORDS: u32 = (PAGE_SIZE / 8) as u32;
/// Words of a page that never change; the one after them is the counter.
pub const STAMP_WORDS: u32 = PAGE_WORDS - 1;

/// Memory starts at a multiple of this, so that huge pages of x86-64 line up with its pages.
const ALIGN_BYTES: usize = 2 << 20;

/// A word with an unexpected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page {page} word {word} holds {found:#018x} instead of {expected:#018x}: data was lost")]
pub struct Mismatch {
    /// Page, counted from the start of this memory.
    pub page: u32,
    /// Word in the page.
    pub word: u32,
    /// The value found.
    pub found: u64,
    /// The expected value.
    pub expected: u64,
}

/// See the module.
pub struct StampedMemory {
    words: Vec<AtomicU64>,
    /// Words before the first aligned one.
    skipped: usize,
    pages: u32,
}

impl StampedMemory {
    /// Allocates and stamps `pages` pages. They lie where the kernel puts them for the calling
    /// thread.
    pub fn new(pages: u32) -> StampedMemory {
        let count = pages as usize * PAGE_WORDS as usize;
        let mut words: Vec<AtomicU64> = Vec::with_capacity(count + ALIGN_BYTES / 8);
        let address = words.as_ptr() as usize;
        let skipped = (address.next_multiple_of(ALIGN_BYTES) - address) / 8;
        words.extend((0..skipped).map(|_| AtomicU64::new(0)));
        words.extend((0..count as u64).map(|place| AtomicU64::new(stamp(place))));
        StampedMemory { words, skipped, pages }
    }

    /// The virtual address of page 0.
    pub fn base(&self) -> u64 {
        self.words[self.skipped..].as_ptr() as u64
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    fn word(&self, page: u32, word: u32) -> (&AtomicU64, u64) {
        let place = page as usize * PAGE_WORDS as usize + word as usize;
        (&self.words[self.skipped + place], stamp(place as u64))
    }

    /// Reads one word that never changes (below [`STAMP_WORDS`]).
    ///
    /// # Errors
    /// [`Mismatch`].
    pub fn check(&self, page: u32, word: u32) -> Result<(), Mismatch> {
        let (cell, expected) = self.word(page, word);
        let found = cell.load(Ordering::Relaxed);
        if found == expected { Ok(()) } else { Err(Mismatch { page, word, found, expected }) }
    }

    /// Adds one to the page's counter.
    pub fn write(&self, page: u32) {
        self.word(page, STAMP_WORDS).0.fetch_add(1, Ordering::Relaxed);
    }

    /// Checks every word of every page, where `writes(page)` writes were made to each.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn check_all(&self, writes: impl Fn(u32) -> u64) -> Result<(), Mismatch> {
        for page in 0..self.pages {
            for word in 0..STAMP_WORDS {
                self.check(page, word)?;
            }
            let (cell, start) = self.word(page, STAMP_WORDS);
            let (found, expected) = (cell.load(Ordering::Relaxed), start.wrapping_add(writes(page)));
            if found != expected {
                return Err(Mismatch { page, word: STAMP_WORDS, found, expected });
            }
        }
        Ok(())
    }

    /// The virtual addresses of all pages.
    pub fn range(&self) -> Range<u64> {
        self.base()..self.base() + u64::from(self.pages) * PAGE_SIZE
    }
}

/// Distinct for every place, and never the content of a fresh page: multiplication by an odd factor
/// is a bijection that gives zero only for place -1.
fn stamp(place: u64) -> u64 {
    (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_wrong_page_a_zero_page_and_a_lost_write() {
        let memory = StampedMemory::new(8);
        assert_eq!(memory.base() % ALIGN_BYTES as u64, 0);
        assert_eq!(memory.range().end - memory.base(), 8 * 4096);
        memory.check_all(|_| 0).unwrap();
        memory.write(3);
        memory.write(3);
        memory.check_all(|page| if page == 3 { 2 } else { 0 }).unwrap();
        let lost = memory.check_all(|page| if page == 3 { 3 } else { 0 }).unwrap_err();
        assert_eq!((lost.page, lost.word), (3, STAMP_WORDS));

        let (other, _) = memory.word(6, 10);
        let (cell, _) = memory.word(5, 10);
        cell.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        assert_eq!(memory.check(5, 10).unwrap_err().page, 5);
        memory.word(7, 0).0.store(0, Ordering::Relaxed);
        assert_eq!(memory.check(7, 0).unwrap_err().found, 0);
        memory.check(7, 1).unwrap();
    }
}
