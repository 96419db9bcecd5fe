//! Threshold feedback and rate limit of promotion candidates, per target node.
//!
//! Source: Linux 6.12 `kernel/sched/fair.c`, `numa_promotion_adjust_threshold`,
//! `numa_promotion_rate_limit` and `pgdat_free_space_enough`. S4 uses the same arithmetic with its
//! frequency window as reference.

use crate::topology::NodeState;
use crate::units::{Nanos, PAGES_PER_MIB};

/// Time between two adjustments: `scan_period_max_ms`, 60 s by default (Linux 6.12
/// `kernel/sched/fair.c`).
pub const ADJUST_PERIOD_MS: u64 = 60_000;
/// The threshold has this many steps between nothing and twice the reference
/// (`NUMA_MIGRATION_ADJUST_STEPS`).
pub const ADJUST_STEPS: u64 = 16;
/// The rate limiter's window (`MSEC_PER_SEC` in `numa_promotion_rate_limit`).
pub const RATE_WINDOW_MS: u64 = 1_000;
/// The kernel's default rate limit, in MB/s: so high that the feedback only ever raises the
/// threshold.
pub const RATE_LIMIT_MBPS: u64 = 65_536;

/// Base pages per second in a limit given in MB/s, as the kernel counts them (2^20 bytes a MB).
pub const fn rate_limit_pages(mbps: u64) -> u64 {
    mbps.saturating_mul(PAGES_PER_MIB)
}

/// The hot threshold of one target node.
///
/// Every period, the number of candidates is compared with what the rate limit allows. More than
/// 110 % lower the threshold by a sixteenth of twice the reference, less than 90 % raise it by as
/// much, between one step and twice the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    /// Start of the current period in ms; a node starts at 0, so the first fault later than a
    /// period adjusts at once.
    start_ms: u64,
    /// All candidates, in base pages, at the last adjustment.
    candidates_then: u64,
    /// The threshold in ms; `None` until the first adjustment, and after the target had plenty of
    /// room.
    threshold_ms: Option<u64>,
}

impl Threshold {
    /// The threshold in ms, given the reference (`hot_threshold_ms`, or S4's frequency window).
    pub fn ms(&self, reference_ms: u64) -> u64 {
        self.threshold_ms.unwrap_or(reference_ms)
    }

    /// Adjusts the threshold if a period is over. `candidates` counts all candidate pages so far,
    /// `rate_limit_pages` is per second. Returns whether a period ended.
    pub fn adjust(
        &mut self,
        now: Nanos,
        candidates: u64,
        rate_limit_pages: u64,
        reference_ms: u64,
        period_ms: u64,
    ) -> bool {
        let now_ms = now.ms();
        if now_ms.saturating_sub(self.start_ms) <= period_ms {
            return false;
        }
        self.start_ms = now_ms;
        let reference = rate_limit_pages.saturating_mul(period_ms) / 1000;
        let found = candidates.saturating_sub(self.candidates_then);
        let unit = reference_ms * 2 / ADJUST_STEPS;
        let threshold = self.ms(reference_ms);
        self.threshold_ms = Some(if found > reference.saturating_mul(11) / 10 {
            threshold.saturating_sub(unit).max(unit)
        } else if found < reference.saturating_mul(9) / 10 {
            (threshold + unit).min(reference_ms * 2)
        } else {
            threshold
        });
        self.candidates_then = candidates;
        true
    }

    /// Back to the reference: what the kernel does when the target has plenty of room.
    pub fn reset(&mut self) {
        self.threshold_ms = None;
    }
}

/// The second window that candidate pages are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    start_ms: u64,
    candidates_then: u64,
}

impl RateLimit {
    /// Whether a candidate is over the limit. `candidates` counts all candidate pages so far, this
    /// one included; the first one after a second opens the next window and is not counted in it.
    pub fn limited(&mut self, now: Nanos, candidates: u64, rate_limit_pages: u64) -> bool {
        let now_ms = now.ms();
        if now_ms.saturating_sub(self.start_ms) > RATE_WINDOW_MS {
            self.start_ms = now_ms;
            self.candidates_then = candidates;
        }
        candidates.saturating_sub(self.candidates_then) >= rate_limit_pages
    }
}

/// Whether a node has so much room that the kernel promotes every page at its first hint fault:
/// more free than its promo watermark plus the larger of 1 GiB and a sixteenth of the node.
///
/// The kernel asks this of each zone; a node's sum is as close as its published counters come.
pub fn free_space_enough(node: &NodeState) -> bool {
    let spare = (1024 * PAGES_PER_MIB).max(node.managed_pages / 16);
    node.free_pages > node.watermarks.promo_pages.saturating_add(spare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Watermarks;
    use crate::units::NodeId;
    use proptest::prelude::*;

    /// Thresholds in ms after each of `minutes` periods with `found` candidates in each.
    fn run(limit_mbps: u64, found: &[u64]) -> Vec<u64> {
        let mut threshold = Threshold::default();
        let mut all = 0;
        found
            .iter()
            .enumerate()
            .map(|(minute, n)| {
                all += n;
                let now = Nanos::from_ms((minute as u64 + 1) * (ADJUST_PERIOD_MS + 1));
                assert!(threshold.adjust(now, all, rate_limit_pages(limit_mbps), 1000, ADJUST_PERIOD_MS));
                threshold.ms(1000)
            })
            .collect()
    }

    #[test]
    fn with_the_default_limit_it_rises_125_ms_a_minute_to_2000_and_stays() {
        // S0's run found 1,916,720 candidates in about ten minutes, far below 65536 MB/s.
        let thresholds = run(RATE_LIMIT_MBPS, &[191_672; 10]);
        assert_eq!(thresholds, [1125, 1250, 1375, 1500, 1625, 1750, 1875, 2000, 2000, 2000]);
    }

    #[test]
    fn the_thresholds_that_s0_printed_are_values_of_this_sequence_in_its_order() {
        let mut minutes = run(RATE_LIMIT_MBPS, &[191_672; 10]).into_iter().peekable();
        for printed in [1125, 1125, 1250, 1375, 1625, 1875, 2000] {
            while minutes.peek().is_some_and(|t| *t < printed) {
                minutes.next();
            }
            assert_eq!(minutes.peek(), Some(&printed));
        }
    }

    #[test]
    fn steps_are_bounded_by_the_band_and_by_both_ends() {
        // 100 MB/s are 25,600 pages a second and 1,536,000 a minute; the band is 1,382,400 to
        // 1,689,600.
        assert_eq!(run(100, &[1_382_400, 1_689_600]), [1000, 1000]);
        assert_eq!(run(100, &[1_382_399]), [1125]);
        assert_eq!(run(100, &[1_689_601]), [875]);
        assert_eq!(run(100, &[5_000_000; 9]), [875, 750, 625, 500, 375, 250, 125, 125, 125]);
    }

    #[test]
    fn nothing_happens_within_a_period() {
        let mut threshold = Threshold::default();
        assert!(!threshold.adjust(Nanos::from_ms(60_000), 0, 1, 1000, ADJUST_PERIOD_MS));
        assert_eq!(threshold.ms(1000), 1000);
        assert!(threshold.adjust(Nanos::from_ms(60_001), 0, 10, 1000, ADJUST_PERIOD_MS));
        assert!(!threshold.adjust(Nanos::from_ms(120_001), 0, 10, 1000, ADJUST_PERIOD_MS));
        assert_eq!(threshold.ms(1000), 1125);
        threshold.reset();
        assert_eq!(threshold.ms(1000), 1000);
    }

    #[test]
    fn s4_reference_of_3000_ms_steps_by_375() {
        let mut threshold = Threshold::default();
        for minute in 1..=3 {
            threshold.adjust(Nanos::from_ms(minute * 60_001), 0, 1000, 3000, ADJUST_PERIOD_MS);
        }
        // After three minutes the recency test is beyond what pghot's 1-byte record can express
        // (3968 ms).
        assert_eq!(threshold.ms(3000), 4125);
    }

    #[test]
    fn the_rate_window_lets_the_limit_through_and_reopens_after_a_second() {
        let mut limit = RateLimit::default();
        let at = |ms| Nanos::from_ms(ms);
        // 5,000 ms opens a window; the candidate that opens it is the base of the count.
        assert!(!limit.limited(at(5000), 1, 3));
        assert!(!limit.limited(at(5000), 2, 3));
        assert!(!limit.limited(at(5500), 3, 3));
        assert!(limit.limited(at(5900), 4, 3));
        assert!(limit.limited(at(6000), 5, 3));
        assert!(!limit.limited(at(6001), 6, 3));
    }

    #[test]
    fn a_limit_of_zero_refuses_everything() {
        assert!(RateLimit::default().limited(Nanos::from_s(5), 1, 0));
    }

    #[test]
    fn plenty_of_room_is_a_gib_or_a_sixteenth_above_the_promo_watermark() {
        let gib = 1024 * PAGES_PER_MIB;
        let node = |free_pages, managed_pages| NodeState {
            node: NodeId(0),
            free_pages,
            managed_pages,
            watermarks: Watermarks { promo_pages: 1000, ..Watermarks::default() },
        };
        assert!(!free_space_enough(&node(gib + 1000, 3 * gib)));
        assert!(free_space_enough(&node(gib + 1001, 3 * gib)));
        assert!(!free_space_enough(&node(2 * gib + 1000, 32 * gib)));
        assert!(free_space_enough(&node(2 * gib + 1001, 32 * gib)));
    }

    proptest! {
        #[test]
        fn the_threshold_stays_between_one_step_and_twice_the_reference(
            reference in 8u64..100_000, limit in 0u64..1_000_000,
            found in proptest::collection::vec(0u64..u64::MAX >> 8, 1..60),
        ) {
            let mut threshold = Threshold::default();
            let mut all = 0u64;
            let mut last = reference;
            for (minute, n) in found.iter().enumerate() {
                all = all.saturating_add(*n);
                let now = Nanos::from_ms((minute as u64 + 1) * 60_001);
                prop_assert!(threshold.adjust(now, all, limit, reference, ADJUST_PERIOD_MS));
                let ms = threshold.ms(reference);
                prop_assert!((reference / 8..=reference * 2).contains(&ms));
                prop_assert!(ms.abs_diff(last) <= reference / 8);
                last = ms;
            }
        }
    }
}
