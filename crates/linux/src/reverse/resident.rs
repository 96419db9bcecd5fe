//! An entry of the reverse map.

use thermocline_core::units::{Pfn, VirtPage};

/// A page in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The page; of a huge page, the one that maps its head.
    pub page: VirtPage,
    /// Its frame; of a huge page, its head.
    pub pfn: Pfn,
    /// log2 of the page's size in base pages.
    pub order: u8,
}
