//! What a wait says about a page, given the waits of other pages.
//!
//! The wait of a page that is accessed at random, `rate` times a second, is exponential. If the
//! rates of pages follow a gamma distribution of some *shape* and *scale*, a page that has waited
//! `k` times for `w` has a mean rate of `(shape + k) / (scale + k w)` (the conjugate posterior), so
//! its access interval is estimated as `(scale + k w) / (shape + k)`. The smaller the shape, the
//! more pages differ, and the more one wait says. Of earlier waits only the number below the cut is
//! known; they are assumed to equal the last one.
//!
//! How much pages differ follows from the ratio of common waits to short ones: in this distribution
//! a share `p` of pages waits for at most `scale * ((1 - p)^(-1 / shape) - 1)` (Lomax).

use crate::units::Nanos;

/// Range of shapes. Below it, a single wait would decide.
const SHAPES: std::ops::RangeInclusive<f64> = 0.25..=1.0;
/// Steps of the search for a shape, each halving the range.
const STEPS: u32 = 20;

/// The distribution of the pages' access rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prior {
    shape: f64,
    scale_ns: f64,
}

impl Prior {
    /// For pages of which a tenth wait for at most `tenth`, and half for at most `median`.
    pub(super) fn new(tenth: Nanos, median: Nanos) -> Prior {
        let shape = shape(median.0 as f64 / tenth.0.max(1) as f64);
        Prior { shape, scale_ns: median.0 as f64 / in_scales(0.5, shape) }
    }

    /// The estimated access interval of a page that has waited for `wait`, and for about as long at
    /// its last `times` faults.
    pub(super) fn gap(&self, wait: Nanos, times: u8) -> Nanos {
        let times = f64::from(times.max(1));
        Nanos(((self.scale_ns + times * wait.0 as f64) / (self.shape + times)) as u64)
    }
}

/// A quantile of the waits, in units of the scale.
fn in_scales(share: f64, shape: f64) -> f64 {
    (1.0 - share).powf(-1.0 / shape) - 1.0
}

/// The shape with which the median is `ratio` times the lowest tenth.
fn shape(ratio: f64) -> f64 {
    let (mut least, mut most) = (*SHAPES.start(), *SHAPES.end());
    // The larger the shape, the more alike pages are, and the smaller the ratio.
    for _ in 0..STEPS {
        let middle = (least * most).sqrt();
        if in_scales(0.5, middle) / in_scales(0.1, middle) > ratio { least = middle } else { most = middle }
    }
    (least * most).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::Rng;

    fn uniform(rng: &mut Pcg64Mcg) -> f64 {
        (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The prior estimated from 20,000 pages of such rates, each of which waited once, and the
    /// pages' waits in ns.
    fn seen(rate: impl Fn(f64) -> f64) -> (Prior, Vec<(f64, f64)>) {
        let mut rng = Pcg64Mcg::new(7);
        let mut pages: Vec<(f64, f64)> = (0..20_000)
            .map(|_| {
                let rate = rate(uniform(&mut rng));
                (-(1.0 - uniform(&mut rng)).ln() / rate * 1e9, rate)
            })
            .collect();
        pages.sort_by(|a, b| a.0.total_cmp(&b.0));
        let quantile = |percent: usize| Nanos(pages[pages.len() * percent / 100].0 as u64);
        (Prior::new(quantile(10), quantile(50)), pages)
    }

    #[test]
    fn the_shape_is_found_from_one_wait_of_each_page() {
        // A gamma distribution of shape 1 is the exponential one.
        assert!(seen(|u| -(1.0 - u).ln()).0.shape > 0.9);
        assert!(seen(|_| 1.0).0.shape > 0.99, "pages that are all alike");
        assert!(seen(|u| if u < 0.2 { 36.0 } else { 1.0 }).0.shape < 0.4, "pages of two kinds");
        // Ten octaves of rates.
        assert!(seen(|u| 1024.0_f64.powf(u)).0.shape < 0.6);
    }

    #[test]
    fn the_gap_is_near_what_pages_with_such_waits_have() {
        for (name, rate) in [
            ("two kinds", (|u| if u < 0.2 { 36.0 } else { 1.0 }) as fn(f64) -> f64),
            ("exponential", |u| -(1.0 - u).ln()),
            ("ten octaves", |u| 1024.0_f64.powf(u)),
        ] {
            let (prior, pages) = seen(rate);
            // The best tenth by rate: a page is worth its rate.
            let best = &pages[..pages.len() / 10];
            let right: f64 = best.iter().map(|(_, rate)| rate).sum();
            let likely: f64 =
                best.iter().map(|(wait, _)| 1e9 / prior.gap(Nanos(*wait as u64), 1).0 as f64).sum();
            assert!((0.5..2.0).contains(&(likely / right)), "{name}: {likely} for {right}");
        }
    }

    #[test]
    fn the_more_pages_differ_the_more_one_wait_says() {
        let gaps_ms = |tenth_ms| {
            let prior = Prior::new(Nanos::from_ms(tenth_ms), Nanos::from_ms(900));
            [10, 900, 9000].map(|ms| prior.gap(Nanos::from_ms(ms), 1).ms())
        };
        assert_eq!(gaps_ms(100), [454, 899, 4950], "a shape of 1, near enough");
        let differ = gaps_ms(1);
        assert!(differ[0] < 100 && differ[2] > 7000, "{differ:?}");
    }

    #[test]
    fn the_more_often_a_page_was_early_the_more_its_waits_are_believed() {
        let prior = Prior::new(Nanos::from_ms(100), Nanos::from_ms(900));
        let gaps = [0, 1, 3, 7, 255].map(|times| prior.gap(Nanos::from_ms(100), times).ms());
        assert!(gaps[0] == gaps[1] && gaps[1] > gaps[2] && gaps[2] > gaps[3], "{gaps:?}");
        assert!(gaps[4].abs_diff(100) < 5, "{gaps:?}");
    }

    #[test]
    fn any_quantiles_make_a_prior() {
        for (tenth, median) in [(0, 0), (0, 1), (1, 1), (5, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            let prior = Prior::new(Nanos(tenth), Nanos(median));
            assert!((0.25..=1.0).contains(&prior.shape), "{prior:?}");
            assert!(prior.gap(Nanos(1000), 1) > Nanos(0), "{prior:?}");
        }
    }
}
