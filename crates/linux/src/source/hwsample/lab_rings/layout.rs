//! The layout of the rings of the lab's sampler (`lab/plugin/README.md`); any bytes are handled.
//!
//! All is little-endian. A page with the head; then for each CPU a page with the marks of its ring,
//! and the ring's slots.

use super::super::record::{Level, Operation};
use super::super::useful::Sighting;
use thermocline_core::units::Nanos;

/// The first eight bytes.
const MAGIC: [u8; 8] = *b"TLCSAMP1";
/// Bytes of a page of marks.
const PAGE: usize = 4096;
/// Bytes of a sample.
pub(super) const SLOT_BYTES: usize = 32;
/// Maximum number of rings accepted, one per CPU: as many as Linux can have CPUs (CONFIG_NR_CPUS is
/// at most 8192).
const RINGS_MAX: u64 = 8192;
/// Maximum number of slots of a ring accepted.
const SLOTS_MAX: u64 = 1 << 20;
/// Flag of a sample: the access was a store.
const STORE: u64 = 1 << 48;

/// Marks of a ring, by their offset in its page.
pub(super) const HEAD: usize = 0;
/// Samples read, which the reader writes.
pub(super) const TAIL: usize = 8;
/// Samples that found the ring full.
pub(super) const DROPPED: usize = 16;
/// Accesses from one tag to the next on average, as of the last tag.
pub(super) const PERIOD: usize = 32;
/// The same as the reader wishes it, which the reader writes. The host decides whether it counts.
pub(super) const ASKED: usize = 40;

/// The position of the rings, all within the memory that it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) rings: usize,
    slots: u64,
    ring_bytes: usize,
}

impl Layout {
    /// Reads the head, the first three words of `bytes` of memory.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(head: [u64; 3], bytes: usize) -> Result<Layout, &'static str> {
        let [magic, counts, sizes] = head;
        if magic != u64::from_le_bytes(MAGIC) {
            return Err("it holds no sampler's rings of this version");
        }
        let (rings, slots) = (counts & 0xffff_ffff, counts >> 32);
        let (slot_bytes, ring_bytes) = (sizes & 0xffff_ffff, sizes >> 32);
        if rings == 0 || rings > RINGS_MAX || !slots.is_power_of_two() || slots > SLOTS_MAX {
            return Err("its number of rings or slots cannot be");
        }
        if slot_bytes != SLOT_BYTES as u64 || !ring_bytes.is_multiple_of(8) {
            return Err("its sizes are of another version");
        }
        // None of these products overflows: each factor has been bounded.
        if ring_bytes < PAGE as u64 + slots * slot_bytes || PAGE as u64 + rings * ring_bytes > bytes as u64 {
            return Err("its rings do not fit into it");
        }
        Ok(Layout { rings: rings as usize, slots, ring_bytes: ring_bytes as usize })
    }

    /// Slots of each ring.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// Where the marks of a ring begin.
    pub(super) fn marks(&self, ring: usize) -> usize {
        debug_assert!(ring < self.rings);
        PAGE + ring * self.ring_bytes
    }

    /// Where the `n`th sample of a ring is.
    pub(super) fn slot(&self, ring: usize, n: u64) -> usize {
        self.marks(ring) + PAGE + (n & (self.slots - 1)) as usize * SLOT_BYTES
    }
}

/// The access of a slot's words; any bits are valid. It happened on `cpu`, as long before `now` as
/// it is older than the `newest` sample: its time is from the host's clock, of which only the pace
/// is known here. The node that it names is ignored in favour of the frame's; the latency is in ns
/// and not in cycles.
#[inline]
pub(super) fn sighting(words: [u64; 4], cpu: usize, newest: u64, now: Nanos) -> Sighting {
    let [time, address, physical, rest] = words;
    Sighting {
        pid: None,
        time: Nanos(now.0.saturating_sub(newest.saturating_sub(time))),
        address,
        physical,
        page_bytes: 0,
        cpu: cpu as u32,
        latency_cycles: 0,
        operation: if rest & STORE != 0 { Operation::Store } else { Operation::Load },
        // The sampler skips hits.
        level: Level::Memory,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(rings: u64, slots: u64, slot_bytes: u64, ring_bytes: u64) -> [u64; 3] {
        [u64::from_le_bytes(MAGIC), rings | slots << 32, slot_bytes | ring_bytes << 32]
    }

    #[test]
    fn two_rings_lie_where_the_plugin_lays_them() {
        // 1 MiB and two CPUs: lab/plugin/sampler.c gives each 8192 slots.
        let layout = Layout::read(head(2, 8192, 32, 4096 + 8192 * 32), 1 << 20).unwrap();
        assert_eq!((layout.rings, layout.slots()), (2, 8192));
        assert_eq!((layout.marks(0), layout.marks(1)), (4096, 4096 + 4096 + 8192 * 32));
        assert_eq!(layout.slot(0, 0), 8192);
        assert_eq!(layout.slot(1, 8192 + 3), layout.marks(1) + 4096 + 3 * 32);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |head, bytes| Layout::read(head, bytes).unwrap_err();
        assert!(refused([0; 3], 1 << 20).contains("no sampler's rings"));
        assert!(refused(head(0, 128, 32, 8192), 1 << 20).contains("cannot be"));
        assert!(refused(head(1, 100, 32, 8192), 1 << 20).contains("cannot be"));
        assert!(refused(head(1, 128, 24, 8192), 1 << 20).contains("another version"));
        assert!(refused(head(1, 128, 32, 4097), 1 << 20).contains("another version"));
        assert!(refused(head(1, 128, 32, 4096), 1 << 20).contains("do not fit"));
        assert!(refused(head(2, 128, 32, 8192), 8192).contains("do not fit"));
    }

    #[test]
    fn a_sample_says_what_was_accessed_and_how_long_ago() {
        let words = [1_000_000, 0x7f00_0000_1040, 0x20_1040, 350 | 2 << 32 | STORE];
        let seen = sighting(words, 1, 1_000_400, Nanos(5_000));
        assert_eq!((seen.time, seen.cpu, seen.operation), (Nanos(4_600), 1, Operation::Store));
        assert_eq!((seen.address, seen.physical, seen.pid), (0x7f00_0000_1040, 0x20_1040, None));
        let load = sighting([2_000_000, 1, 1, 0], 0, 1_000_000, Nanos(5_000));
        assert_eq!((load.time, load.operation), (Nanos(5_000), Operation::Load), "never later than now");
    }

    proptest! {
        #[test]
        fn whatever_is_believed_lies_within_the_memory(
            counts in any::<u64>(), sizes in any::<u64>(), small in any::<bool>(), n in any::<u64>(), bytes in 0usize..1 << 24,
        ) {
            // Random numbers are hardly ever accepted, small ones often.
            let (counts, sizes) = match small {
                true => ((counts % 9) | (1 << (32 + counts % 14)), 32 | (((4096 + sizes % (1 << 20)) / 8 * 8) << 32)),
                false => (counts, sizes),
            };
            if let Ok(layout) = Layout::read([u64::from_le_bytes(MAGIC), counts, sizes], bytes) {
                for ring in [0, layout.rings - 1] {
                    prop_assert!(layout.marks(ring) + ASKED + 8 <= bytes);
                    prop_assert!(layout.slot(ring, n) + SLOT_BYTES <= bytes);
                    prop_assert!(layout.slot(ring, n).is_multiple_of(8));
                }
            }
        }
    }
}
