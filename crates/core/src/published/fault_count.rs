//! S0's latency of a hint fault, counted in hint faults of the process instead of in time.
//!
//! Source: S0, "Hot page promotion optimization for large address space", patch 1 (2024-03). The
//! process counts its hint faults in an int; a scan stamps a page with the count in buckets of
//! 65536; a fault is hot when fewer than a million faults came between.
//!
//! Both the difference and the threshold are unsigned, so that a page whose difference exceeds 2^31
//! is refused like any other cold page. The counter wraps at 2^32: a page that waited longer than
//! that looks younger by 2^32.

/// log2 of the faults in one bucket of the stamp.
pub const BUCKET_SHIFT: u32 = 16;
/// Faults from which a page is cold (debugfs `sched/numa_balancing/fault_count_threshold`).
pub const THRESHOLD: u32 = 1_000_000;

/// The stamp of a scan when the process has had `faults` hint faults.
pub const fn stamp(faults: u32) -> u32 {
    faults >> BUCKET_SHIFT
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

    #[test]
    fn the_stamp_rounds_down_so_that_latency_is_up_to_a_bucket_too_long() {
        assert_eq!(latency(65_535, stamp(65_535)), 65_535);
        assert_eq!(latency(65_536, stamp(65_536)), 0);
        assert_eq!(latency(1_500_000, stamp(500_000)), 1_500_000 - 7 * 65_536);
    }

    #[test]
    fn a_million_faults_part_hot_from_cold() {
        assert!(is_hot(999_999, THRESHOLD));
        assert!(!is_hot(1_000_000, THRESHOLD));
        // The bucket costs up to 6.5 % of the threshold: 934,466 true faults can already be cold.
        assert!(!is_hot(latency(65_535 + 934_465, stamp(65_535)), THRESHOLD));
        assert!(is_hot(latency(65_536 + 934_465, stamp(65_536)), THRESHOLD));
    }

    #[test]
    fn pages_are_refused_beyond_two_to_the_31_faults_and_the_counter_may_wrap() {
        assert_eq!(latency(1 << 31, stamp(0)), 1 << 31);
        assert!(!is_hot(latency(1 << 31, stamp(0)), THRESHOLD));
        assert!(!is_hot(latency(u32::MAX, stamp(0)), THRESHOLD));
        assert_eq!(latency(5, stamp(u32::MAX - 65_535)), 65_541);
    }
}
