//! The scans of one 2 MiB chunk of a process's address space, and which of them each page has answered.
//!
//! Scans are numbered 1 to [`SEQ_MAX`], then from 1 again. A page's state is one byte: the number of the newest scan when it last
//! faulted, or [`UNANSWERED`]. The kernel stamps a page when it marks it and not again while it stays marked, so a page's stamp is
//! that of the first scan that covers it after its state.

use thermocline_core::units::Nanos;

/// log2 of the base pages in a chunk.
pub(super) const CHUNK_SHIFT: u32 = 9;
/// Base pages in a chunk: what one page table maps on x86-64, and one huge page.
pub(super) const CHUNK_PAGES: usize = 1 << CHUNK_SHIFT;
/// Scans kept for a chunk. A page that outlasts more of them gets the oldest that is kept: its latency is then a lower bound.
pub(super) const SCANS_KEPT: usize = 8;

/// Never faulted as far as we know, or so long ago that the number would be taken for a newer scan's.
const UNANSWERED: u8 = 0;
/// Highest scan number. A multiple of [`GENERATION`], below 256.
const SEQ_MAX: u8 = 192;
/// Before a run of this many numbers is used again, pages that still bear one of them become [`UNANSWERED`].
const GENERATION: u8 = 64;

const _: () = assert!(SEQ_MAX.is_multiple_of(GENERATION) && (SCANS_KEPT as u8) < GENERATION);

/// One scan, as far as it concerns one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkScan {
    /// When it passed the chunk.
    pub(super) time: Nanos,
    /// Hint faults of the process until then, modulo 2^32.
    pub(super) faults: u32,
    /// First page of the chunk that it covered.
    pub(super) start: u16,
    /// Page after the last that it covered.
    pub(super) end: u16,
}

impl ChunkScan {
    fn covers(&self, page: usize) -> bool {
        (usize::from(self.start)..usize::from(self.end)).contains(&page)
    }
}

/// The newest scans of a chunk and the states of its pages.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    scans: [ChunkScan; SCANS_KEPT],
    /// How many of `scans` are filled; the newest is at `newest`.
    kept: u8,
    newest: u8,
    /// Number of the newest scan.
    seq: u8,
    /// State of all pages while `pages` is absent: a chunk of one huge page needs no more.
    whole: u8,
    pages: Option<Box<[u8; CHUNK_PAGES]>>,
}

impl Chunk {
    pub(super) fn new() -> Chunk {
        Chunk {
            scans: [ChunkScan::default(); SCANS_KEPT],
            kept: 0,
            newest: 0,
            seq: UNANSWERED,
            whole: UNANSWERED,
            pages: None,
        }
    }

    /// Adds a scan, newer than all before.
    pub(super) fn push(&mut self, scan: ChunkScan) {
        self.seq = if self.seq == SEQ_MAX { 1 } else { self.seq + 1 };
        if (self.seq - 1).is_multiple_of(GENERATION) {
            self.forget_states(self.seq, self.seq - 1 + GENERATION);
        }
        self.newest = (self.newest + 1) % SCANS_KEPT as u8;
        self.scans[usize::from(self.newest)] = scan;
        self.kept = (self.kept + 1).min(SCANS_KEPT as u8);
    }

    /// The first scan that covers `page` after its last fault.
    pub(super) fn first_after_fault(&self, page: usize) -> Option<&ChunkScan> {
        self.since_fault(page).rev().find(|scan| scan.covers(page))
    }

    /// The latest scan that covers `page`, if it is after its last fault.
    pub(super) fn latest_after_fault(&self, page: usize) -> Option<&ChunkScan> {
        self.since_fault(page).find(|scan| scan.covers(page))
    }

    /// `page`, or with `all` every page, has answered every scan so far.
    pub(super) fn answer(&mut self, page: usize, all: bool) {
        if all {
            self.pages = None;
            self.whole = self.seq;
            return;
        }
        let whole = self.whole;
        let pages = self.pages.get_or_insert_with(|| Box::new([whole; CHUNK_PAGES]));
        pages[page % CHUNK_PAGES] = self.seq;
    }

    /// Scans after the last fault of `page`, newest first.
    fn since_fault(&self, page: usize) -> impl DoubleEndedIterator<Item = &ChunkScan> {
        let state = self.pages.as_ref().map_or(self.whole, |pages| pages[page % CHUNK_PAGES]);
        let behind = match state {
            UNANSWERED => SCANS_KEPT,
            _ if state <= self.seq => usize::from(self.seq - state),
            _ => usize::from(SEQ_MAX - state + self.seq),
        };
        let newest = usize::from(self.newest);
        (0..behind.min(self.kept.into()))
            .map(move |age| &self.scans[(newest + SCANS_KEPT - age) % SCANS_KEPT])
    }

    /// Pages whose state is one of `first..=last` become unanswered.
    fn forget_states(&mut self, first: u8, last: u8) {
        let states = first..=last;
        if states.contains(&self.whole) {
            self.whole = UNANSWERED;
        }
        for state in self.pages.iter_mut().flat_map(|pages| pages.iter_mut()) {
            if states.contains(state) {
                *state = UNANSWERED;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(ms: u64, start: u16, end: u16) -> ChunkScan {
        ChunkScan { time: Nanos::from_ms(ms), faults: ms as u32, start, end }
    }

    fn first_ms(chunk: &Chunk, page: usize) -> Option<u64> {
        chunk.first_after_fault(page).map(|s| s.time.ms())
    }

    #[test]
    fn a_marked_page_is_not_stamped_again() {
        let mut chunk = Chunk::new();
        chunk.push(scan(100, 0, 512));
        chunk.push(scan(200, 0, 512));
        assert_eq!(first_ms(&chunk, 7), Some(100));
        assert_eq!(chunk.latest_after_fault(7).map(|s| s.time.ms()), Some(200), "unless re-stamping");
        chunk.answer(7, false);
        assert_eq!(first_ms(&chunk, 7), None, "no scan since its fault");
        assert_eq!(first_ms(&chunk, 8), Some(100), "its neighbour is still marked");
        chunk.push(scan(300, 0, 512));
        chunk.push(scan(400, 0, 512));
        assert_eq!(first_ms(&chunk, 7), Some(300));
        assert_eq!(first_ms(&chunk, 8), Some(100));
    }

    #[test]
    fn a_scan_of_a_part_counts_for_that_part() {
        let mut chunk = Chunk::new();
        chunk.push(scan(100, 0, 100));
        chunk.push(scan(200, 100, 512));
        chunk.push(scan(300, 0, 512));
        assert_eq!(first_ms(&chunk, 99), Some(100));
        assert_eq!(first_ms(&chunk, 100), Some(200), "the end is exclusive");
        chunk.answer(100, false);
        assert_eq!(first_ms(&chunk, 100), None);
        chunk.push(scan(400, 0, 100));
        assert_eq!(first_ms(&chunk, 100), None, "not covered since");
        chunk.push(scan(500, 100, 101));
        assert_eq!(first_ms(&chunk, 100), Some(500));
    }

    #[test]
    fn a_page_that_outlasts_the_kept_scans_gets_the_oldest() {
        let mut chunk = Chunk::new();
        for i in 1..=20 {
            chunk.push(scan(i * 100, 0, 512));
        }
        assert_eq!(first_ms(&chunk, 0), Some(1300), "scans 13 to 20 are kept");
    }

    #[test]
    fn scan_numbers_wrap_without_old_faults_passing_for_new_ones() {
        // A page that faulted at scan n and then slept must, at every later scan, have the stamp of scan n + 1 or of the oldest
        // kept, never `None` or a newer one.
        for n in [1u64, 63, 64, 65, 191, 192] {
            let mut chunk = Chunk::new();
            for i in 1..=n {
                chunk.push(scan(i, 0, 512));
            }
            chunk.answer(3, false);
            for i in n + 1..=n + 600 {
                chunk.push(scan(i, 0, 512));
                let oldest_kept = (i + 1).saturating_sub(SCANS_KEPT as u64);
                assert_eq!(first_ms(&chunk, 3), Some(oldest_kept.max(n + 1)), "faulted at {n}, now {i}");
            }
        }
    }

    #[test]
    fn a_huge_page_answers_as_one_and_may_be_split() {
        let mut chunk = Chunk::new();
        chunk.push(scan(100, 0, 512));
        chunk.answer(0, true);
        assert_eq!(first_ms(&chunk, 0), None);
        assert!(chunk.pages.is_none(), "no page needs a state of its own");
        chunk.push(scan(200, 0, 512));
        chunk.answer(5, false);
        assert_eq!(first_ms(&chunk, 5), None);
        assert_eq!(first_ms(&chunk, 6), Some(200));
        for _ in 0..400 {
            chunk.push(scan(300, 0, 512));
        }
        assert_eq!(first_ms(&chunk, 5), Some(300));
    }
}
