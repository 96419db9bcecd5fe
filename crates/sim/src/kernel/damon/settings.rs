//! DAMON's settings: HMSDK's two schemes (S3), and the kernel's own sample for tiers.

use std::ops::{Range, RangeInclusive};

use thermocline_core::config::Damon;
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use crate::spec::SpecError;

/// What a scheme does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Promote accessed pages.
    Promote,
    /// Demote pages that have not been accessed for long.
    Demote,
}

/// The second check of a page before it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// As in reclaim (S3, RFC 1 and 2): a page is promoted if two successive checks each found it
    /// accessed, and demoted if it was not accessed since the last check.
    References,
    /// The young filter (Linux 6.12): a page is promoted if it was accessed since the last check,
    /// demoted if not.
    Young,
}

/// A goal that a quota follows in addition to its limits, for the top tier's node, in
/// ten-thousandths of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// This much is used.
    Used(u32),
    /// This much is free.
    Free(u32),
}

/// A scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemeSettings {
    /// What it does.
    pub action: Action,
    /// Accesses of matching regions, in samples of an aggregation.
    pub accesses: RangeInclusive<u32>,
    /// Minimum age of matching regions, in aggregations.
    pub age_min: u32,
    /// Time from one application to the next; `None` for each aggregation.
    pub apply_every: Option<Nanos>,
    /// CPU time in `reset` in ms.
    pub time_ms: Option<f64>,
    /// Pages that may be tried in `reset`.
    pub size_pages: u64,
    /// Length of the quota's window.
    pub reset: Nanos,
    /// Weights of accesses and of age in a region's score.
    pub weights: (u32, u32),
    /// The goal of the quota.
    pub goal: Option<Goal>,
    /// The second check of its pages.
    pub recheck: Recheck,
}

/// Tuning of the sampling interval by the accesses seen (Linux 6.15 and later, `mm/damon/core.c`).
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Target share of accesses seen, in ten-thousandths of those possible.
    pub accesses_bp: u64,
    /// Aggregations from one adjustment to the next.
    pub aggregations: u32,
    /// Range of the sampling interval.
    pub sample: RangeInclusive<Nanos>,
}

/// DAMON's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Sampling interval.
    pub sample: Nanos,
    /// Sampling intervals of an aggregation.
    pub samples: u32,
    /// Regions at least and at most.
    pub regions: Range<usize>,
    /// Tuning of the intervals, if enabled.
    pub tuning: Option<Tuning>,
    /// The scheme of nodes of the lower tiers.
    pub promote: SchemeSettings,
    /// The scheme of nodes of the top tier.
    pub demote: SchemeSettings,
}

impl Settings {
    /// One scheme for each node, by the keys that set up the live manager; the defaults are those
    /// of HMSDK's `gen_config.py` of S3's time.
    ///
    /// # Errors
    /// The keys ask for something that is not simulated.
    pub fn new(keys: &Damon, recheck: Recheck) -> Result<Settings, SpecError> {
        let watermarks =
            [keys.watermark_high_permille, keys.watermark_mid_permille, keys.watermark_low_permille];
        if watermarks.iter().any(Option::is_some) {
            let message = "watermarks are not simulated";
            return Err(SpecError::new(
                "config.manager.damon.watermark_*_permille",
                message,
                "leave them out",
            ));
        }
        let samples = keys.samples();
        let scheme = |action, accesses, age_min, time_ms: u64, goal| SchemeSettings {
            action,
            accesses,
            age_min,
            apply_every: None,
            time_ms: (time_ms > 0).then_some(time_ms as f64),
            size_pages: if keys.quota_mib == 0 { u64::MAX } else { keys.quota_mib * PAGES_PER_MIB },
            reset: Nanos::from_ms(keys.quota_ms),
            weights: (keys.weight_accesses_permille, keys.weight_age_permille),
            goal,
            recheck,
        };
        // Rounded as in the live manager, so that a region with exactly the threshold is taken.
        let hot = ((samples * keys.hot_percent).div_ceil(100).max(1)) as u32;
        let cold = keys.cold_ms.div_ceil(keys.aggregation_ms.max(1)) as u32;
        let used = keys.used_goal_bp.map(Goal::Used);
        let free = keys.free_goal_bp.map(Goal::Free);
        Ok(Settings {
            sample: Nanos::from_ms(keys.sample_ms),
            samples: samples as u32,
            regions: keys.regions_min as usize..keys.regions_max as usize,
            tuning: keys.access_goal_bp.map(|bp| Tuning::towards(bp.into())),
            promote: scheme(Action::Promote, hot..=u32::MAX, 0, keys.promote_time_ms, used),
            demote: scheme(Action::Demote, 0..=0, cold, keys.demote_time_ms, free),
        })
    }

    /// The kernel's sample (`samples/damon/mtier.c`): quotas that follow the use of the top tier,
    /// intervals that follow the accesses seen.
    pub fn mtier() -> Settings {
        let scheme = |action, accesses, goal| SchemeSettings {
            action,
            accesses,
            age_min: 0,
            apply_every: Some(Nanos::from_s(1)),
            time_ms: None,
            size_pages: 200 * PAGES_PER_MIB,
            reset: Nanos::from_s(1),
            weights: (100, 100),
            goal: Some(goal),
            recheck: Recheck::Young,
        };
        Settings {
            sample: Nanos::from_ms(5),
            samples: 20,
            regions: 10..1000,
            tuning: Some(Tuning::towards(400)),
            promote: scheme(Action::Promote, 1..=u32::MAX, Goal::Used(9970)),
            demote: scheme(Action::Demote, 0..=0, Goal::Free(50)),
        }
    }
}

/// The kernel's feedback loop (`damon_feed_loop_next_input`, Linux 6.12 `mm/damon/core.c`): larger
/// if `score` is below 10,000, smaller if it is above, by the relative deviation; never below
/// 10,000.
pub fn next_input(last: u64, score: u64) -> u64 {
    const GOAL: u64 = 10_000;
    const LEAST: u64 = 10_000;
    if score >= 2 * GOAL {
        return LEAST;
    }
    let change = u128::from(last) * u128::from(GOAL.abs_diff(score)) / u128::from(GOAL);
    let change = u64::try_from(change).unwrap_or(u64::MAX);
    if score > GOAL { last.saturating_sub(change).max(LEAST) } else { last.saturating_add(change) }
}

impl Tuning {
    /// Tuning towards `accesses_bp`, within the bounds of the kernel's sample.
    pub fn towards(accesses_bp: u64) -> Tuning {
        Tuning { accesses_bp, aggregations: 3, sample: Nanos::from_ms(5)..=Nanos::from_s(10) }
    }

    /// The next sampling interval, if `seen` of `most` possible accesses were seen with this one.
    pub fn next(&self, sample: Nanos, seen: u64, most: u64) -> Nanos {
        let seen_bp = u128::from(seen) * 10_000 / u128::from(most.max(1));
        let score = (seen_bp * 10_000 / u128::from(self.accesses_bp.max(1))) as u64;
        let bp = next_input(100_000_000, score) / 10_000;
        // It shrinks more slowly than it grows.
        let bp = if bp <= 10_000 { 5000 + bp / 2 } else { bp };
        let next = Nanos((u128::from(sample.0) * u128::from(bp) / 10_000) as u64);
        next.max(*self.sample.start()).min(*self.sample.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_hmsdks() {
        let settings = Settings::new(&Damon::default(), Recheck::Young).expect("all of it is simulated");
        assert_eq!((settings.sample, settings.samples), (Nanos::from_ms(100), 20));
        assert_eq!((settings.regions, settings.tuning), (100..10_000, None));
        // Accessed in 5 % of the samples or more; not accessed for 30 s.
        assert_eq!((settings.promote.accesses, settings.promote.time_ms), (1..=u32::MAX, Some(2000.0)));
        assert_eq!((settings.demote.accesses, settings.demote.age_min), (0..=0, 15));
        assert_eq!(settings.demote.size_pages, 50 * 1024 * PAGES_PER_MIB);
        let keys = Damon { watermark_mid_permille: Some(5), ..Damon::default() };
        assert!(Settings::new(&keys, Recheck::Young).is_err());
    }

    #[test]
    fn the_loop_steers_towards_its_goal() {
        assert_eq!(next_input(100_000, 0), 200_000);
        assert_eq!(next_input(100_000, 5000), 150_000);
        assert_eq!(next_input(100_000, 10_000), 100_000);
        assert_eq!(next_input(100_000, 15_000), 50_000);
        assert_eq!(next_input(100_000, 20_000), 10_000);
        assert_eq!(next_input(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn intervals_grow_while_little_is_seen_and_shrink_by_half_at_most() {
        let tuning = Settings::mtier().tuning.unwrap();
        let from = Nanos::from_ms(100);
        assert_eq!(tuning.next(from, 0, 1_000_000), Nanos::from_ms(200));
        // 4 % is the goal.
        assert_eq!(tuning.next(from, 40_000, 1_000_000), Nanos::from_ms(100));
        assert_eq!(tuning.next(from, 20_000, 1_000_000), Nanos::from_ms(150));
        assert_eq!(tuning.next(from, 1_000_000, 1_000_000), Nanos(from.0 * 5000 / 10_000));
        assert_eq!(tuning.next(Nanos::from_ms(5), 1_000_000, 1_000_000), Nanos::from_ms(5));
        assert_eq!(tuning.next(Nanos::from_s(9), 0, 1), Nanos::from_s(10));
    }
}
