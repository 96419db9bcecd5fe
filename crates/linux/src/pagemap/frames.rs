//! /proc/kpageflags and /proc/kpagecount: what the kernel reports of a page frame.

use std::fs::File;
use std::path::Path;

use thermocline_core::units::Pfn;

use super::read_u64s;

/// log2 of the largest folio in base pages: 1 GiB.
const FOLIO_ORDER_MAX: u32 = 18;

/// Flags of a page frame (Linux include/uapi/linux/kernel-page-flags.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFlags(pub u64);

impl FrameFlags {
    const fn bit(self, bit: u32) -> bool {
        self.0 >> bit & 1 != 0
    }

    /// Locked: it is being read, written or migrated.
    pub const fn locked(self) -> bool {
        self.bit(0)
    }

    /// On one of the kernel's lists of reclaimable pages. Other pages cannot be isolated for
    /// migration.
    pub const fn lru(self) -> bool {
        self.bit(5)
    }

    /// Being written to its device.
    pub const fn writeback(self) -> bool {
        self.bit(8)
    }

    /// First page of a folio of several pages.
    pub const fn compound_head(self) -> bool {
        self.bit(15)
    }

    /// Later page of a folio of several pages.
    pub const fn compound_tail(self) -> bool {
        self.bit(16)
    }

    /// A hugetlb page.
    pub const fn huge(self) -> bool {
        self.bit(17)
    }

    /// Locked into memory (mlock): reclaim leaves it alone, migration does not.
    pub const fn unevictable(self) -> bool {
        self.bit(18)
    }

    /// Part of a transparent huge page.
    pub const fn thp(self) -> bool {
        self.bit(22)
    }

    /// The shared page of zeroes.
    pub const fn zero_page(self) -> bool {
        self.bit(24)
    }
}

/// The two files, each if it exists and may be read (CAP_SYS_ADMIN).
#[derive(Debug, Default)]
pub struct Frames {
    flags: Option<File>,
    counts: Option<File>,
}

impl Frames {
    /// Opens `PROC/kpageflags` and `PROC/kpagecount`; absent or forbidden ones answer `None` from
    /// then on.
    pub fn open(proc: &Path) -> Frames {
        Frames {
            flags: File::open(proc.join("kpageflags")).ok(),
            counts: File::open(proc.join("kpagecount")).ok(),
        }
    }

    /// The flags of a frame.
    pub fn flags(&self, pfn: Pfn) -> Option<FrameFlags> {
        read_one(self.flags.as_ref()?, pfn).map(FrameFlags)
    }

    /// How often a frame is mapped, by all processes together. It does not count other references,
    /// so a pin is not seen.
    pub fn map_count(&self, pfn: Pfn) -> Option<u64> {
        read_one(self.counts.as_ref()?, pfn)
    }

    /// The first frame of the folio that holds `pfn`: itself for a base page.
    ///
    /// A folio of order n starts at a multiple of 2^n, so the first multiple that carries the
    /// head's flag is its head.
    pub fn head(&self, pfn: Pfn) -> Option<Pfn> {
        if !self.flags(pfn)?.compound_tail() {
            return Some(pfn);
        }
        (1..=FOLIO_ORDER_MAX)
            .map(|order| Pfn(pfn.0 >> order << order))
            .find(|&candidate| self.flags(candidate).is_some_and(FrameFlags::compound_head))
    }
}

fn read_one(file: &File, pfn: Pfn) -> Option<u64> {
    let mut found = None;
    read_u64s(file, pfn.0, 1, |_, value| found = Some(value)).ok()?;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = 1 << 15;
    const TAIL: u64 = 1 << 16;

    #[test]
    fn resolves_tails_to_their_head() {
        let root = tempfile::tempdir().unwrap();
        // Frames 0-3 base pages, 4-7 one folio, 8-15 another.
        let mut flags = vec![0u64; 4];
        flags.push(HEAD);
        flags.extend([TAIL; 3]);
        flags.push(HEAD);
        flags.extend([TAIL; 7]);
        let bytes: Vec<u8> = flags.iter().flat_map(|f| f.to_ne_bytes()).collect();
        std::fs::write(root.path().join("kpageflags"), bytes).unwrap();
        let frames = Frames::open(root.path());
        let heads: Vec<u64> = (0..16).map(|p| frames.head(Pfn(p)).unwrap().0).collect();
        assert_eq!(heads, [0, 1, 2, 3, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8]);
        assert_eq!(frames.head(Pfn(16)), None, "beyond the file");
        assert_eq!(frames.map_count(Pfn(0)), None, "no kpagecount here");
        assert!(frames.flags(Pfn(4)).unwrap().compound_head());
    }
}
