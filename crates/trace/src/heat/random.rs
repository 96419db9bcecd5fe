//! Random numbers: the same generator as everywhere, so that equal evidence gives equal estimates.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// An exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }

    /// A normal with mean 0 and variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        (2.0 * self.exponential(1.0)).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A Poisson number with this mean; a rounded normal where the mean is large.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 50.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0) as u64;
        }
        let (mut number, mut left) = (0, mean - self.exponential(1.0));
        while left > 0.0 {
            number += 1;
            left -= self.exponential(1.0);
        }
        number
    }
}
