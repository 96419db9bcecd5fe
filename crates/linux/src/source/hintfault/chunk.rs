//! The scans of one 2 MiB chunk of a process's address space, and which of them each page has
//! answered with a hint fault.
//!
//! A page's state is one byte: the number of the newest scan at the time of its last fault, modulo
//! [`STATES`] and plus 1, or [`UNANSWERED`]. The kernel stamps a page when it marks it, and not
//! again while it stays marked. So a page's stamp is the time of the first scan that covers it
//! after its last fault. Only a few scans are kept, and newer ones at shorter intervals. A stamp
//! derived from them is never later than the kernel's by more than a fraction of its age.

use thermocline_core::units::Nanos;

/// log2 of the base pages in a chunk.
pub(super) const CHUNK_SHIFT: u32 = 9;
/// Base pages in a chunk: what one page table maps on x86-64, and the size of a huge page.
pub(super) const CHUNK_PAGES: usize = 1 << CHUNK_SHIFT;
/// Scans kept for a chunk.
pub(super) const SCANS_KEPT: usize = 8;

/// The page has not faulted as far as we know, or so long ago that its number could be taken for
/// that of a newer scan.
const UNANSWERED: u8 = 0;
/// Number of different scan numbers in a state: a multiple of [`GENERATION`], below 256.
const STATES: u32 = 192;
/// Before a range of this many numbers is reused, pages that still have one of them become
/// [`UNANSWERED`].
const GENERATION: u32 = 64;

const _: () = assert!(STATES.is_multiple_of(GENERATION) && STATES < 256);

/// A scan, as far as it concerns one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkScan {
    /// When it reached the chunk.
    pub(super) time: Nanos,
    /// The process's hint faults until then, modulo 2^32.
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

/// The scans of a chunk, and the states of its pages.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    /// Newest first, each with its number; only the first `kept` entries are valid.
    scans: [(u32, ChunkScan); SCANS_KEPT],
    kept: usize,
    /// Number of the newest scan.
    newest: u32,
    /// The state of all pages while `pages` is absent. It is enough for a chunk that is one huge
    /// page.
    whole: u8,
    pages: Option<Box<[u8; CHUNK_PAGES]>>,
}

impl Chunk {
    pub(super) fn new() -> Chunk {
        Chunk { scans: Default::default(), kept: 0, newest: 0, whole: UNANSWERED, pages: None }
    }

    /// Adds a scan that is newer than all others.
    pub(super) fn push(&mut self, scan: ChunkScan) {
        self.newest = self.newest.wrapping_add(1);
        if self.newest.is_multiple_of(GENERATION) {
            self.forget_states(state(self.newest), state(self.newest + GENERATION - 1));
        }
        if self.kept == SCANS_KEPT {
            let least = self.least_missed(scan.time);
            self.scans.copy_within(0..least, 1);
        } else {
            self.scans.copy_within(0..self.kept, 1);
            self.kept += 1;
        }
        self.scans[0] = (self.newest, scan);
    }

    /// The first scan that covers `page` after the page's last fault.
    pub(super) fn first_after_fault(&self, page: usize) -> Option<&ChunkScan> {
        self.since_fault(page).filter(|scan| scan.covers(page)).last()
    }

    /// The latest scan that covers `page`, if it came after the page's last fault.
    pub(super) fn latest_after_fault(&self, page: usize) -> Option<&ChunkScan> {
        self.since_fault(page).find(|scan| scan.covers(page))
    }

    /// Marks `page`, or with `all` every page, as having faulted after every scan so far.
    pub(super) fn answer(&mut self, page: usize, all: bool) {
        if all {
            self.pages = None;
            self.whole = state(self.newest);
            return;
        }
        let whole = self.whole;
        let pages = self.pages.get_or_insert_with(|| Box::new([whole; CHUNK_PAGES]));
        pages[page % CHUNK_PAGES] = state(self.newest);
    }

    /// The scans after the last fault of `page`, newest first.
    fn since_fault(&self, page: usize) -> impl Iterator<Item = &ChunkScan> {
        let at_fault = self.pages.as_ref().map_or(self.whole, |pages| pages[page % CHUNK_PAGES]);
        let since = match at_fault {
            UNANSWERED => u32::MAX,
            _ => (u32::from(state(self.newest)) + STATES - u32::from(at_fault)) % STATES,
        };
        let scans = self.scans[..self.kept].iter();
        scans.take_while(move |(number, _)| self.newest.wrapping_sub(*number) < since).map(|(_, scan)| scan)
    }

    /// The index of the kept scan whose removal loses the least accuracy: the one whose neighbours
    /// have the smallest ratio of ages. Its pages get the stamp of the newer neighbour. So only a
    /// scan whose part of the chunk the newer neighbour covers may be removed; if there is none,
    /// the oldest is.
    fn least_missed(&self, now: Nanos) -> usize {
        let age = |index: usize| now.since(self.scans[index].1.time).0 as f64;
        let gap = |index: usize| age(index + 1) / age(index - 1).max(1.0);
        let replaceable = |&index: &usize| {
            let (newer, scan) = (&self.scans[index - 1].1, &self.scans[index].1);
            newer.start <= scan.start && newer.end >= scan.end
        };
        (1..SCANS_KEPT - 1)
            .filter(replaceable)
            .min_by(|&a, &b| gap(a).total_cmp(&gap(b)))
            .unwrap_or(SCANS_KEPT - 1)
    }

    /// Sets pages whose state is in `first..=last` to unanswered.
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

/// The state of a page that faults while `number` is the newest scan.
fn state(number: u32) -> u8 {
    (number % STATES) as u8 + 1
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
    fn kept_scans_are_closer_together_the_newer_they_are() {
        let mut chunk = Chunk::new();
        for i in 1..=1000 {
            chunk.push(scan(i * 1000, 0, 512));
        }
        let ages: Vec<u64> = chunk.scans.iter().map(|(_, s)| 1_000_000 - s.time.ms()).collect();
        assert_eq!((ages[0], ages[7]), (0, 999_000), "the newest and the first");
        for pair in ages[2..].windows(2) {
            assert!(pair[1] <= pair[0] * 8, "no gap is wider than a share of the age: {ages:?}");
        }
    }

    #[test]
    fn a_page_that_sleeps_through_many_scans_keeps_its_stamp_roughly() {
        let mut chunk = Chunk::new();
        for i in 1..=50 {
            chunk.push(scan(i * 100, 0, 512));
        }
        chunk.answer(3, false);
        for i in 51..=150 {
            chunk.push(scan(i * 100, 0, 512));
            let (kernels, ours) = (5100, first_ms(&chunk, 3).unwrap());
            let (age, found) = (i * 100 - kernels, i * 100 - ours);
            assert!(found <= age && found * 4 >= age, "marked {age} ms ago, taken for {found}");
        }
        assert_eq!(first_ms(&chunk, 4), Some(100), "a page that never faulted has the first scan's stamp");
    }

    #[test]
    fn scans_of_other_parts_do_not_push_each_other_out() {
        let mut chunk = Chunk::new();
        chunk.push(scan(100, 0, 100));
        for i in 2..=20 {
            chunk.push(scan(i * 100, 100, 512));
        }
        assert_eq!(first_ms(&chunk, 5), Some(100));
        let age = 2000 - first_ms(&chunk, 100).unwrap();
        assert!((900..=1800).contains(&age), "marked 1800 ms ago, taken for {age}");
    }

    #[test]
    fn numbers_wrap_without_old_faults_passing_for_new_ones() {
        // A page that faulted at scan n and was then idle is marked at every later scan. Its stamp
        // is that of scan n + 1 at the earliest or, once its state had to be forgotten, that of the
        // first scan.
        for n in [1u64, 63, 64, 65, 191, 192, 193, 300] {
            let mut chunk = Chunk::new();
            for i in 1..=n {
                chunk.push(scan(i, 0, 512));
            }
            chunk.answer(3, false);
            assert_eq!(first_ms(&chunk, 3), None);
            for i in n + 1..=n + 1000 {
                chunk.push(scan(i, 0, 512));
                let found =
                    first_ms(&chunk, 3).unwrap_or_else(|| panic!("faulted at {n}, not marked at {i}"));
                let forgotten = i - n > u64::from(STATES - GENERATION) && found == 1;
                assert!(found > n || forgotten, "faulted at {n}, now {i}, found {found}");
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
        assert_eq!(first_ms(&chunk, 5), Some(100), "so long ago that any scan may have marked it");
    }
}
