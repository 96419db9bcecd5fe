//! Frames and the pages that map them: 8 bytes per frame, allocated by section of 128 MiB.

use std::collections::BTreeMap;

use thermocline_core::units::{Pfn, Pid, VirtPage};

/// log2 of the frames in a section.
const SECTION_SHIFT: u32 = 15;
/// Frames in a section.
const SECTION_FRAMES: u64 = 1 << SECTION_SHIFT;
/// Memory of a section in bytes.
pub(super) const SECTION_BYTES: u64 = SECTION_FRAMES * size_of::<Entry>() as u64;

/// log2 of a huge page in base pages.
pub(crate) const HUGE_ORDER: u8 = 9;
/// Base pages in a huge page.
pub(super) const HUGE_PAGES: u64 = 1 << HUGE_ORDER;

const HUGE_BIT: u64 = 1 << 63;
const PID_SHIFT: u32 = 41;
/// Number of processes that an entry can name: as many as Linux can number
/// (include/linux/threads.h, PID_MAX_LIMIT).
const PID_END: u64 = 1 << 22;
/// Virtual pages that an entry can name: addresses of 53 bits. Only programs that request addresses
/// beyond 47 bits, with five-level page tables, get higher ones.
pub(super) const VPN_END: u64 = 1 << PID_SHIFT;

/// The page that maps a frame: 1 bit huge, 22 bits process, 41 bits virtual page. All zero:
/// unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry(u64);

impl Entry {
    fn new(page: VirtPage, huge: bool) -> Option<Entry> {
        let pid = u64::from(page.pid.0);
        if pid >= PID_END || page.vpn >= VPN_END {
            return None;
        }
        Some(Entry(if huge { HUGE_BIT } else { 0 } | pid << PID_SHIFT | page.vpn))
    }

    const fn page(self) -> VirtPage {
        let pid = (self.0 >> PID_SHIFT) & (PID_END - 1);
        VirtPage { pid: Pid(pid as u32), vpn: self.0 & (VPN_END - 1) }
    }

    const fn huge(self) -> bool {
        self.0 & HUGE_BIT != 0
    }
}

/// The entry of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    /// The virtual page that maps it; of a huge page, the one that maps its head.
    pub(super) page: VirtPage,
    /// The frame; of a huge page, its head.
    pub(super) pfn: Pfn,
    /// log2 of the page's size in base pages.
    pub(super) order: u8,
}

/// The frames whose virtual page is known.
#[derive(Debug)]
pub(super) struct Table {
    sections: BTreeMap<u64, Box<[Entry]>>,
    sections_max: u64,
    known: u64,
    no_room: u64,
}

impl Table {
    /// An empty table of at most `bytes`, but at least one section.
    pub(super) fn new(bytes: u64) -> Table {
        let sections_max = (bytes / SECTION_BYTES).max(1);
        Table { sections: BTreeMap::new(), sections_max, known: 0, no_room: 0 }
    }

    /// Records the page that maps a frame, replacing the former entry; for a huge page, whose
    /// frames begin at a multiple of its size, all of its frames.
    pub(super) fn insert(&mut self, pfn: Pfn, page: VirtPage, huge: bool) {
        let pages = if huge { HUGE_PAGES } else { 1 };
        let last = VirtPage { vpn: page.vpn.saturating_add(pages - 1), ..page };
        let (Some(first), Some(_)) = (Entry::new(page, huge), Entry::new(last, huge)) else { return };
        debug_assert!(pfn.0.is_multiple_of(pages), "{pfn:?} is in the middle of a huge page");
        let number = pfn.0 >> SECTION_SHIFT;
        if !self.sections.contains_key(&number) {
            if self.sections.len() as u64 >= self.sections_max {
                self.no_room += pages;
                return;
            }
            let section = vec![Entry::default(); SECTION_FRAMES as usize].into_boxed_slice();
            self.sections.insert(number, section);
        }
        let Some(section) = self.sections.get_mut(&number) else { return };
        let at = (pfn.0 % SECTION_FRAMES) as usize;
        // Sections begin at multiples of huge pages.
        for (n, slot) in section[at..].iter_mut().take(pages as usize).enumerate() {
            self.known += u64::from(*slot == Entry::default());
            *slot = Entry(first.0 + n as u64);
        }
    }

    /// The page that maps a frame, if known.
    #[inline]
    pub(super) fn get(&self, pfn: Pfn) -> Option<Mapped> {
        let section = self.sections.get(&(pfn.0 >> SECTION_SHIFT))?;
        let entry = section[(pfn.0 % SECTION_FRAMES) as usize];
        if entry == Entry::default() {
            return None;
        }
        let page = entry.page();
        if !entry.huge() {
            return Some(Mapped { page, pfn, order: 0 });
        }
        let tails = pfn.0 % HUGE_PAGES;
        // A tail's page is as far after its head's as the frame is, or it would not have been
        // recorded.
        let page = VirtPage { vpn: page.vpn - tails, ..page };
        Some(Mapped { page, pfn: Pfn(pfn.0 - tails), order: HUGE_ORDER })
    }

    /// Removes the entries of a page's frames; false if there were none.
    pub(super) fn remove(&mut self, pfn: Pfn, order: u8) -> bool {
        let Some(section) = self.sections.get_mut(&(pfn.0 >> SECTION_SHIFT)) else { return false };
        let mut removed = 0;
        let at = (pfn.0 % SECTION_FRAMES) as usize;
        for slot in section[at..].iter_mut().take(1 << order.min(HUGE_ORDER)) {
            removed += u64::from(*slot != Entry::default());
            *slot = Entry::default();
        }
        self.known -= removed;
        removed > 0
    }

    /// Frames `[start, end)` have disappeared.
    pub(super) fn offline(&mut self, start: Pfn, end: Pfn) {
        let (first, last) = (start.0 >> SECTION_SHIFT, end.0.div_ceil(SECTION_FRAMES));
        let touched: Vec<u64> =
            self.sections.range(first..last.max(first)).map(|(&number, _)| number).collect();
        for number in touched {
            let base = number << SECTION_SHIFT;
            let Some(section) = self.sections.get_mut(&number) else { continue };
            let from = start.0.saturating_sub(base) as usize;
            let to = (end.0 - base).min(SECTION_FRAMES) as usize;
            for slot in &mut section[from..to] {
                self.known -= u64::from(*slot != Entry::default());
                *slot = Entry::default();
            }
            if to - from == SECTION_FRAMES as usize {
                self.sections.remove(&number);
            }
        }
    }

    /// Frames with an entry, possibly out of date.
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// Pages that found no room, since the start.
    pub(super) fn no_room(&self) -> u64 {
        self.no_room
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.sections.len() as u64 * SECTION_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn page(pid: u32, vpn: u64) -> VirtPage {
        VirtPage { pid: Pid(pid), vpn }
    }

    #[test]
    fn an_entry_takes_eight_bytes_and_holds_the_last_process_and_page() {
        assert_eq!(size_of::<Entry>(), 8);
        let last = page(PID_END as u32 - 1, VPN_END - 1);
        let entry = Entry::new(last, true).unwrap();
        assert_eq!((entry.page(), entry.huge()), (last, true));
        assert_eq!(Entry::new(page(PID_END as u32, 1), false), None);
        assert_eq!(Entry::new(page(1, VPN_END), false), None);
    }

    #[test]
    fn every_frame_of_a_huge_page_leads_to_its_head() {
        let mut table = Table::new(1 << 30);
        table.insert(Pfn(0x4_0200), page(7, 0x7f00_0200), true);
        let mapped = Mapped { page: page(7, 0x7f00_0200), pfn: Pfn(0x4_0200), order: HUGE_ORDER };
        for tail in [0, 1, 511] {
            assert_eq!(table.get(Pfn(0x4_0200 + tail)), Some(mapped));
        }
        assert_eq!((table.get(Pfn(0x4_0400)), table.known()), (None, 512));
        // It has been split since, and one of its pages is elsewhere.
        table.insert(Pfn(0x4_0203), page(8, 0x123), false);
        assert_eq!(table.get(Pfn(0x4_0203)).unwrap().page, page(8, 0x123));
        assert!(table.remove(Pfn(0x4_0200), HUGE_ORDER) && !table.remove(Pfn(0x4_0200), HUGE_ORDER));
        assert_eq!(table.known(), 0);
    }

    #[test]
    fn memory_is_bounded_and_what_finds_no_room_is_counted() {
        let mut table = Table::new(2 * SECTION_BYTES + 5);
        for section in 0..3 {
            table.insert(Pfn(section << SECTION_SHIFT), page(7, 9), false);
        }
        assert_eq!((table.known(), table.no_room(), table.bytes()), (2, 1, 512 << 10));
        table.offline(Pfn(0), Pfn(1 << SECTION_SHIFT));
        table.insert(Pfn(2 << SECTION_SHIFT), page(7, 9), false);
        assert_eq!((table.known(), table.no_room()), (2, 1), "offline memory makes room");
    }

    proptest! {
        #[test]
        fn it_is_a_map_of_frames(
            steps in prop::collection::vec((0u8..4, 0u64..200, 1u32..4, 0u64..1000), 0..60),
        ) {
            // Frames and pages in units of huge pages where the step is about one.
            let mut table = Table::new(1 << 20);
            let mut model: BTreeMap<u64, Mapped> = BTreeMap::new();
            for (what, frame, pid, vpn) in steps {
                let head = frame / 2 * HUGE_PAGES;
                match what {
                    0 => {
                        table.insert(Pfn(head + frame), page(pid, vpn), false);
                        let mapped = Mapped { page: page(pid, vpn), pfn: Pfn(head + frame), order: 0 };
                        model.insert(head + frame, mapped);
                    }
                    1 => {
                        let mapped = Mapped { page: page(pid, vpn * HUGE_PAGES), pfn: Pfn(head), order: HUGE_ORDER };
                        table.insert(Pfn(head), mapped.page, true);
                        (head..head + HUGE_PAGES).for_each(|pfn| { model.insert(pfn, mapped); });
                    }
                    2 => {
                        table.remove(Pfn(head + frame), 0);
                        model.remove(&(head + frame));
                    }
                    _ => {
                        table.offline(Pfn(head + frame), Pfn(head + 3 * frame));
                        model.retain(|pfn, _| !(head + frame..head + 3 * frame).contains(pfn));
                    }
                }
            }
            prop_assert_eq!(table.known(), model.len() as u64);
            for pfn in 0..110 * HUGE_PAGES {
                prop_assert_eq!(table.get(Pfn(pfn)), model.get(&pfn).copied());
            }
        }
    }
}
