//! Means, spreads, and whether two samples differ.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::random::{Random, Stream};

/// A sample's mean and standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a single value; 0 where there is only one.
    pub sd: f64,
}

/// Sums the values up.
pub fn summary(values: &[f64]) -> Summary {
    let n = values.len() as f64;
    if values.is_empty() {
        return Summary::default();
    }
    let mean = values.iter().sum::<f64>() / n;
    if values.len() == 1 {
        return Summary { mean, sd: 0.0 };
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Summary { mean, sd: (squares / (n - 1.0)).sqrt() }
}

/// How far one more value may lie from the mean of these, at 95 % (the prediction interval of
/// Student's t). `None` with fewer than two values.
pub fn one_more_within(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let t = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    Some(t.inverse_cdf(0.975) * summary(values).sd * (1.0 + 1.0 / n).sqrt())
}

/// Up to this many pairs are tested with all combinations of signs; for more, combinations are
/// drawn.
const PAIRS_MAX: usize = 14;
/// Number of combinations drawn.
const DRAWS: u32 = 10_000;

/// The probability that the pairs differ as much as they do, if each difference were equally likely
/// to have the other sign.
pub fn pair_test(a: &[f64], b: &[f64]) -> f64 {
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    let observed = differences.iter().sum::<f64>().abs();
    let sum = |signs: u64| -> f64 {
        differences.iter().enumerate().map(|(i, d)| if signs >> (i % 64) & 1 == 0 { *d } else { -d }).sum()
    };
    let slack = observed * 1e-12;
    if differences.len() <= PAIRS_MAX {
        let all = 1u64 << differences.len();
        let as_far = (0..all).filter(|signs| sum(*signs).abs() >= observed - slack).count();
        return as_far as f64 / all as f64;
    }
    let mut random = Random::new(1, Stream::Models);
    let as_far = (0..DRAWS).filter(|_| sum(random.bits()).abs() >= observed - slack).count();
    (as_far + 1) as f64 / f64::from(DRAWS + 1)
}

/// Probabilities of several tests, adjusted for their number (S. Holm, 1979): the probability that
/// any of those below a level is below it by chance is at most that level.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut least = 0.0f64;
    for (rank, i) in order.into_iter().enumerate() {
        least = least.max(probabilities[i] * (probabilities.len() - rank) as f64).min(1.0);
        adjusted[i] = least;
    }
    adjusted
}

/// The minimum number of seeds with which one of `tests` pair tests can fall below a level.
pub fn seeds_to_tell(tests: usize, level: f64) -> u64 {
    // All differences have the same sign in two of all combinations of signs.
    (2.0 * tests.max(1) as f64 / level).log2().ceil() as u64
}

/// Ranks of the values, from 1; equal values share their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |v: f64| values.iter().filter(|o| **o < v).count() as f64;
    let equal = |v: f64| values.iter().filter(|o| **o == v).count() as f64;
    values.iter().map(|v| below(*v) + (equal(*v) + 1.0) / 2.0).collect()
}

/// Spearman's rank correlation.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let (mean_a, mean_b) = (summary(&a).mean, summary(&b).mean);
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    let both = (product(&a, mean_a, &a, mean_a) * product(&b, mean_b, &b, mean_b)).sqrt();
    if both > 0.0 { product(&a, mean_a, &b, mean_b) / both } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_spreads() {
        assert_eq!(summary(&[2.0, 4.0, 9.0]), Summary { mean: 5.0, sd: 13f64.sqrt() });
        assert_eq!(summary(&[]), Summary::default());
    }

    #[test]
    fn one_more_value_lies_within_what_student_says() {
        // t(0.975, 3) = 3.1824; the standard deviation of 1, 2, 3, 4 is the root of 5/3.
        let within = one_more_within(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((within - 3.1824 * (5.0f64 / 3.0).sqrt() * 1.25f64.sqrt()).abs() < 1e-3, "{within}");
        assert_eq!(one_more_within(&[1.0]), None);
    }

    #[test]
    fn what_differs_always_is_told_from_what_does_not() {
        let a: Vec<f64> = (0..8).map(f64::from).collect();
        let more: Vec<f64> = a.iter().map(|v| v + 1.0).collect();
        assert_eq!(pair_test(&a, &more), 2.0 / 256.0);
        assert_eq!(pair_test(&a, &a), 1.0);
        let long: Vec<f64> = (0..40).map(f64::from).collect();
        let more: Vec<f64> = long.iter().map(|v| v + 1.0).collect();
        assert!(pair_test(&long, &more) < 0.001);
    }

    #[test]
    fn many_tests_are_held_to_more() {
        let adjusted = holm(&[0.04, 0.01, 0.5, 0.03]);
        for (is, should) in adjusted.iter().zip([0.09, 0.04, 0.5, 0.09]) {
            assert!((is - should).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        for tests in [1, 3, 14] {
            let seeds = seeds_to_tell(tests, 0.05);
            let least =
                |seeds: u64| tests as f64 * pair_test(&vec![1.0; seeds as usize], &vec![0.0; seeds as usize]);
            assert!(least(seeds) <= 0.05 && least(seeds - 1) > 0.05, "{tests} tests, {seeds} seeds");
        }
    }

    #[test]
    fn ranks_correlate() {
        assert!((rank_correlation(&[1.0, 2.0, 5.0, 9.0], &[2.0, 3.0, 4.0, 50.0]) - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }
}
