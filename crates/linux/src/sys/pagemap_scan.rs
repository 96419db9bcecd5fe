//! PAGEMAP_SCAN: where a process has memory, without reading entries of absent pages (Linux 6.7 and
//! later, Documentation/admin-guide/mm/pagemap.rst).
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use thermocline_core::units::PAGE_SHIFT;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 3 << 30 | (size_of::<ScanArg>() as libc::c_ulong) << 16 | 0x66 << 8 | 16;
/// Categories of a page (Linux include/uapi/linux/fs.h).
const PRESENT: u64 = 1 << 3;
const PFNZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Neighbouring pages that are present: `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

impl Region {
    /// A region of virtual pages from `start` up to and without `end`.
    pub const fn new(start: u64, end: u64, huge: bool) -> Region {
        let categories = if huge { HUGE } else { 0 };
        Region { start: start << PAGE_SHIFT, end: end << PAGE_SHIFT, categories }
    }

    /// Its virtual page numbers.
    pub const fn vpns(&self) -> std::ops::Range<u64> {
        self.start >> PAGE_SHIFT..self.end >> PAGE_SHIFT
    }

    /// Whether huge pages map it.
    pub const fn huge(&self) -> bool {
        self.categories & HUGE != 0
    }
}

/// Writes the regions between two virtual page numbers where pages are present, except the zero
/// page, to `regions`. Ends when these are full or `pages_max` pages are in them. Returns the
/// number of regions and the page that the walk reached.
///
/// # Errors
/// What ioctl(PAGEMAP_SCAN) returns: ENOTTY if the kernel does not offer it, EFAULT if `to` is
/// beyond the addresses of user space, ESRCH if the process has no memory any more.
pub fn present(
    pagemap: &File,
    from: u64,
    to: u64,
    pages_max: u64,
    regions: &mut [Region],
) -> io::Result<(usize, u64)> {
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        flags: 0,
        start: from << PAGE_SHIFT,
        end: to << PAGE_SHIFT,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        max_pages: pages_max,
        category_inverted: PFNZERO,
        category_mask: PRESENT | PFNZERO,
        category_anyof_mask: 0,
        return_mask: HUGE,
    };
    // SAFETY: `arg` is as long as it says itself, and the kernel writes no more than `vec_len`
    // regions to `vec`, which are ours alone until it returns. Any bits are a valid `Region`.
    let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg) };
    match usize::try_from(count) {
        Ok(count) => Ok((count.min(regions.len()), arg.walk_end >> PAGE_SHIFT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// 47 bits of addresses less a page: available on every 64-bit kernel.
    const END: u64 = (1 << (47 - PAGE_SHIFT)) - 1;

    #[test]
    fn a_block_of_this_process_is_there_as_far_as_it_was_written_to() {
        let map = File::open("/proc/self/pagemap").unwrap();
        let mut regions = [Region::default(); 64];
        match present(&map, 0, END, 1, &mut regions) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                return println!("skipped: this kernel has no PAGEMAP_SCAN; Linux 6.7 has");
            }
            scanned => assert_eq!(scanned.unwrap().0, 1, "one page was asked for"),
        }
        // More than any allocator caches, so it is a separate mapping; only the fourth page is
        // written to.
        let mut block: Vec<u8> = Vec::with_capacity(64 << 20);
        let first = (block.as_ptr() as u64).div_ceil(1 << PAGE_SHIFT);
        let offset = (first << PAGE_SHIFT) - block.as_ptr() as u64 + (3 << PAGE_SHIFT);
        block.spare_capacity_mut()[offset as usize].write(1);
        let (count, end) = present(&map, first, first + 4000, 0, &mut regions).unwrap();
        let found = &regions[..count];
        assert_eq!((found.len(), end), (1, first + 4000), "{found:?}");
        assert!(found[0].vpns().contains(&(first + 3)), "{found:?}");
        // A huge page is present as a whole.
        assert!(found[0].huge() || found[0].vpns().count() == 1, "{found:?}");
        let beyond = present(&map, 0, u64::MAX >> PAGE_SHIFT, 0, &mut regions).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EFAULT));
    }
}
