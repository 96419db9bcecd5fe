//! The hot-page record of pghot (S4): its bits, its clock that wraps, its update.
//!
//! S4 is "mm: Hot page tracking and promotion infrastructure", RFC v6, 2026-03. A record is made of
//! a frequency, a time in the low bits of jiffies, a ready bit and, in precise mode, the node to
//! promote to. Nothing ages a record, and the time wraps: two accesses are judged by their distance
//! modulo [`Mode::wrap_jiffies`]. That is the published behaviour and is kept here on purpose.
//!
//! The headers of v3 and v4 masked fields with `(1 << SHIFT) - 1` where the width was meant, which
//! left the node no bits at all; the masks here are of the fields' widths, as from v5 on.

use crate::units::Nanos;

/// Which of the two published layouts (S4: chosen at build time by `CONFIG_PGHOT_PRECISE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One byte: bits 0-1 frequency, 2-6 jiffies / 128, 7 ready.
    Default,
    /// Four bytes: bits 0-9 node, 10-12 frequency, 13-26 jiffies, 27-30 unused, 31 ready.
    Precise,
}

/// log2 of the jiffies in one time bucket of [`Mode::Default`].
const BUCKET_SHIFT: u32 = 7;

/// The position of a field.
#[derive(Clone, Copy)]
struct Field {
    shift: u32,
    width: u32,
}

impl Field {
    const fn max(self) -> u32 {
        (1 << self.width) - 1
    }

    const fn get(self, bits: u32) -> u32 {
        (bits >> self.shift) & self.max()
    }

    const fn put(self, value: u32) -> u32 {
        (value & self.max()) << self.shift
    }
}

impl Mode {
    const fn nid(self) -> Field {
        match self {
            Mode::Default => Field { shift: 0, width: 0 },
            Mode::Precise => Field { shift: 0, width: 10 },
        }
    }

    const fn frequency(self) -> Field {
        match self {
            Mode::Default => Field { shift: 0, width: 2 },
            Mode::Precise => Field { shift: 10, width: 3 },
        }
    }

    const fn time(self) -> Field {
        match self {
            Mode::Default => Field { shift: 2, width: 5 },
            Mode::Precise => Field { shift: 13, width: 14 },
        }
    }

    const fn ready(self) -> Field {
        match self {
            Mode::Default => Field { shift: 7, width: 1 },
            Mode::Precise => Field { shift: 31, width: 1 },
        }
    }

    /// log2 of the jiffies in one unit of the record's time.
    const fn time_shift(self) -> u32 {
        match self {
            Mode::Default => BUCKET_SHIFT,
            Mode::Precise => 0,
        }
    }

    /// Jiffies in one unit of the record's time: 128 or 1.
    pub const fn unit_jiffies(self) -> u64 {
        1 << self.time_shift()
    }

    /// Accesses further apart restart the count, in ms, by default (S4: `freq_window_ms`).
    pub const fn window_ms(self) -> u64 {
        match self {
            Mode::Default => 3000,
            Mode::Precise => 5000,
        }
    }

    /// The highest frequency that a record holds: 3 or 7.
    pub const fn frequency_max(self) -> u8 {
        self.frequency().max() as u8
    }

    /// Jiffies after which the record's time is the same again: 4096 or 16384.
    pub const fn wrap_jiffies(self) -> u64 {
        (self.time().max() as u64 + 1) << self.time_shift()
    }

    /// The record's time at `jiffies`.
    pub const fn time_of(self, jiffies: u64) -> u16 {
        ((jiffies >> self.time_shift()) & self.time().max() as u64) as u16
    }

    /// Jiffies from the record's `time` to `jiffies`, both in units of the record's time, modulo
    /// the wrap.
    pub const fn gap_jiffies(self, time: u16, jiffies: u64) -> u64 {
        let units = (jiffies >> self.time_shift()).wrapping_sub(time as u64) & self.time().max() as u64;
        units << self.time_shift()
    }

    /// Milliseconds from the record's `time` to `jiffies`, modulo the wrap, rounded down.
    pub const fn gap_ms(self, time: u16, jiffies: u64, hz: u32) -> u64 {
        jiffies_to_ms(self.gap_jiffies(time, jiffies), hz)
    }
}

/// jiffies / HZ in milliseconds, rounded down (Linux 6.12 kernel/time/time.c `jiffies_to_msecs`).
pub const fn jiffies_to_ms(jiffies: u64, hz: u32) -> u64 {
    jiffies * 1000 / hz as u64
}

/// Nanoseconds between two ticks (Linux 6.12 include/vdso/jiffies.h `TICK_NSEC`).
pub const fn tick_ns(hz: u32) -> u64 {
    (1_000_000_000 + hz as u64 / 2) / hz as u64
}

/// Ticks from boot to `time`. The kernel's own counter starts 300 s below its 32-bit wrap instead
/// of at 0; only the borders of the 128-jiffy buckets differ by that.
pub const fn jiffies(time: Nanos, hz: u32) -> u64 {
    time.0 / tick_ns(hz)
}

/// One record, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PghotRecord {
    /// The node to promote to; 0 in [`Mode::Default`], which has one target for all pages.
    pub nid: u16,
    /// Accesses that followed one another within the window.
    pub frequency: u8,
    /// Time of the last access, in the mode's unit, modulo its wrap.
    pub time: u16,
    /// Waits for kmigrated.
    pub ready: bool,
}

impl PghotRecord {
    /// Takes `bits` apart; of [`Mode::Default`] the low 8 count.
    pub const fn decode(mode: Mode, bits: u32) -> PghotRecord {
        PghotRecord {
            nid: mode.nid().get(bits) as u16,
            frequency: mode.frequency().get(bits) as u8,
            time: mode.time().get(bits) as u16,
            ready: mode.ready().get(bits) != 0,
        }
    }

    /// Puts the record together; frequency saturates; any other value that does not fit its field
    /// loses its high bits.
    pub const fn encode(self, mode: Mode) -> u32 {
        let frequency =
            if self.frequency < mode.frequency_max() { self.frequency } else { mode.frequency_max() };
        mode.nid().put(self.nid as u32)
            | mode.frequency().put(frequency as u32)
            | mode.time().put(self.time as u32)
            | mode.ready().put(self.ready as u32)
    }
}

/// Tuning parameters of the update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Accesses that make a page ready (S4: `freq_threshold`, default 2).
    pub threshold: u8,
    /// Accesses further apart than this restart the count, in ms (S4: `freq_window_ms`, default
    /// 3000, precise 5000).
    pub window_ms: u64,
    /// Timer frequency of the kernel, in Hz.
    pub hz: u32,
}

/// The record after one more access at `jiffies` that asks for node `nid` (S4:
/// `pghot_record_access`).
///
/// A ready record stays ready when its window has passed: v5 and v6 clear node, frequency and time
/// alone, in both modes. v8 rebuilds the record and drops the bit.
pub const fn update(mode: Mode, old: PghotRecord, jiffies: u64, nid: u16, tuning: Tuning) -> PghotRecord {
    let within = mode.gap_ms(old.time, jiffies, tuning.hz) <= tuning.window_ms;
    let frequency = match within {
        true if old.frequency < mode.frequency_max() => old.frequency + 1,
        true => mode.frequency_max(),
        false => 1,
    };
    PghotRecord {
        nid: if matches!(mode, Mode::Precise) { nid } else { 0 },
        frequency,
        time: mode.time_of(jiffies),
        ready: old.ready || frequency >= tuning.threshold,
    }
}

/// Whether kmigrated still takes the record's last access for recent: it is less than
/// `threshold_ms` ago, modulo the wrap (S4, kmigrated).
pub const fn is_recent(mode: Mode, record: PghotRecord, jiffies: u64, threshold_ms: u64, hz: u32) -> bool {
    mode.gap_ms(record.time, jiffies, hz) < threshold_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNING: Tuning = Tuning { threshold: 2, window_ms: 3000, hz: 1000 };

    #[test]
    fn the_byte_is_published_to_the_bit() {
        let record = PghotRecord { nid: 0, frequency: 0b10, time: 0b10101, ready: true };
        assert_eq!(record.encode(Mode::Default), 0b1101_0110);
        assert_eq!(PghotRecord::decode(Mode::Default, 0b1101_0110), record);
        assert_eq!(Mode::Default.wrap_jiffies(), 4096);
        assert_eq!(Mode::Default.frequency_max(), 3);
        for bits in 0..=255 {
            assert_eq!(PghotRecord::decode(Mode::Default, bits).encode(Mode::Default), bits);
        }
    }

    #[test]
    fn the_word_is_published_to_the_bit() {
        let record = PghotRecord { nid: 0x2a5, frequency: 0b101, time: 0x2bcd, ready: true };
        assert_eq!(record.encode(Mode::Precise), (1 << 31) | (0x2bcd << 13) | (0b101 << 10) | 0x2a5);
        assert_eq!(PghotRecord::decode(Mode::Precise, record.encode(Mode::Precise)), record);
        assert_eq!(Mode::Precise.wrap_jiffies(), 16384);
        assert_eq!(Mode::Precise.frequency_max(), 7);
        // Each field alone at its largest, and bits 27-30 unused.
        let only = |r: PghotRecord| r.encode(Mode::Precise);
        assert_eq!(only(PghotRecord { nid: 1023, ..Default::default() }), 0x0000_03ff);
        assert_eq!(only(PghotRecord { frequency: 7, ..Default::default() }), 0x0000_1c00);
        assert_eq!(only(PghotRecord { time: 16383, ..Default::default() }), 0x07ff_e000);
        assert_eq!(PghotRecord::decode(Mode::Precise, 0x7800_0000), PghotRecord::default());
    }

    #[test]
    fn two_accesses_within_the_window_make_a_page_ready() {
        let first = update(Mode::Default, PghotRecord::default(), 10_000, 0, TUNING);
        assert_eq!((first.frequency, first.time, first.ready), (1, (10_000 / 128) % 32, false));
        let second = update(Mode::Default, first, 12_000, 0, TUNING);
        assert_eq!((second.frequency, second.ready), (2, true));
        let saturated =
            update(Mode::Default, update(Mode::Default, second, 12_001, 0, TUNING), 12_002, 0, TUNING);
        assert_eq!(saturated.frequency, 3);
    }

    #[test]
    fn outside_the_window_counting_restarts_and_a_ready_record_stays_ready() {
        for mode in [Mode::Default, Mode::Precise] {
            for ready in [false, true] {
                let hot = PghotRecord { nid: 0, frequency: 3, time: mode.time_of(1000), ready };
                let cold = update(mode, hot, 1000 + 3500, 1, TUNING);
                assert_eq!((cold.frequency, cold.ready), (1, ready), "{mode:?}");
            }
        }
    }

    #[test]
    fn time_aliases_as_published() {
        // 5096 jiffies of 1 ms later is 1000 later modulo 4096 (in buckets of 128: 39.8 modulo 32):
        // judged in window.
        let first = update(Mode::Default, PghotRecord::default(), 128, 0, TUNING);
        assert!(!update(Mode::Default, first, 128 + 4095, 0, TUNING).ready);
        assert!(update(Mode::Default, first, 128 + 4096, 0, TUNING).ready);
        assert!(update(Mode::Default, first, 128 + 5096, 0, TUNING).ready);
        assert!(update(Mode::Default, first, 128 + 4096 * 1000 + 2000, 0, TUNING).ready);
        let first = update(Mode::Precise, PghotRecord::default(), 77, 3, TUNING);
        assert!(!update(Mode::Precise, first, 77 + 16_383, 3, TUNING).ready);
        assert!(update(Mode::Precise, first, 77 + 16_384 + 3000, 3, TUNING).ready);
        assert!(!update(Mode::Precise, first, 77 + 16_384 + 3001, 3, TUNING).ready);
    }

    #[test]
    fn share_of_random_gaps_judged_within_the_window() {
        // S4's default layout at HZ = 1000: window / wrap is 3000 / 4096; in whole buckets 24 of
        // 32. At HZ = 250 a bucket is 512 ms, the wrap 16.4 s: 6 of 32.
        for (hz, expected) in [(1000, 24), (250, 6)] {
            let record = PghotRecord { time: 0, frequency: 1, ..Default::default() };
            let tuning = Tuning { hz, ..TUNING };
            let within = (0..4096).filter(|&j| update(Mode::Default, record, j, 0, tuning).ready).count();
            assert_eq!(within, expected * 128, "HZ {hz}");
        }
    }

    #[test]
    fn the_same_jiffies_are_other_milliseconds_at_another_hz() {
        assert_eq!(Mode::Default.gap_ms(0, 256, 1000), 256);
        assert_eq!(Mode::Default.gap_ms(0, 256, 250), 1024);
        assert_eq!(Mode::Default.gap_ms(0, 256, 300), 853);
        assert_eq!(jiffies(Nanos::from_s(2), 250), 500);
        assert_eq!(tick_ns(300), 3_333_333);
    }

    #[test]
    fn recent_is_strictly_less_than_the_threshold() {
        let record = PghotRecord { time: Mode::Precise.time_of(500), ..Default::default() };
        assert!(is_recent(Mode::Precise, record, 500 + 2999, 3000, 1000));
        assert!(!is_recent(Mode::Precise, record, 500 + 3000, 3000, 1000));
        assert!(is_recent(Mode::Precise, record, 500 + 16_384, 3000, 1000));
    }
}
