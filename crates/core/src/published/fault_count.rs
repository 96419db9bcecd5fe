//! S0's latency of a hint fault, counted in hint faults of the process instead of in time.
//!
//! Source: S0, "Hot page promotion optimization for large address space", patch 1 (2024-03). The
//! process counts its hint faults in an int; a scan stamps a page with the count in buckets of
//! 65536; a fault is hot when fewer than a million faults came between.
//!
//! Both the difference and the threshold are unsigned, so that a page whose difference exceeds 2^31
//! is refused like any other cold page. The counter wraps at 2^32: a page that waited longer than
//! that looks younger by 2^32.
//!
//! Three limits of the patch:
//! - The stamp has the bits of the page's last CPU and process ([`StampWidth`]): 14 on a kernel for
//!   64 CPUs. Once the process has had 2^30 faults there, every page is refused.
//! - Each new thread of a process sets the count to 0. Pages that were stamped before are refused
//!   until the count has wrapped.
//! - Faults on huge pages are not counted.

use super::stamp::StampWidth;

/// log2 of the faults in one bucket of the stamp.
pub const BUCKET_SHIFT: u32 = 16;
/// Faults from which a page is cold (debugfs `sched/numa_balancing/fault_count_threshold`).
pub const THRESHOLD: u32 = 1_000_000;

/// The stamp of a scan when the process has had `faults` hint faults, in a field of this width.
pub const fn stamp(faults: u32, width: StampWidth) -> u32 {
    width.keep(faults >> BUCKET_SHIFT)
}

/// The latency of a fault, the process's `faults`-th, on a page with this stamp.
pub const fn latency(faults: u32, stamp: u32) -> u32 {
    faults.wrapping_sub(stamp << BUCKET_SHIFT)
}

/// Whether a page with this latency is hot.
pub const fn is_hot(latency: u32, threshold: u32) -> bool {
    latency < threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the distributions' kernels.
    const WIDE: StampWidth = StampWidth::for_cpus(8192);

    #[test]
    fn the_stamp_rounds_down_so_that_latency_is_up_to_a_bucket_too_long() {
        assert_eq!(latency(65_535, stamp(65_535, WIDE)), 65_535);
        assert_eq!(latency(65_536, stamp(65_536, WIDE)), 0);
        assert_eq!(latency(1_500_000, stamp(500_000, WIDE)), 1_500_000 - 7 * 65_536);
    }

    #[test]
    fn a_million_faults_part_hot_from_cold() {
        assert!(is_hot(999_999, THRESHOLD));
        assert!(!is_hot(1_000_000, THRESHOLD));
        // The bucket costs up to 6.5 % of the threshold: 934,466 true faults can already be cold.
        assert!(!is_hot(latency(65_535 + 934_465, stamp(65_535, WIDE)), THRESHOLD));
        assert!(is_hot(latency(65_536 + 934_465, stamp(65_536, WIDE)), THRESHOLD));
    }

    #[test]
    fn pages_are_refused_beyond_two_to_the_31_faults_and_the_counter_may_wrap() {
        assert_eq!(latency(1 << 31, stamp(0, WIDE)), 1 << 31);
        assert!(!is_hot(latency(1 << 31, stamp(0, WIDE)), THRESHOLD));
        assert!(!is_hot(latency(u32::MAX, stamp(0, WIDE)), THRESHOLD));
        assert_eq!(latency(5, stamp(u32::MAX - 65_535, WIDE)), 65_541);
    }

    #[test]
    fn a_narrow_stamp_refuses_all_pages_after_so_many_faults() {
        let narrow = StampWidth::for_cpus(64);
        let wait = |faults: u32| latency(faults, stamp(faults, narrow));
        assert_eq!(wait((1 << 30) - 1), 65_535);
        assert_eq!(wait(1 << 30), 1 << 30);
        assert!(!is_hot(wait(1 << 30), THRESHOLD));
        assert_eq!(latency(1 << 30, stamp(1 << 30, WIDE)), 0);
    }

    #[test]
    fn a_new_thread_makes_pages_cold_that_were_stamped_before() {
        assert!(!is_hot(latency(0, stamp(500_000, WIDE)), THRESHOLD));
        assert!(is_hot(latency(0, stamp(60_000, WIDE)), THRESHOLD), "the first bucket is 0 either way");
    }
}
