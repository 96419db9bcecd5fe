//! Positions: the pages of a process in the order of their cells.
//!
//! Patterns whose cells are ranges of addresses need no other order. Patterns that scatter similar
//! pages (such as the ranks of a zipf distribution over a hash table) number their pages by a
//! permutation that is computed in both directions, because a table of it would cost eight bytes
//! per page. Recorded ones need that table.

use std::sync::Arc;

use crate::random::mix;

/// How positions follow from pages.
#[derive(Clone, Debug)]
pub enum Layout {
    /// Position and page are the same.
    Identity,
    /// Pages are scattered at random over the positions.
    Shuffled(Shuffle),
    /// Each page has a position of its own.
    Listed(Listed),
}

impl Layout {
    /// The position of a page of the process.
    #[inline(always)]
    pub fn position(&self, page: u32) -> u32 {
        match self {
            Layout::Identity => page,
            Layout::Shuffled(shuffle) => shuffle.back(page),
            Layout::Listed(listed) => listed.positions[page as usize],
        }
    }

    /// Whether pages that follow each other have positions that do.
    #[inline(always)]
    pub fn keeps_order(&self) -> bool {
        matches!(self, Layout::Identity)
    }

    /// The page at a position.
    #[inline(always)]
    pub fn page(&self, position: u32) -> u32 {
        match self {
            Layout::Identity => position,
            Layout::Shuffled(shuffle) => shuffle.forth(position),
            Layout::Listed(listed) => listed.pages[position as usize],
        }
    }
}

/// Positions of pages, listed: eight bytes per page, for orders that follow no rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    positions: Arc<[u32]>,
    pages: Arc<[u32]>,
}

impl Listed {
    /// The position of each page; a permutation.
    pub fn new(positions: Vec<u32>) -> Listed {
        let mut pages = vec![0; positions.len()];
        for (page, position) in positions.iter().enumerate() {
            pages[*position as usize] = page as u32;
        }
        Listed { positions: positions.into(), pages: pages.into() }
    }
}

const ROUNDS: usize = 4;

/// A pseudorandom permutation of the numbers below some bound: a Feistel network over the next
/// power of four, applied until the result is below the bound (less than four steps on average).
#[derive(Clone, Debug)]
pub struct Shuffle {
    len: u32,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Shuffle {
    /// A permutation of `0..len` for each seed.
    pub fn new(len: u32, seed: u64) -> Shuffle {
        let bits = 32 - len.saturating_sub(1).leading_zeros();
        let mut keys = [0; ROUNDS];
        for (i, key) in keys.iter_mut().enumerate() {
            *key = mix(seed ^ mix(i as u64 + 1));
        }
        Shuffle { len, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// The image of `number`.
    #[inline]
    pub fn forth(&self, number: u32) -> u32 {
        self.walk(number, |this, n| this.rounds(n, this.keys.iter()))
    }

    /// The preimage of `number`.
    #[inline]
    pub fn back(&self, number: u32) -> u32 {
        // A Feistel network is inverted by itself with the halves swapped and the keys reversed.
        self.walk(number, |this, n| this.swap(this.rounds(this.swap(n), this.keys.iter().rev())))
    }

    #[inline(always)]
    fn walk(&self, number: u32, step: impl Fn(&Shuffle, u64) -> u64) -> u32 {
        let mut n = u64::from(number);
        loop {
            n = step(self, n);
            if n < u64::from(self.len) {
                return n as u32;
            }
        }
    }

    #[inline(always)]
    fn rounds<'a>(&self, n: u64, keys: impl Iterator<Item = &'a u64>) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (n >> self.half_bits, n & mask);
        for key in keys {
            (left, right) =
                (right, left ^ (((right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & mask));
        }
        (left << self.half_bits) | right
    }

    #[inline(always)]
    fn swap(&self, n: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        ((n & mask) << self.half_bits) | (n >> self.half_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_permutation_and_its_inverse() {
        for len in [1, 2, 3, 5, 64, 65, 1000, 4096, 100_003] {
            let shuffle = Shuffle::new(len, 17);
            let mut seen = vec![false; len as usize];
            for n in 0..len {
                let to = shuffle.forth(n);
                assert!(!std::mem::replace(&mut seen[to as usize], true), "{len}: {to} twice");
                assert_eq!(shuffle.back(to), n);
            }
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        let shuffle = Shuffle::new(100_000, 1);
        let near = (1..100_000).filter(|n| shuffle.forth(*n).abs_diff(shuffle.forth(n - 1)) < 100).count();
        // Two random positions are that near with a chance of 0.2 %.
        assert!((100..400).contains(&near), "{near}");
        assert_ne!(shuffle.forth(5), Shuffle::new(100_000, 2).forth(5));
    }
}
