//! What memory allows: batched, prefetched random read-modify-writes to an array.

use thermocline_core::access::Access;
use thermocline_mem::{Arena, Plain, prefetch};

use crate::source::{Source, index};

/// Slots that can be read, changed and written.
pub(crate) trait Slot: Plain {
    /// Another value that depends on the one before.
    fn changed(self) -> Self;
}

impl Slot for u8 {
    fn changed(self) -> u8 {
        self.wrapping_mul(5).wrapping_add(1)
    }
}

impl Slot for u32 {
    fn changed(self) -> u32 {
        self.wrapping_mul(5).wrapping_add(1)
    }
}

/// An array with a slot a page, in huge pages as the records are, and touched once.
pub(crate) fn array<T: Slot>(pages: u64) -> Arena<T> {
    let len = usize::try_from(pages).expect("the array fits the address space");
    let mut array = Arena::reserve(len).expect("the address space is available");
    array.grow(len).expect("the memory is available");
    array.fill(T::default().changed());
    array
}

/// Changes the slots of the pages of `batches` batches.
pub(crate) fn change<T: Slot>(array: &mut [T], source: &mut Source, batches: u64) {
    for _ in 0..batches {
        let batch = source.next();
        for access in batch {
            prefetch(array, slot(access));
        }
        for access in batch {
            if let Some(slot) = array.get_mut(slot(access)) {
                *slot = slot.changed();
            }
        }
    }
}

/// The same from bare numbers, without a batch of accesses.
pub(crate) fn change_by_number<T: Slot>(array: &mut [T], source: &mut Source, batches: u64) {
    for _ in 0..batches {
        let numbers = source.next_numbers();
        for &number in numbers {
            prefetch(array, number as usize);
        }
        for &number in numbers {
            if let Some(slot) = array.get_mut(number as usize) {
                *slot = slot.changed();
            }
        }
    }
}

fn slot(access: &Access) -> usize {
    access.pfn.map_or(usize::MAX, |pfn| index(pfn.0))
}
