//! Reads processes slice by slice: which pages they have, and in which frames.

use std::ops::Range;

use thermocline_core::units::{Nanos, Pid};

use super::table::{HUGE_PAGES, VPN_END};
use crate::clock::thread_cpu_time;
use crate::pagemap::{Entry, PagemapError};
use crate::sys::pagemap_scan::Region;

/// Maximum number of base pages of a slice: the kernel locks the process's mappings while it
/// searches for them.
pub(crate) const SLICE_PAGES: u64 = 8192;
/// Maximum number of regions of a slice.
const SLICE_REGIONS: usize = 256;
/// Entries read at once.
const ENTRIES: usize = 512;

/// A virtual page and the frame that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) vpn: u64,
    pub(crate) pfn: u64,
    /// Both are the heads of a huge page.
    pub(crate) huge: bool,
}

/// The mappings of processes.
pub(crate) trait Memory {
    /// Like [`crate::sys::pagemap_scan::present`], up to `to` or the last page that can be
    /// recorded; returns where to continue, if there is more.
    fn present(
        &mut self,
        pid: Pid,
        from: u64,
        to: u64,
        pages_max: u64,
        regions: &mut [Region],
    ) -> Result<(usize, Option<u64>), PagemapError>;

    /// As [`crate::pagemap::Pagemap::read`].
    fn entries(&mut self, pid: Pid, vpn: u64, entries: &mut [Entry]) -> Result<usize, PagemapError>;
}

/// Reads slices.
pub(crate) trait Slices {
    /// As [`slice`].
    ///
    /// # Errors
    /// As there, or the process blocks its readers.
    fn slice(&mut self, pid: Pid, within: Range<u64>, pages_max: u64) -> Result<Slice, PagemapError>;
}

impl<M: Memory> Slices for M {
    fn slice(&mut self, pid: Pid, within: Range<u64>, pages_max: u64) -> Result<Slice, PagemapError> {
        slice(self, pid, within, pages_max)
    }
}

/// A slice of one process.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    /// Where the next one begins; `None` if this was the last.
    pub(crate) next: Option<u64>,
    /// Pages whose frames were looked up.
    pub(crate) looked_up: u64,
    /// Pages whose frames the kernel hides.
    pub(crate) hidden: u64,
    /// CPU time of the reader.
    pub(crate) cpu: Nanos,
    /// The pages that were found, ascending.
    pub(crate) found: Vec<Found>,
}

/// Reads the slice of `pid` that begins at virtual page `within.start`, of at most `pages_max`
/// present pages. A huge page that extends beyond `within` is returned whole.
///
/// # Errors
/// The process is gone, or may not be read.
pub(crate) fn slice(
    memory: &mut impl Memory,
    pid: Pid,
    within: Range<u64>,
    pages_max: u64,
) -> Result<Slice, PagemapError> {
    let cpu = thread_cpu_time();
    let (from, to) = (within.start, within.end.min(VPN_END));
    let mut regions = [Region::default(); SLICE_REGIONS];
    let (count, next) = memory.present(pid, from, to, pages_max, &mut regions)?;
    // A walk without progress would never end.
    let mut slice = Slice { next: next.filter(|next| *next > from && *next < to), ..Slice::default() };
    for region in &regions[..count] {
        let (mut vpn, end) = (region.vpns().start, region.vpns().end.min(to));
        while vpn < end {
            if region.huge() {
                let head = vpn / HUGE_PAGES * HUGE_PAGES;
                if !huge(memory, pid, head, &mut slice)? {
                    base(memory, pid, vpn, end.min(head + HUGE_PAGES), &mut slice)?;
                }
                vpn = head + HUGE_PAGES;
            } else {
                let to = end.min(vpn + ENTRIES as u64);
                base(memory, pid, vpn, to, &mut slice)?;
                vpn = to;
            }
        }
    }
    slice.cpu = thread_cpu_time().since(cpu);
    Ok(slice)
}

/// Looks a huge page up by its first and its last page; false if these do not match: it has been
/// split since, or has another size.
fn huge(memory: &mut impl Memory, pid: Pid, head: u64, slice: &mut Slice) -> Result<bool, PagemapError> {
    let mut ends = [Entry::default(); 2];
    memory.entries(pid, head, &mut ends[..1])?;
    memory.entries(pid, head + HUGE_PAGES - 1, &mut ends[1..])?;
    slice.looked_up += 2;
    let [Some(first), Some(last)] = ends.map(Entry::pfn) else { return Ok(false) };
    let whole = first.0 % HUGE_PAGES == 0 && last.0 == first.0 + HUGE_PAGES - 1;
    if whole {
        slice.found.push(Found { vpn: head, pfn: first.0, huge: true });
    }
    Ok(whole)
}

/// Looks up at most [`ENTRIES`] base pages.
fn base(
    memory: &mut impl Memory,
    pid: Pid,
    from: u64,
    to: u64,
    slice: &mut Slice,
) -> Result<(), PagemapError> {
    let mut entries = [Entry::default(); ENTRIES];
    let read = memory.entries(pid, from, &mut entries[..(to - from) as usize])?;
    slice.looked_up += read as u64;
    for (vpn, entry) in (from..).zip(&entries[..read]) {
        match entry.pfn() {
            Some(pfn) => slice.found.push(Found { vpn, pfn: pfn.0, huge: false }),
            None => slice.hidden += u64::from(entry.present()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;

    /// Processes by the frames of their pages, and where huge pages are.
    #[derive(Default)]
    struct Fake {
        pages: BTreeMap<u64, Entry>,
        huge: Vec<u64>,
        gone: bool,
        stuck: bool,
    }

    fn entry(pfn: u64) -> Entry {
        Entry(1 << 63 | pfn)
    }

    impl Memory for Fake {
        fn present(
            &mut self,
            _pid: Pid,
            from: u64,
            to: u64,
            pages_max: u64,
            regions: &mut [Region],
        ) -> Result<(usize, Option<u64>), PagemapError> {
            if self.gone {
                return Err(PagemapError::Gone(PathBuf::new()));
            }
            let mut found: Vec<(u64, u64, bool)> = Vec::new();
            for (pages, &vpn) in self.pages.range(from..to).map(|(vpn, _)| vpn).enumerate() {
                let huge = self.huge.contains(&(vpn / 512 * 512));
                let full = found.len() == regions.len() || pages as u64 == pages_max;
                match found.last_mut() {
                    _ if pages as u64 == pages_max => return Ok((put(&found, regions), Some(vpn))),
                    Some(last) if last.1 == vpn && last.2 == huge => last.1 += 1,
                    _ if full => return Ok((put(&found, regions), Some(vpn))),
                    _ => found.push((vpn, vpn + 1, huge)),
                }
            }
            Ok((put(&found, regions), self.stuck.then_some(from)))
        }

        fn entries(&mut self, _pid: Pid, vpn: u64, entries: &mut [Entry]) -> Result<usize, PagemapError> {
            for (vpn, entry) in (vpn..).zip(entries.iter_mut()) {
                *entry = self.pages.get(&vpn).copied().unwrap_or_default();
            }
            Ok(entries.len())
        }
    }

    fn put(found: &[(u64, u64, bool)], regions: &mut [Region]) -> usize {
        for (region, &(start, end, huge)) in regions.iter_mut().zip(found) {
            *region = Region::new(start, end, huge);
        }
        found.len()
    }

    fn all(fake: &mut Fake) -> (Vec<Found>, u64, u32) {
        let (mut found, mut hidden, mut slices, mut from) = (Vec::new(), 0, 0, Some(0));
        while let Some(at) = from {
            let slice = slice(fake, Pid(7), at..VPN_END, SLICE_PAGES).unwrap();
            assert!(slice.found.len() as u64 <= SLICE_PAGES && slices < 100);
            found.extend(slice.found);
            hidden += slice.hidden;
            slices += 1;
            from = slice.next;
        }
        (found, hidden, slices)
    }

    #[test]
    fn every_page_is_found_whatever_the_slices() {
        // More regions than a slice takes, and more pages.
        let mut fake = Fake::default();
        fake.pages.extend((0..600).map(|n| (n * 2, entry(1000 + n))));
        fake.pages.extend((0..20_000).map(|n| (100_000 + n, entry(50_000 - n))));
        let (found, hidden, slices) = all(&mut fake);
        assert!(found.iter().map(|f| (f.vpn, entry(f.pfn))).eq(fake.pages), "{slices} slices");
        assert!((4..8).contains(&slices) && hidden == 0, "{slices}");
    }

    #[test]
    fn huge_pages_are_found_as_one_and_looked_up_at_their_ends_only() {
        let mut fake = Fake { huge: vec![512, 1024, 1536], ..Fake::default() };
        fake.pages.extend((0..512).map(|n| (512 + n, entry(0x400 + n))));
        // Aligned, but no longer one page; and one whose frames are not aligned to a huge page.
        fake.pages.extend((0..512).map(|n| (1024 + n, entry(0x800 + n * 2))));
        fake.pages.extend((0..512).map(|n| (1536 + n, entry(0x1001 + n))));
        let (found, ..) = all(&mut fake);
        assert_eq!(found[0], Found { vpn: 512, pfn: 0x400, huge: true });
        assert_eq!(found.len(), 1 + 1024);
        assert!(found[1..].iter().all(|f| !f.huge && entry(f.pfn) == fake.pages[&f.vpn]));
        assert!(slice(&mut fake, Pid(7), 0..VPN_END, SLICE_PAGES).unwrap().looked_up < 2 * 3 + 1024 + 1);
    }

    #[test]
    fn hidden_frames_are_counted_and_a_walk_that_stands_still_ends() {
        let mut fake = Fake { stuck: true, ..Fake::default() };
        fake.pages.extend((0..5).map(|n| (n, entry(0))));
        fake.pages.insert(5, Entry(0));
        assert_eq!(all(&mut fake), (Vec::new(), 5, 1));
    }

    #[test]
    fn a_process_that_is_gone_says_so() {
        let mut fake = Fake { gone: true, ..Fake::default() };
        assert!(matches!(slice(&mut fake, Pid(7), 0..VPN_END, SLICE_PAGES), Err(PagemapError::Gone(_))));
    }
}
