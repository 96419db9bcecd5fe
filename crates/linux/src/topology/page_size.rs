//! How large the machine's base pages are: the unit in which the kernel counts memory, and of its
//! page tables and addresses.

use thermocline_core::units::PageSize;

use crate::root::{KernelFileError, Root, list_optional, read_optional};
use crate::zoneinfo;

/// Tolerance of the comparison: memory may change between two readings.
const TOLERANCE_PERCENT: u64 = 10;

/// The page size of the machine at `root`; `None` if its files do not show it.
///
/// # Errors
/// A file exists and cannot be read.
pub fn page_size(root: &Root) -> Result<Option<PageSize>, KernelFileError> {
    if *root == Root::default() {
        return Ok(PageSize::of_bytes(rustix::param::page_size() as u64));
    }
    let Some(zones) = read_optional(&root.proc.join("zoneinfo"))? else { return Ok(None) };
    let pages = zoneinfo::parse(&zones).iter().fold(0u64, |sum, zone| sum.saturating_add(zone.managed));
    Ok(total_kib(root)?.and_then(|kib| agreeing(kib, pages)))
}

/// The size with which `pages` amount to about `kib`: the memory managed by a node's zones is its
/// MemTotal.
fn agreeing(kib: u64, pages: u64) -> Option<PageSize> {
    let apart = |size: &PageSize| size.kib(pages).abs_diff(kib).saturating_mul(100);
    PageSize::ALL.into_iter().find(|size| pages > 0 && apart(size) <= kib.saturating_mul(TOLERANCE_PERCENT))
}

/// MemTotal of all nodes, or of the machine if it lists no nodes.
fn total_kib(root: &Root) -> Result<Option<u64>, KernelFileError> {
    let folder = root.sys.join("devices/system/node");
    let mut sum = None;
    for name in list_optional(&folder)?.unwrap_or_default() {
        let text = read_optional(&folder.join(name).join("meminfo"))?;
        if let Some(kib) = text.as_deref().and_then(mem_total_kib) {
            sum = Some(sum.unwrap_or(0u64).saturating_add(kib));
        }
    }
    match sum {
        Some(kib) => Ok(Some(kib)),
        None => Ok(read_optional(&root.proc.join("meminfo"))?.as_deref().and_then(mem_total_kib)),
    }
}

/// `MemTotal` of a node's meminfo (`Node 0 MemTotal:  1004 kB`) or the machine's.
pub(super) fn mem_total_kib(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("MemTotal:")?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_what_makes_the_zones_as_large_as_the_nodes() {
        for size in PageSize::ALL {
            let kib = 64 << 20;
            let pages = size.pages_in_kib(kib);
            assert_eq!(agreeing(kib, pages), Some(size));
            assert_eq!(agreeing(kib, pages - pages / 20), Some(size), "some memory went offline in between");
            assert_eq!(agreeing(kib, pages * 2), None, "neither one nor another");
        }
        assert_eq!((agreeing(0, 0), agreeing(4, 0)), (None, None));
    }
}
