//! The kernel's hint-fault latency: the scan time of a lower-tier page, kept in the field of its
//! last CPU and process.
//!
//! Source: Linux 6.12 `include/linux/mm.h` (`folio_xchg_access_time`),
//! `include/linux/page-flags-layout.h` and `kernel/sched/fair.c` (`numa_hint_fault_latency`).

/// Minimum number of bits that the time spans; narrower fields keep coarser time
/// (`PAGE_ACCESS_TIME_MIN_BITS`).
pub const MIN_BITS: u32 = 12;

/// How a kernel built for some number of CPUs keeps the scan time of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampWidth {
    bits: u32,
    shift: u32,
}

impl StampWidth {
    /// The width for `CONFIG_NR_CPUS` = `cpus`: eight bits of the process number and log2 of the
    /// CPUs, rounded up.
    pub const fn for_cpus(cpus: u32) -> StampWidth {
        StampWidth::of_bits(8 + cpus.next_power_of_two().trailing_zeros())
    }

    /// The width for a field of `bits` bits (`LAST_CPUPID_SHIFT`), at most 31.
    pub const fn of_bits(bits: u32) -> StampWidth {
        let bits = if bits > 31 { 31 } else { bits };
        StampWidth { bits, shift: MIN_BITS.saturating_sub(bits) }
    }

    /// What the field keeps of a value.
    pub const fn keep(self, value: u32) -> u32 {
        value & ((1 << self.bits) - 1)
    }

    /// Latencies are known modulo this many ms.
    pub const fn wrap_ms(self) -> u64 {
        1 << (self.bits + self.shift)
    }

    /// The stamp of a scan at `now_ms`.
    pub const fn stamp(self, now_ms: u64) -> u32 {
        self.keep((now_ms >> self.shift) as u32)
    }

    /// The latency in ms of a fault at `now_ms` on a page with this stamp.
    pub const fn latency_ms(self, now_ms: u64, stamp: u32) -> u64 {
        let mask = ((1u64 << self.bits) - 1) << self.shift;
        now_ms.wrapping_sub((stamp as u64) << self.shift) & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_follow_the_number_of_cpus() {
        assert_eq!(StampWidth::for_cpus(8192).wrap_ms(), 1 << 21);
        assert_eq!(StampWidth::for_cpus(64).wrap_ms(), 16_384);
        assert_eq!(StampWidth::for_cpus(1).wrap_ms(), 4096);
        assert_eq!(StampWidth::for_cpus(8).wrap_ms(), 4096);
        assert_eq!(StampWidth::for_cpus(17).wrap_ms(), 8192);
    }

    #[test]
    fn latency_is_the_difference_modulo_the_wrap() {
        let width = StampWidth::for_cpus(64);
        assert_eq!(width.latency_ms(10_500, width.stamp(10_000)), 500);
        assert_eq!(width.latency_ms(10_000 + 16_384 + 7, width.stamp(10_000)), 7);
        assert_eq!(width.latency_ms(16_390, width.stamp(16_380)), 10);
    }

    #[test]
    fn narrow_fields_keep_coarse_time() {
        // One CPU: 8 bits, 16 ms a step; both the stamp and the difference lose their low four
        // bits.
        let width = StampWidth::for_cpus(1);
        assert_eq!(width.stamp(1000), (1000 >> 4) & 0xff);
        assert_eq!(width.latency_ms(1040, width.stamp(1000)), 48);
        assert_eq!(width.latency_ms(1007, width.stamp(1000)), 0);
    }
}
