//! The published layouts as slots: their time wraps, and pages of the top tier have no record.

use crate::published::pghot::{Mode, PghotRecord, tick_ns};
use crate::record::Record;
use crate::record::layout::Layout;
use crate::units::{Nanos, NodeId};

/// A published layout, counting in jiffies of some HZ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pghot<const PRECISE: bool> {
    tick_ns: u64,
}

/// The published byte.
pub(super) type PghotByte = Pghot<false>;
/// The published word.
pub(super) type PghotWord = Pghot<true>;

const fn mode(precise: bool) -> Mode {
    if precise { Mode::Precise } else { Mode::Default }
}

impl<const PRECISE: bool> Pghot<PRECISE> {
    const MODE: Mode = mode(PRECISE);

    /// On a kernel with `hz` ticks a second, which is not 0.
    pub(super) fn new(hz: u32) -> Pghot<PRECISE> {
        Pghot { tick_ns: tick_ns(hz) }
    }

    #[inline(always)]
    fn decode_bits(&self, bits: u32, jiffies: u64) -> Record {
        if bits == 0 {
            return Record::default();
        }
        let record = PghotRecord::decode(Self::MODE, bits);
        Record {
            frequency: record.frequency,
            gap: Some(Nanos(Self::MODE.gap_jiffies(record.time, jiffies) * self.tick_ns)),
            node: PRECISE.then_some(NodeId(record.nid)),
            ready: record.ready,
        }
    }

    #[inline(always)]
    fn encode_bits(&self, old: u32, record: &Record, accessor: Option<NodeId>, jiffies: u64) -> u32 {
        // An access never clears the ready bit, even when the window has passed (v5 and v6; v8
        // does). Only kmigrated clears it.
        let old = PghotRecord::decode(Self::MODE, old);
        PghotRecord {
            nid: accessor.map_or(old.nid, |n| n.0),
            frequency: record.frequency,
            time: Self::MODE.time_of(jiffies),
            ready: record.ready || old.ready,
        }
        .encode(Self::MODE)
    }
}

fn ready_bits(precise: bool, bits: u32, ready: bool) -> u32 {
    PghotRecord { ready, ..PghotRecord::decode(mode(precise), bits) }.encode(mode(precise))
}

macro_rules! layout {
    ($precise:literal, $slot:ty) => {
        impl Layout for Pghot<$precise> {
            type Slot = $slot;
            const FREQUENCY_MAX: u8 = Self::MODE.frequency_max();
            const NODE: bool = $precise;
            // The stamp is jiffies as they are; encoding keeps their low bits, as published.
            const STAMP_MAX: u64 = 1 << 61;
            const LOWER_TIERS_ONLY: bool = true;

            fn resolution(&self) -> Nanos {
                Nanos(Self::MODE.unit_jiffies() * self.tick_ns)
            }

            #[inline(always)]
            fn ticks(&self, time: Nanos) -> u64 {
                time.0 / self.tick_ns
            }

            fn base(&self, _now: u64) -> u64 {
                0
            }

            fn rebase(_slots: &mut [$slot], _ticks: u64) {}

            #[inline(always)]
            fn decode(&self, slot: $slot, stamp: u64) -> Record {
                self.decode_bits(slot.into(), stamp)
            }

            #[inline(always)]
            fn encode(&self, old: $slot, record: &Record, accessor: Option<NodeId>, stamp: u64) -> $slot {
                self.encode_bits(old.into(), record, accessor, stamp) as $slot
            }

            fn with_ready(slot: $slot, ready: bool) -> $slot {
                ready_bits($precise, slot.into(), ready) as $slot
            }
        }
    };
}
layout!(false, u8);
layout!(true, u32);
