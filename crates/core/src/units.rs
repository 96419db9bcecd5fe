//! Quantities with their units in the type, so that a page number is never mistaken for a node or a
//! time.

use std::fmt;

use serde::{Deserialize, Serialize};

/// log2 of the base page size in bytes that the engine counts in; see [`PageSize`] for other
/// machines.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a base page.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// Base pages in one MiB.
pub const PAGES_PER_MIB: u64 = 1 << (20 - PAGE_SHIFT);

/// The size of a machine's base pages, in which its kernel counts memory. In JSON it is the number
/// of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "u64")]
pub struct PageSize {
    shift: u32,
}

impl PageSize {
    /// The page size that the engine counts in.
    pub const OF_ENGINE: PageSize = PageSize { shift: PAGE_SHIFT };
    /// Page sizes of machines with several nodes: 4 KiB everywhere, 16 and 64 KiB on Arm and
    /// others.
    pub const ALL: [PageSize; 3] = [PageSize { shift: 12 }, PageSize { shift: 14 }, PageSize { shift: 16 }];

    /// The size of `bytes`, 4 KiB to 1 MiB; `None` if no kernel has such pages.
    pub fn of_bytes(bytes: u64) -> Option<PageSize> {
        let shift = bytes.trailing_zeros();
        (bytes.is_power_of_two() && (12..=20).contains(&shift)).then_some(PageSize { shift })
    }

    /// Bytes in a page.
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// Whole pages in `kib` KiB.
    pub const fn pages_in_kib(self, kib: u64) -> u64 {
        kib >> (self.shift - 10)
    }

    /// KiB in `pages` pages; saturates.
    pub const fn kib(self, pages: u64) -> u64 {
        pages.saturating_mul(1 << (self.shift - 10))
    }

    /// Whole MiB in `pages` pages.
    pub const fn mib(self, pages: u64) -> u64 {
        pages >> (20 - self.shift)
    }
}

impl Default for PageSize {
    fn default() -> PageSize {
        PageSize::OF_ENGINE
    }
}

impl From<PageSize> for u64 {
    fn from(size: PageSize) -> u64 {
        size.bytes()
    }
}

/// A point in time or a span of it, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A span of `ms` milliseconds; saturates.
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds; saturates.
    pub const fn from_s(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// Whole milliseconds, rounded down.
    pub const fn ms(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The span from `earlier` to `self`, zero if `earlier` is later: clocks of different CPUs may
    /// disagree.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The point `span` after this one; saturates.
    pub const fn plus(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }
}

/// A physical page frame number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pfn(pub u64);

/// A process (thread group) number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl Pid {
    /// The one process of evidence that does not name it. No process of a user has this number.
    pub const UNKNOWN: Pid = Pid(0);
}

/// A NUMA node number (nid).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u16);

impl NodeId {
    /// No node: that of a page of which the evidence does not say where it is.
    pub const UNKNOWN: NodeId = NodeId(u16::MAX);
}

/// The index of a memory tier; 0 is the top tier, higher is slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TierId(pub u8);

/// An index into the configured scopes; [`ScopeId::DEFAULT`] is everything that no scope names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeId(pub u16);

impl ScopeId {
    /// The scope of processes that no configured scope names.
    pub const DEFAULT: ScopeId = ScopeId(0);
    /// No scope: that of what was decided for a scope which a reload has removed.
    pub const GONE: ScopeId = ScopeId(u16::MAX);

    /// The scope at position `place` in the configuration, from 0. A configuration has fewer
    /// than 65535.
    pub fn of_place(place: usize) -> ScopeId {
        ScopeId(u16::try_from(place + 1).unwrap_or(u16::MAX))
    }
}

/// A page of a process: the process and the virtual page number (address / 4096).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VirtPage {
    /// The process.
    pub pid: Pid,
    /// Virtual address >> [`PAGE_SHIFT`].
    pub vpn: u64,
}

impl VirtPage {
    /// The page of `pid` that holds byte `address`.
    pub const fn of_address(pid: Pid, address: u64) -> VirtPage {
        VirtPage { pid, vpn: address >> PAGE_SHIFT }
    }

    /// The address of the page's first byte.
    pub const fn address(self) -> u64 {
        self.vpn << PAGE_SHIFT
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for VirtPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} address {:#x}", self.pid.0, self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_as_large_whatever_the_pages_that_it_is_counted_in() {
        for size in PageSize::ALL {
            assert_eq!(PageSize::of_bytes(size.bytes()), Some(size));
            let pages = size.pages_in_kib(64 << 20);
            assert_eq!((size.kib(pages), size.mib(pages)), (64 << 20, 64 << 10), "64 GiB");
        }
        for bytes in [0, 2048, 5000, 3 << 12, 2 << 20, u64::MAX] {
            assert_eq!(PageSize::of_bytes(bytes), None);
        }
        // A kernel with such pages is distinguished from one with 4 KiB, which would be assumed
        // otherwise.
        let rare = [8, 256].map(|kib| PageSize::of_bytes(kib << 10));
        assert!(rare.iter().all(|size| size.is_some_and(|size| size != PageSize::OF_ENGINE)), "{rare:?}");
    }
}
