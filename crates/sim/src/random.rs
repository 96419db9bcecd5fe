//! Random numbers: one named generator with one stream per purpose, so that draws of one part never
//! shift those of another.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The purpose of a stream of random numbers; each use of a seed has separate streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Time and kind of the event mode's next event.
    Events,
    /// Accessed bits that are drawn when they are read.
    Accessed,
    /// What the kernel's and other managers' models decide at random.
    Models,
    /// The phases of a thread: the same in both modes, so that a pair of runs differs only in its
    /// accesses.
    Phases(u32),
    /// The accesses of a thread.
    Accesses(u32),
    /// The operations of a process that are tried for their time.
    Operations(u32),
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The stream of a seed for one purpose.
    pub fn new(seed: u64, stream: Stream) -> Random {
        let (kind, number) = match stream {
            Stream::Events => (1u64, 0),
            Stream::Accessed => (2, 0),
            Stream::Models => (3, 0),
            Stream::Phases(thread) => (4, thread),
            Stream::Accesses(thread) => (5, thread),
            Stream::Operations(process) => (6, process),
        };
        let purpose = (kind << 32) | u64::from(number);
        Random(Pcg64Mcg::seed_from_u64(mix(seed ^ mix(purpose))))
    }

    /// 64 random bits.
    #[inline(always)]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`; 0 where `end` is 0. The high half of a product: its bias is below
    /// 2^-32 for the ranges used here.
    #[inline(always)]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number in [0, 1).
    #[inline(always)]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// An exponential with mean 1.
    #[inline(always)]
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Whether [`exponential`](Random::exponential) is below `limit`: the same draw, mostly without
    /// its logarithm, since -ln(1 - u) is no less than u.
    #[inline(always)]
    pub fn exponential_below(&mut self, limit: f64) -> bool {
        let unit = self.unit();
        unit < limit && -(1.0 - unit).ln() < limit
    }

    /// True with this probability.
    #[inline(always)]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

/// The finaliser of splitmix64: it maps neighbouring numbers to unrelated ones.
pub const fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_seed_differ_and_repeat() {
        let first = |stream| Random::new(7, stream).bits();
        let all =
            [Stream::Events, Stream::Accessed, Stream::Phases(0), Stream::Phases(1), Stream::Accesses(0)];
        for (i, a) in all.iter().enumerate() {
            assert_eq!(first(*a), first(*a));
            for b in &all[..i] {
                assert_ne!(first(*a), first(*b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn draws_have_their_means() {
        let mut random = Random::new(11, Stream::Events);
        let n = 200_000;
        let (mut below, mut unit, mut exponential) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            below += random.below(10) as f64;
            unit += random.unit();
            exponential += random.exponential();
        }
        let n = f64::from(n);
        assert!((below / n - 4.5).abs() < 0.05 && (unit / n - 0.5).abs() < 0.005);
        assert!((exponential / n - 1.0).abs() < 0.02);
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn a_comparison_draws_what_the_value_would_have_been() {
        let (mut values, mut answers) = (Random::new(3, Stream::Accessed), Random::new(3, Stream::Accessed));
        for i in 0..100_000 {
            let limit = f64::from(i % 500) / 100.0;
            assert_eq!(answers.exponential_below(limit), values.exponential() < limit, "{limit}");
        }
        assert_eq!(values.bits(), answers.bits(), "as many draws");
    }
}
