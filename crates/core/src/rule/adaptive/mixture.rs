//! How two kinds of pages are told apart by their waiting times alone.
//!
//! A page that is accessed at random with a steady rate waits an exponential time from the scan to its hint fault. Pages of
//! one rate give one exponential; hot and cold pages give a mixture of two. The mixture is fitted by expectation
//! maximisation to a histogram of waits, and compared with a single exponential of the same mean.

/// Steps of the histogram in one octave.
const STEPS: usize = 4;
/// Bins: from 1 µs to 2^40 µs (two weeks).
const BINS: usize = 40 * STEPS;
/// Rounds of expectation maximisation: enough for the class means to be steady within a few per cent.
const ROUNDS: usize = 50;

/// A histogram of waits on a logarithmic scale, in quarters of octaves, that forgets.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    weights: [f64; BINS],
    weight: f64,
    faults: f64,
}

/// Two classes of pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Classes {
    /// Share of the weight that is hot.
    pub(super) hot_share: f64,
    /// Mean wait of the hot class in µs.
    pub(super) hot_us: f64,
    /// Mean wait of the cold class in µs.
    pub(super) cold_us: f64,
    /// Natural logarithm of how much better two classes explain a fault than one does.
    pub(super) gain: f64,
}

impl Histogram {
    pub(super) const fn new() -> Histogram {
        Histogram { weights: [0.0; BINS], weight: 0.0, faults: 0.0 }
    }

    /// Counts a fault of `pages` base pages that waited `us`.
    pub(super) fn add(&mut self, us: u64, pages: u64) {
        let us = us.max(1);
        let octave = us.ilog2() as usize;
        let step = (((us - (1 << octave)) as u128 * STEPS as u128) >> octave) as usize;
        let weight = pages as f64;
        self.weights[(octave * STEPS + step).min(BINS - 1)] += weight;
        self.weight += weight;
        self.faults += 1.0;
    }

    /// Lets `share` of everything so far remain.
    pub(super) fn decay(&mut self, share: f64) {
        for weight in &mut self.weights {
            *weight *= share;
        }
        self.weight *= share;
        self.faults *= share;
    }

    /// Faults that are remembered.
    pub(super) fn faults(&self) -> f64 {
        self.faults
    }

    /// The wait in µs that `share` of the weight stays below, to the next border of a bin.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let mut below = 0.0;
        for (bin, weight) in self.weights.iter().enumerate() {
            below += weight;
            if below >= share * self.weight {
                return border(bin + 1);
            }
        }
        border(BINS)
    }

    /// Fits two classes. `None` where all waits are alike.
    pub(super) fn classes(&self) -> Option<Classes> {
        let bins: Vec<(f64, f64)> = self
            .weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0.0)
            .map(|(bin, weight)| ((border(bin) + border(bin + 1)) / 2.0, *weight))
            .collect();
        let mean = mean_of(bins.iter().copied())?;
        // Start from the halves on either side of the median.
        let median = self.quantile(0.5);
        let mut hot_us = mean_of(bins.iter().copied().filter(|(us, _)| *us < median))?;
        let mut cold_us = mean_of(bins.iter().copied().filter(|(us, _)| *us >= median))?;
        let mut hot_share = 0.5;
        for _ in 0..ROUNDS {
            let (mut hot, mut hot_sum, mut cold, mut cold_sum) = (0.0, 0.0, 0.0, 0.0);
            for (us, weight) in &bins {
                let as_hot = hot_share * density(*us, hot_us);
                let as_cold = (1.0 - hot_share) * density(*us, cold_us);
                let hot_part = weight * as_hot / (as_hot + as_cold).max(f64::MIN_POSITIVE);
                hot += hot_part;
                hot_sum += hot_part * us;
                cold += weight - hot_part;
                cold_sum += (weight - hot_part) * us;
            }
            if hot < self.weight * 1e-4 || cold < self.weight * 1e-4 {
                return None;
            }
            hot_share = hot / self.weight;
            hot_us = hot_sum / hot;
            cold_us = cold_sum / cold;
        }
        let gain: f64 = bins
            .iter()
            .map(|(us, weight)| {
                let two = hot_share * density(*us, hot_us) + (1.0 - hot_share) * density(*us, cold_us);
                let one = density(*us, mean);
                weight * ln(two.max(f64::MIN_POSITIVE) / one.max(f64::MIN_POSITIVE))
            })
            .sum();
        Some(Classes { hot_share, hot_us, cold_us, gain: gain / self.weight })
    }
}

/// Lower border of a bin in µs.
fn border(bin: usize) -> f64 {
    (1u64 << (bin / STEPS)) as f64 * (1.0 + (bin % STEPS) as f64 / STEPS as f64)
}

fn mean_of(bins: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weight) = bins.fold((0.0, 0.0), |(s, w), (us, weight)| (s + us * weight, w + weight));
    (weight > 0.0).then(|| sum / weight)
}

/// Density of an exponential wait, up to a factor that depends on `us` alone.
fn density(us: f64, mean_us: f64) -> f64 {
    exp_minus(us / mean_us) / mean_us
}

/// e^-x for x >= 0. The standard library's leaves its last digits to the platform; decisions shall not depend on that.
pub(super) fn exp_minus(x: f64) -> f64 {
    if x > 700.0 {
        return 0.0;
    }
    let (mut x, mut halvings) = (x, 0);
    while x > 0.125 {
        x /= 2.0;
        halvings += 1;
    }
    // Taylor's series in Horner's form; the rest after eight terms is below 1e-13 at 1/8.
    let mut value = 1.0;
    for k in (1..=8).rev() {
        value = 1.0 - x / f64::from(k) * value;
    }
    for _ in 0..halvings {
        value *= value;
    }
    value
}

/// Natural logarithm of x > 0, from basic arithmetic for the same reason.
pub(super) fn ln(x: f64) -> f64 {
    let (mut x, mut octaves) = (x, 0.0);
    while x > std::f64::consts::SQRT_2 {
        x /= 2.0;
        octaves += 1.0;
    }
    while x < std::f64::consts::FRAC_1_SQRT_2 {
        x *= 2.0;
        octaves -= 1.0;
    }
    // ln x = 2 (z + z^3/3 + z^5/5 + ...) with z = (x - 1)/(x + 1), here below 0.172.
    let z = (x - 1.0) / (x + 1.0);
    let mut sum = 0.0;
    for k in (0..8).rev() {
        sum = sum * z * z + 1.0 / f64::from(2 * k + 1);
    }
    octaves * std::f64::consts::LN_2 + 2.0 * z * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_and_ln_agree_with_the_standard_librarys() {
        for i in 0..7000 {
            let x = f64::from(i) / 10.0;
            assert!((exp_minus(x) - (-x).exp()).abs() <= 1e-9 * (-x).exp(), "{x}");
        }
        assert_eq!(exp_minus(701.0), 0.0);
        for x in [1e-300, 1e-9, 0.3, 0.9, 1.0, 1.1, 2.0, 1e9, 1e300_f64] {
            assert!((ln(x) - x.ln()).abs() <= 1e-11 * x.ln().abs().max(1.0), "{x}");
        }
    }

    #[test]
    fn bins_are_quarters_of_octaves() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(border), [1.0, 1.25, 1.5, 1.75, 2.0, 2.5]);
        let mut h = Histogram::new();
        for us in [0, 1, 4, 5, 6, 7, u64::MAX] {
            h.add(us, 1);
        }
        let filled: Vec<usize> = (0..BINS).filter(|b| h.weights[*b] > 0.0).collect();
        assert_eq!(filled, [0, 8, 9, 10, 11, BINS - 1]);
        assert_eq!(h.faults(), 7.0);
        assert_eq!(h.quantile(0.5), 6.0);
    }

    /// The exact waits of `pages` pages of mean `mean_us`: one at each quantile.
    fn exponential(h: &mut Histogram, mean_us: f64, pages: u32) {
        for i in 0..pages {
            let share = (f64::from(i) + 0.5) / f64::from(pages);
            h.add((-mean_us * (1.0 - share).ln()) as u64, 1);
        }
    }

    #[test]
    fn two_classes_are_recovered_at_any_speed() {
        for speed in [1e3, 3e4, 1e6, 1e7] {
            let mut h = Histogram::new();
            exponential(&mut h, speed, 2000);
            exponential(&mut h, 36.0 * speed, 8000);
            let c = h.classes().unwrap();
            assert!((c.hot_share - 0.2).abs() < 0.02, "{c:?}");
            assert!((c.hot_us / speed - 1.0).abs() < 0.1, "{c:?}");
            assert!((c.cold_us / speed / 36.0 - 1.0).abs() < 0.1, "{c:?}");
            assert!(c.gain > 0.1, "{c:?}");
        }
    }

    #[test]
    fn one_class_gains_nothing_from_a_second() {
        for speed in [1e3, 1e6] {
            let mut h = Histogram::new();
            exponential(&mut h, speed, 10_000);
            let c = h.classes().unwrap();
            assert!(c.gain < 0.001 && c.cold_us < 3.0 * c.hot_us, "{c:?}");
        }
        let mut alike = Histogram::new();
        alike.add(5000, 1);
        alike.add(5000, 1);
        assert_eq!(alike.classes(), None);
    }

    #[test]
    fn forgetting_scales_all_weights() {
        let mut h = Histogram::new();
        exponential(&mut h, 1e4, 1000);
        let before = h.classes();
        h.decay(0.5);
        assert_eq!(h.faults(), 500.0);
        let (a, b) = (before.unwrap(), h.classes().unwrap());
        assert!((a.hot_us - b.hot_us).abs() < 1.0);
    }
}
