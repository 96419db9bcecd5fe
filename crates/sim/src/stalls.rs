//! What stalls a program's threads for a time: hint faults, samples, scans.

use crate::random::Random;

/// Costs of stalls that are kept in a round.
const KEPT: usize = 256;
/// More stalls than this in an operation count with their mean.
const STALLS_MAX: f64 = 64.0;
/// 2^64 by the golden ratio: its multiples are spread evenly, whatever rhythm stalls come in.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Stalls of one kind since the last round.
#[derive(Debug, Default)]
pub struct Stalled {
    count: u64,
    ns: f64,
    /// The costs of a sample of them, each as probable as any other.
    kept: Vec<f64>,
}

impl Stalled {
    /// Counts one of `ns`.
    #[inline]
    pub fn note(&mut self, ns: f64) {
        self.count += 1;
        self.ns += ns;
        if self.kept.len() < KEPT {
            self.kept.push(ns);
            return;
        }
        // A place from 0 to the count: what has none in the sample is left out.
        let place = (u128::from(self.count.wrapping_mul(GOLDEN)) * u128::from(self.count)) >> 64;
        if let Some(kept) = self.kept.get_mut(place as usize) {
            *kept = ns;
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What they cost in all, in ns.
    pub fn ns(&self) -> f64 {
        self.ns
    }

    /// What an operation draws that meets `mean` of them on average, in ns.
    pub fn draw(&self, mean: f64, random: &mut Random) -> f64 {
        if mean > STALLS_MAX {
            return mean * self.ns / self.count as f64;
        }
        let (mut at, mut ns) = (random.exponential(), 0.0);
        while at < mean {
            ns += self.kept[random.below(self.kept.len() as u64) as usize];
            at += random.exponential();
        }
        ns
    }
}

/// What has stalled a program's threads since the last round.
#[derive(Debug, Default)]
pub struct Stalls {
    /// Hint faults and samples.
    pub short: Stalled,
    /// Scans.
    pub long: Stalled,
    /// Time by which accesses in general were slower, in ns.
    pub spread_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn every_kind_of_stall_is_drawn_as_often_as_it_occurs() {
        let mut stalled = Stalled::default();
        (0..100_000).for_each(|i| stalled.note(if i % 10 == 0 { 5000.0 } else { 1000.0 }));
        assert_eq!(stalled.kept.len(), KEPT);
        let mut random = Random::new(1, Stream::Operations(0));
        for mean in [0.01, 1.5, 100.0] {
            let drawn: f64 = (0..200_000).map(|_| stalled.draw(mean, &mut random)).sum::<f64>() / 200_000.0;
            assert!((drawn / mean / 1400.0 - 1.0).abs() < 0.15, "{mean}: {drawn}");
        }
    }
}
