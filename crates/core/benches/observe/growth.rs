//! How time and memory grow with the memory that is observed and with the candidates that wait.

use thermocline_core::config::RecordLayout;
use thermocline_core::units::PAGES_PER_MIB;

use crate::array::{Slot, array, change};
use crate::clock::{median, ns_per_access, resident_bytes};
use crate::machine::{Observer, engine, show, window};
use crate::source::{BATCH, Source};

/// Observed memory in GiB, 8 GiB to 4 TiB.
pub(crate) const SIZES_GIB: [u64; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
/// Candidates that wait.
pub(crate) const QUEUED: [u32; 6] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];

/// What was measured at one size.
pub(crate) struct Point {
    pub(crate) gib: u64,
    /// Observing, CPU time in ns per access.
    pub(crate) observe_ns: f64,
    /// Read-modify-writes to an array of the same size, likewise.
    pub(crate) array_ns: f64,
    /// Memory of the records in bytes.
    pub(crate) bytes: u64,
}

/// Measures one size.
pub(crate) fn at_size<T: Slot>(layout: RecordLayout, gib: u64) -> Point {
    let pages = gib * 1024 * PAGES_PER_MIB;
    // Long enough that every section of `byte` is given a later base once.
    let batches = (pages / 16 / BATCH).max(4096);
    let array_ns = {
        let (mut array, mut source) = (array::<T>(pages), Source::new(pages, window()));
        ns_per_access(batches, |n| change(&mut array, &mut source, n))
    };
    let mut observer = Observer::new(layout, pages);
    let mut source = Source::new(pages, window());
    let bytes = fill(&mut observer, &mut source, pages);
    let observe_ns = ns_per_access(batches, |n| observer.observe(&mut source, n));
    Point { gib, observe_ns, array_ns, bytes }
}

/// Observes until every section has slots; returns the memory that it took, by the kernel's count
/// or ours, whichever is more.
pub(crate) fn fill(observer: &mut Observer, source: &mut Source, pages: u64) -> u64 {
    let before = resident_bytes();
    // A section is missed by n random accesses for each with a chance of exp(-n).
    observer.observe(source, (pages >> 15) * 64 / BATCH + 1);
    assert_eq!(observer.table.sections() as u64, (pages >> 15).max(1), "every section has slots");
    resident_bytes().saturating_sub(before).max(observer.table.memory_bytes() as u64)
}

/// CPU time per access, in ns, of the whole engine while its queue is full with `queued`
/// candidates.
pub(crate) fn at_queue(queued: u32) -> f64 {
    let pages = 64 * 1024 * PAGES_PER_MIB;
    let mut engine = engine(RecordLayout::Word, pages, queued);
    let mut source = Source::new(pages, window());
    while engine.queue().len() < queued as usize {
        show(&mut engine, &mut source, 1024);
    }
    median((0..5).map(|_| ns_per_access(4096, |n| show(&mut engine, &mut source, n))).collect())
}
