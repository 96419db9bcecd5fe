//! DAMON's hot score: how much a region is worth promoting, from how often it was accessed and for
//! how long that has been so.

use crate::units::Nanos;

/// Scores go from 0 to this one.
pub const SCORE_MAX: u32 = 99;

/// The weights of a score's two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The weight of how often the region was accessed.
    pub accesses: u32,
    /// The weight of how long that has been so.
    pub age: u32,
}

/// The hot score, from 0 to [`SCORE_MAX`], of a region that `accesses` of `most` checks found
/// accessed and that has been so for `age`. The cold score is `SCORE_MAX` less the hot score (Linux
/// 6.12 mm/damon/ops-common.c, `damon_hot_score` and `damon_cold_score`). A region that nobody
/// accesses gets colder with age.
pub fn hot_score(accesses: u64, most: u64, age: Nanos, weights: Weights) -> u32 {
    let seconds = age.0 / 1_000_000_000;
    let log = (64 - seconds.leading_zeros()).min(32) as i32;
    let log = if accesses == 0 { -log } else { log };
    let by_age = ((log + 32) * 100 / 64) as u64;
    let by_accesses = (accesses.saturating_mul(100) / most.max(1)).min(100);
    let (of_accesses, of_age) = (u64::from(weights.accesses), u64::from(weights.age));
    let weighed = of_accesses * by_accesses + of_age * by_age;
    let hot = weighed / (of_accesses + of_age).max(1) * u64::from(SCORE_MAX) / 100;
    (hot as u32).min(SCORE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Weights = Weights { accesses: 100, age: 100 };

    #[test]
    fn frequency_and_age_count_half_each() {
        // An age below a second is in the middle: 50 of 100.
        assert_eq!(hot_score(20, 20, Nanos(0), BOTH), 75 * 99 / 100);
        assert_eq!(hot_score(0, 20, Nanos(0), BOTH), 25 * 99 / 100);
        assert_eq!(hot_score(20, 20, Nanos::from_s(8), BOTH), 78 * 99 / 100, "bit length 4: 56 of 100");
        assert_eq!(hot_score(0, 20, Nanos::from_s(8), BOTH), 21 * 99 / 100, "the older, the colder");
    }

    #[test]
    fn weights_choose_and_nothing_overflows() {
        let by_age = Weights { accesses: 0, age: 1 };
        assert!(hot_score(1, 20, Nanos::from_s(60), by_age) > hot_score(20, 20, Nanos::from_s(1), by_age));
        assert_eq!(
            hot_score(u64::MAX, 1, Nanos(u64::MAX), Weights { accesses: u32::MAX, age: u32::MAX }),
            99
        );
        assert_eq!(hot_score(1, 0, Nanos(0), Weights { accesses: 0, age: 0 }), 0);
    }
}
