//! Random updates of a table, as HPC Challenge's RandomAccess makes them: giga-updates per second.
//!
//! An update is `word ^= random`. XOR is its own inverse and does not depend on order, so the XOR
//! of the whole table shows whether any update was lost.

use anyhow::ensure;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::{Progress, Work};

/// Updates of a step.
const STEP: u64 = 1 << 16;
const WORDS_PER_MIB: u64 = (1 << 20) / 8;

/// Where updates go: a share of the table, in one block, takes a share of them. Both are 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// Of the table.
    pub hot_share: f64,
    /// Of the updates. The rest goes to the whole table.
    pub access_share: f64,
}

/// See the module.
#[derive(Debug)]
pub struct Gups {
    table: Vec<u64>,
    rng: Pcg64Mcg,
    /// The first word of the hot block, and its words.
    hot: (u64, u64),
    /// An update is hot if 16 random bits are below this.
    hot_below: u64,
    /// What the XOR of all words must be.
    sum: u64,
}

impl Gups {
    /// A table of `mib` MiB.
    ///
    /// # Errors
    /// When a share is none, or there is no table.
    pub fn new(mib: u32, skew: Skew, seed: u64) -> anyhow::Result<Gups> {
        ensure!(mib > 0, "--mib must be at least 1");
        for (name, share) in [("hot", skew.hot_share), ("access", skew.access_share)] {
            ensure!((0.0..=1.0).contains(&share), "--{name}-share {share} is not between 0 and 1");
        }
        let words = u64::from(mib) * WORDS_PER_MIB;
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let hot = ((words as f64 * skew.hot_share) as u64).clamp(1, words);
        let start = below(rng.next_u64() as u32, words - hot + 1);
        Ok(Gups {
            table: (0..words).collect(),
            rng,
            hot: (start, hot),
            hot_below: (skew.access_share * 65_536.0) as u64,
            sum: (0..words).fold(0, |sum, word| sum ^ word),
        })
    }
}

/// A number below `end`, which is at most 2^32, from 32 random bits (Lemire's multiplication).
fn below(random: u32, end: u64) -> u64 {
    (u64::from(random) * end) >> 32
}

impl Work for Gups {
    fn step(&mut self, progress: &Progress) {
        let words = self.table.len() as u64;
        for _ in 0..STEP {
            let random = self.rng.next_u64();
            let (start, end) = if random >> 48 < self.hot_below { self.hot } else { (0, words) };
            self.table[(start + below(random as u32, end)) as usize] ^= random;
            self.sum ^= random;
        }
        progress.add(STEP);
    }

    fn check(&self) -> anyhow::Result<()> {
        let found = self.table.iter().fold(0, |sum, word| sum ^ word);
        ensure!(found == self.sum, "the table's XOR is {found:#x} instead of {:#x}", self.sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_update_is_found_and_the_hot_block_takes_its_share() {
        let mut work = Gups::new(2, Skew { hot_share: 0.25, access_share: 0.75 }, 1).unwrap();
        let before = work.table.clone();
        for _ in 0..8 {
            work.step(&Progress::default());
        }
        work.check().unwrap();
        // A word of the hot block has 6 updates and one elsewhere half an update, in the mean.
        let changed = |range: std::ops::Range<usize>| {
            let len = range.len() as f64;
            range.filter(|&word| work.table[word] != before[word]).count() as f64 / len
        };
        let (start, words) = (work.hot.0 as usize, work.hot.1 as usize);
        assert!(changed(start..start + words) > 0.99);
        let rest = [changed(0..start), changed(start + words..before.len())];
        assert!(
            rest.iter().filter(|share| !share.is_nan()).all(|share| (0.3..0.5).contains(share)),
            "{rest:?}"
        );

        work.table[12345] = before[12345] ^ 1;
        assert!(work.check().is_err());
    }

    #[test]
    fn refuses_what_is_no_share() {
        assert!(Gups::new(1, Skew { hot_share: 1.5, access_share: 0.5 }, 1).is_err());
        assert!(Gups::new(0, Skew { hot_share: 0.5, access_share: 0.5 }, 1).is_err());
        Gups::new(1, Skew { hot_share: 1.0, access_share: 0.0 }, 1).unwrap().step(&Progress::default());
    }
}
