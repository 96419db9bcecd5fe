//! A hasher with a fixed seed, so that equal inputs give equal runs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Multiplies and folds (the finaliser of SplitMix64, Steele et al., OOPSLA 2014). Page numbers of
/// one process differ in few bits; the fold carries them into the high bits that the table looks at
/// first.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

impl FixedHasher {
    fn mix(&mut self, word: u64) {
        let mut z = self.0.rotate_left(32) ^ word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    }
}

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 31)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }
}

/// A map whose iteration order depends only on its history.
pub type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<FixedHasher>>;

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::units::{Pid, VirtPage};

    #[test]
    fn neighbours_spread_over_the_table() {
        let build = BuildHasherDefault::<FixedHasher>::default();
        let mut buckets = [0u32; 256];
        for vpn in 0..65_536 {
            let hash = build.hash_one(VirtPage { pid: Pid(1), vpn: 0x7f00_0000_0000 + vpn });
            buckets[(hash >> 56) as usize] += 1;
        }
        // 256 a bucket on average; a fair hash strays by a few times its root.
        assert!(buckets.iter().all(|n| (176..=336).contains(n)), "{buckets:?}");
    }
}
