//! The bitmap of marked pages, by position, from which one can be picked at random.

use std::ops::Range;

use thermocline_mem::{Arena, ArenaError};

use crate::random::Random;

/// log2 of the positions whose marks are counted together.
const BLOCK_SHIFT: u32 = 12;
const BLOCK: usize = 1 << BLOCK_SHIFT;
/// Random tries before the marks are enumerated: cheap while at least one page in sixty-four is
/// marked.
const TRIES: usize = 64;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Marks {
    words: Arena<u64>,
    /// Marks in each block.
    blocks: Vec<u16>,
}

impl Marks {
    pub(super) fn new(positions: usize) -> Result<Marks, ArenaError> {
        let words_len = positions.div_ceil(64);
        let mut words = Arena::reserve(words_len)?;
        words.grow(words_len)?;
        Ok(Marks { words, blocks: vec![0; positions.div_ceil(BLOCK)] })
    }

    #[inline]
    pub(super) fn set(&mut self, at: usize) {
        self.words[at / 64] |= 1 << (at % 64);
        self.blocks[at >> BLOCK_SHIFT] += 1;
    }

    #[inline]
    pub(super) fn clear(&mut self, at: usize) {
        self.words[at / 64] &= !(1 << (at % 64));
        self.blocks[at >> BLOCK_SHIFT] -= 1;
    }

    #[inline]
    fn get(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 != 0
    }

    /// One of the `marked` marks in `range`, each with the same chance.
    pub(super) fn pick(&self, range: Range<usize>, marked: u32, random: &mut Random) -> Option<usize> {
        if marked == 0 {
            return None;
        }
        let size = range.len() as u64;
        if u64::from(marked) * TRIES as u64 >= size {
            for _ in 0..TRIES {
                let at = range.start + random.below(size) as usize;
                if self.get(at) {
                    return Some(at);
                }
            }
        }
        self.nth(range, random.below(u64::from(marked)) as u32)
    }

    /// The mark in `range` that has `n` marks before it.
    fn nth(&self, range: Range<usize>, n: u32) -> Option<usize> {
        let mut left = n;
        let mut at = range.start;
        while at < range.end {
            if at.is_multiple_of(BLOCK) && at + BLOCK <= range.end {
                let inside = u32::from(self.blocks[at >> BLOCK_SHIFT]);
                if left >= inside {
                    left -= inside;
                    at += BLOCK;
                    continue;
                }
            }
            let end = (at / 64 * 64 + 64).min(range.end);
            let word = self.words[at / 64] >> (at % 64) & (u64::MAX >> (64 - (end - at)));
            let inside = word.count_ones();
            if left < inside {
                let mut rest = word;
                for _ in 0..left {
                    rest &= rest - 1;
                }
                return Some(at + rest.trailing_zeros() as usize);
            }
            left -= inside;
            at = end;
        }
        None
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.words.committed_bytes() + self.blocks.len() * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn the_nth_mark_of_any_range() {
        let mut random = Random::new(3, Stream::Models);
        let mut marks = Marks::new(50_000).unwrap();
        let mut all = Vec::new();
        for at in 0..50_000 {
            if random.chance(if at < 20_000 { 0.9 } else { 0.003 }) {
                marks.set(at);
                all.push(at);
            }
        }
        for range in [0..50_000, 1..64, 63..65, 4095..8193, 4096..8192, 19_999..50_000, 30_000..30_001] {
            let inside: Vec<usize> = all.iter().copied().filter(|at| range.contains(at)).collect();
            for (n, at) in inside.iter().enumerate() {
                assert_eq!(marks.nth(range.clone(), n as u32), Some(*at));
            }
            assert_eq!(marks.nth(range.clone(), inside.len() as u32), None);
        }
    }

    #[test]
    fn every_mark_is_picked_as_often() {
        for density in [0.5, 0.002] {
            let mut random = Random::new(5, Stream::Models);
            let mut marks = Marks::new(20_000).unwrap();
            let all: Vec<usize> = (100..15_000).filter(|_| random.chance(density)).collect();
            all.iter().for_each(|at| marks.set(*at));
            let mut picked = vec![0u32; 20_000];
            let rounds = all.len() as u32 * 100;
            for _ in 0..rounds {
                let at = marks.pick(50..16_000, all.len() as u32, &mut random).unwrap();
                picked[at] += 1;
            }
            let mut chi2 = 0.0;
            for at in &all {
                chi2 += (f64::from(picked[*at]) - 100.0).powi(2) / 100.0;
            }
            assert_eq!(picked.iter().sum::<u32>(), rounds);
            let freedom = all.len() as f64 - 1.0;
            assert!((chi2 - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "{chi2} for {freedom}");
        }
    }
}
