//! Zipf-distributed ranks: rank k comes with a probability in proportion to k^-s.
//!
//! Rejection-inversion (W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996): the area under x^-s is inverted, and
//! the rare point that falls between that curve and the steps of the distribution is drawn again.
//! No tables, and about one draw per rank.

use rand_pcg::rand_core::Rng;

/// A distribution over the ranks 1 to `ranks`.
#[derive(Clone, Debug)]
pub struct Zipf {
    ranks: f64,
    exponent: f64,
    /// Area up to the left end of rank 1, and up to the right end of the last rank.
    area: (f64, f64),
    /// A rank at most this much above the inverted point is always right.
    sure: f64,
}

impl Zipf {
    /// Ranks from 1 to `ranks`; `exponent` 0 makes all equally likely, larger ones favour the first
    /// ranks.
    ///
    /// # Errors
    /// Without ranks, or with an exponent that is negative or not finite.
    pub fn new(ranks: u32, exponent: f64) -> anyhow::Result<Zipf> {
        anyhow::ensure!(ranks >= 1, "a zipf distribution needs at least one rank");
        anyhow::ensure!(
            exponent >= 0.0 && exponent.is_finite(),
            "a zipf exponent of {exponent} is not 0 or more"
        );
        let mut zipf = Zipf { ranks: f64::from(ranks), exponent, area: (0.0, 0.0), sure: 0.0 };
        zipf.area = (zipf.integral(1.5) - 1.0, zipf.integral(zipf.ranks + 0.5));
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        Ok(zipf)
    }

    /// Draws a rank.
    pub fn sample(&self, rng: &mut impl Rng) -> u32 {
        loop {
            // 53 random bits make every double between 0 and 1 that is a multiple of 2^-53.
            let uniform = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let area = self.area.1 + uniform * (self.area.0 - self.area.1);
            let point = self.inverse(area);
            let rank = point.round().clamp(1.0, self.ranks);
            if rank - point <= self.sure || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u32;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The area under the weight from 1 to `x`. For an exponent near 1 the power's difference loses
    /// all digits: ln_1p and exp_m1 keep them, and the limit is the logarithm.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        let log = x.ln();
        if (power * log).abs() < 1e-8 { log } else { (power * log).exp_m1() / power }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if (power * area).abs() < 1e-8 {
            return area.exp();
        }
        // Rounding may carry the argument just past -1.
        ((power * area).max(-1.0).ln_1p() / power).exp()
    }
}

#[cfg(test)]
mod tests {
    use rand_distr::Distribution;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::SeedableRng;

    use super::*;

    const DRAWS: u32 = 400_000;

    fn histogram(ranks: u32, mut draw: impl FnMut() -> u32) -> Vec<f64> {
        let mut counts = vec![0.0; ranks as usize];
        for _ in 0..DRAWS {
            counts[draw() as usize - 1] += 1.0;
        }
        counts
    }

    /// Pearson's statistic over bins that each expect at least 50 draws, and its degrees of
    /// freedom.
    fn chi_squared(counts: &[f64], expected: &[f64]) -> (f64, f64) {
        let (mut sum, mut bins, mut seen, mut wanted) = (0.0, 0.0, 0.0, 0.0);
        for (&count, &expect) in counts.iter().zip(expected) {
            seen += count;
            wanted += expect;
            if wanted >= 50.0 {
                sum += (seen - wanted) * (seen - wanted) / wanted;
                bins += 1.0;
                (seen, wanted) = (0.0, 0.0);
            }
        }
        (sum, bins - 1.0)
    }

    #[test]
    fn frequencies_are_those_of_the_formula_and_of_rand_distr() {
        for (ranks, exponent) in [(1000, 0.99), (1000, 1.0), (50, 2.0), (1000, 0.5), (100, 0.0), (2, 1.2)] {
            let weights: Vec<f64> = (1..=ranks).map(|rank| f64::from(rank).powf(-exponent)).collect();
            let all: f64 = weights.iter().sum();
            let expected: Vec<f64> = weights.iter().map(|weight| weight / all * f64::from(DRAWS)).collect();
            let zipf = Zipf::new(ranks, exponent).unwrap();
            let oracle = rand_distr::Zipf::new(f64::from(ranks), exponent).unwrap();
            let mut rng = Pcg64Mcg::seed_from_u64(1);
            let ours = histogram(ranks, || zipf.sample(&mut rng));
            let theirs = histogram(ranks, || oracle.sample(&mut rng) as u32);
            for (who, counts) in [("ours", ours), ("rand_distr", theirs)] {
                let (sum, freedom) = chi_squared(&counts, &expected);
                // Five standard deviations above the mean of the statistic.
                let limit = freedom + 5.0 * (2.0 * freedom).sqrt();
                assert!(sum < limit, "{who}: exponent {exponent}, {ranks} ranks: {sum} > {limit}, seed 1");
            }
        }
    }

    #[test]
    fn golden() {
        let zipf = Zipf::new(1_000_000, 0.99).unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let drawn: Vec<u32> = (0..8).map(|_| zipf.sample(&mut rng)).collect();
        assert_eq!(drawn, [60, 1354, 24693, 2, 18419, 51488, 52781, 4071]);
    }

    #[test]
    fn edges() {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let one = Zipf::new(1, 0.99).unwrap();
        assert!((0..1000).all(|_| one.sample(&mut rng) == 1));
        let steep = Zipf::new(u32::MAX, 30.0).unwrap();
        assert!((0..1000).all(|_| steep.sample(&mut rng) == 1));
        let even = Zipf::new(u32::MAX, 0.0).unwrap();
        assert!((0..1000).any(|_| even.sample(&mut rng) > u32::MAX / 2));
        assert!(Zipf::new(0, 1.0).is_err());
        assert!(Zipf::new(9, -0.1).is_err());
        assert!(Zipf::new(9, f64::NAN).is_err());
    }
}
