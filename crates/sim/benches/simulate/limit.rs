//! What memory allows: batched, prefetched random updates of an array.

use thermocline_mem::{Arena, Plain, prefetch};
use thermocline_sim::random::{Random, Stream};

use crate::measure::cpu_s;

/// Elements, as many as pages are simulated.
pub(crate) const PAGES: u64 = 50_000_000;
const BATCH: usize = 512;
const UPDATES: u64 = 100_000_000;

/// Elements that can be read, changed and written.
pub(crate) trait Element: Plain {
    fn changed(self) -> Self;
}

impl Element for u8 {
    fn changed(self) -> u8 {
        self.wrapping_mul(5).wrapping_add(1)
    }
}

impl Element for u64 {
    fn changed(self) -> u64 {
        self.wrapping_mul(5).wrapping_add(1)
    }
}

/// An array with an element a page, in huge pages, touched once.
pub(crate) fn array<T: Element>() -> Arena<T> {
    let mut array = Arena::reserve(PAGES as usize).expect("the address space is available");
    array.grow(PAGES as usize).expect("the memory is available");
    array.fill(T::default().changed());
    array
}

/// Time of a random update in ns.
pub(crate) fn update<T: Element>(array: &mut [T]) -> f64 {
    let mut random = Random::new(7, Stream::Accesses(0));
    let mut batch = [0u32; BATCH];
    let start = cpu_s();
    for _ in 0..UPDATES / BATCH as u64 {
        for at in &mut batch {
            *at = random.below(PAGES) as u32;
        }
        for at in &batch {
            prefetch(array, *at as usize);
        }
        for at in &batch {
            let element = &mut array[*at as usize];
            *element = element.changed();
        }
    }
    (cpu_s() - start) * 1e9 / UPDATES as f64
}
