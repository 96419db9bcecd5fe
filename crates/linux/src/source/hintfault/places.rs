//! Finds the frames of pages for which the kernel side knows only the address of their `struct
//! page`.
//!
//! The kernel keeps these structures in one array, in order of frames. The start of the array is
//! random and not published. It follows from the frame of any one page, which pagemap shows.

use std::path::PathBuf;
use std::time::Duration;

use thermocline_core::units::{Pfn, Pid};

use crate::aside::{Answer, Aside, Later};
use crate::pagemap::Pagemap;
use crate::root::Root;

/// Number of initial lookups for which every fault may be used; two that agree are enough. After
/// them, two faults in every `TWO_LOOKS_EVERY` are used. Without CAP_SYS_ADMIN all lookups fail.
const LOOKS_FIRST: u64 = 64;
const TWO_LOOKS_EVERY: u64 = 4096;
/// How long one call waits for a pagemap, and after how long reading it is given up.
const PATIENCE: Duration = Duration::from_millis(1);
const BOUND: Duration = Duration::from_secs(1);

/// The start of the array is a multiple of this: memory begins at a multiple of 1 GiB, and 4 KiB of
/// memory have 64 bytes of the array (on x86-64 the array is even aligned to 1 GiB).
const ALIGNMENT: u64 = 16 << 20;

/// What is known of the kernel's array of pages.
#[derive(Debug)]
pub(super) struct Places {
    /// Size of an element.
    page_bytes: u64,
    /// Address of frame 0's element, once it is known.
    first: Option<u64>,
    /// The place of a page, and the start of the array that follows from it. The page may have been
    /// moved before the pagemap was read, so another page must confirm it.
    guess: Option<(u64, u64)>,
    /// Faults for whose pages no frame was found.
    unknown: u64,
    /// Lookups that have ended.
    looks: u64,
    proc: PathBuf,
    reading: Later<Option<Pfn>>,
    /// The page that is being looked up: process, virtual page number, place.
    asked: Option<(Pid, u64, u64)>,
}

impl Places {
    /// For a kernel whose `struct page` has `page_bytes` bytes.
    pub(super) fn new(root: &Root, page_bytes: u64) -> Places {
        Places {
            page_bytes: page_bytes.max(1),
            first: None,
            guess: None,
            unknown: 0,
            looks: 0,
            proc: root.proc.clone(),
            reading: Later::new(Aside::new(root, "the frame of a page was looked up", BOUND), PATIENCE),
            asked: None,
        }
    }

    /// The frame of the page at `place`, which `pid` maps at `vpn`. `None` until the lookups of two
    /// pages agree.
    pub(super) fn frame(&mut self, pid: Pid, vpn: u64, place: u64) -> Option<Pfn> {
        if self.first.is_none() {
            // A lookup that has begun is continued until it ends, so that a slow one counts only
            // once.
            if self.asked.is_some() || self.looks < LOOKS_FIRST || self.unknown % TWO_LOOKS_EVERY < 2 {
                self.look((pid, vpn, place));
            }
            self.unknown += 1;
        }
        Some(Pfn(place.checked_sub(self.first?)? / self.page_bytes))
    }

    fn look(&mut self, page: (Pid, u64, u64)) {
        let (pid, vpn, place) = *self.asked.get_or_insert(page);
        let proc = self.proc.clone();
        let read = move || Pagemap::open(&proc, pid).ok()?.entry(vpn).ok()??.pfn();
        // The place distinguishes this lookup from others of the same process.
        let told = match self.reading.ask((pid, place), read) {
            Answer::NotYet => return,
            Answer::Here(told) => told,
            Answer::Hung => None,
        };
        self.asked = None;
        self.looks += 1;
        let first = |pfn: Pfn| place.checked_sub(pfn.0.checked_mul(self.page_bytes)?);
        let Some(first) = told.and_then(first).filter(|first| first.is_multiple_of(ALIGNMENT)) else {
            return;
        };
        match self.guess {
            Some((other, guessed)) if other != place && guessed == first => self.first = Some(first),
            Some((other, _)) if other == place => {}
            _ => self.guess = Some((place, first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 0xffff_ea00_0000_0000;
    const BYTES: u64 = 64;

    /// A machine with processes whose pages 0, 1, ... have these frames.
    fn machine(frames: &[(u32, &[u64])]) -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        for (pid, pfns) in frames {
            let of = root.proc.join(pid.to_string());
            std::fs::create_dir_all(&of).unwrap();
            let entries: Vec<u8> = pfns.iter().flat_map(|pfn| (1 << 63 | pfn).to_ne_bytes()).collect();
            std::fs::write(of.join("pagemap"), entries).unwrap();
        }
        let mut places = Places::new(&root, BYTES);
        // A slow machine must not matter: these pagemaps do not hang.
        places.reading = Later::new(Aside::new(&root, "a test looked", BOUND), BOUND);
        (folder, places)
    }

    fn place(pfn: u64) -> u64 {
        FIRST + pfn * BYTES
    }

    #[test]
    fn two_pages_that_agree_tell_all_frames() {
        let (_folder, mut places) = machine(&[(7, &[500, 900])]);
        assert_eq!(places.frame(Pid(7), 0, place(500)), None);
        assert_eq!(places.frame(Pid(7), 0, place(500)), None, "the same page says nothing new");
        assert_eq!(places.frame(Pid(7), 1, place(900)), Some(Pfn(900)));
        assert_eq!(places.frame(Pid(8), 5, place(123_456)), Some(Pfn(123_456)), "nobody is asked any more");
        assert_eq!(places.frame(Pid(8), 5, FIRST - 1), None, "no page is there");
    }

    #[test]
    fn a_page_that_has_moved_meanwhile_misleads_nobody() {
        // Both were at frame 500 when they faulted, and one moved by exactly 1 GiB.
        let (_folder, mut places) = machine(&[(7, &[40, 500 + (1 << 18)]), (9, &[600, 601])]);
        assert_eq!(places.frame(Pid(7), 0, place(500)), None);
        assert_eq!(places.guess, None, "no array begins there");
        assert_eq!(places.frame(Pid(7), 1, place(500)), None);
        assert_eq!(places.frame(Pid(9), 0, place(600)), None, "the two contradict each other");
        assert_eq!(places.frame(Pid(9), 1, place(601)), Some(Pfn(601)));
    }

    #[test]
    fn where_frames_are_hidden_few_are_asked_for() {
        let (folder, mut places) = machine(&[(7, &[0, 0])]);
        for fault in 0..LOOKS_FIRST {
            assert_eq!(places.frame(Pid(7), fault % 2, place(500 + fault % 2)), None);
        }
        let shown: Vec<u8> = [500u64, 501].iter().flat_map(|pfn| (1 << 63 | pfn).to_ne_bytes()).collect();
        std::fs::write(folder.path().join("proc/7/pagemap"), shown).unwrap();
        for fault in LOOKS_FIRST..=TWO_LOOKS_EVERY {
            assert_eq!(places.frame(Pid(7), fault % 2, place(500 + fault % 2)), None, "{fault}");
        }
        assert_eq!(places.frame(Pid(7), 1, place(501)), Some(Pfn(501)), "looked at again, two at a time");
    }
}
