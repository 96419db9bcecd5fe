//! Amounts that are read from time to time.

use std::collections::BTreeMap;

use super::span::BINS;

/// Names whose amounts are kept.
const LEVELS_MAX: usize = 64;

/// An amount over time, as it was last read in each interval.
#[derive(Clone, Debug)]
pub struct Level(Vec<Option<u64>>);

impl Level {
    /// The amounts, by interval; `None` before it was first read. Where it was not read, it is as
    /// it was.
    pub fn values(&self) -> Vec<Option<u64>> {
        let known = |before: &mut Option<u64>, now: &Option<u64>| {
            *before = now.or(*before);
            Some(*before)
        };
        self.0.iter().scan(None, known).collect()
    }

    /// What it was when it was last read.
    pub fn last(&self) -> Option<u64> {
        self.0.iter().rev().copied().flatten().next()
    }

    /// What it was when it was first read, about.
    pub fn first(&self) -> Option<u64> {
        self.0.iter().copied().flatten().next()
    }
}

/// Amounts by name.
#[derive(Clone, Debug)]
pub struct Levels<K: Ord>(BTreeMap<K, Level>);

impl<K: Ord> Default for Levels<K> {
    fn default() -> Levels<K> {
        Levels(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Levels<K> {
    /// Notes what was read. Returns whether it is kept.
    pub fn set(&mut self, name: K, bin: usize, amount: u64) -> bool {
        if self.0.len() >= LEVELS_MAX && !self.0.contains_key(&name) {
            return false;
        }
        let level = self.0.entry(name).or_insert_with(|| Level(vec![None; BINS]));
        level.0[bin.min(BINS - 1)] = Some(amount);
        true
    }

    /// The amount of a name.
    pub fn of(&self, name: K) -> Option<&Level> {
        self.0.get(&name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (K, &Level)> {
        self.0.iter().map(|(name, level)| (*name, level))
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_is_as_it_was_and_before_that_unknown() {
        let mut levels = Levels::default();
        levels.set('a', 2, 7);
        levels.set('a', 2, 8);
        levels.set('a', 5, 9);
        let level = levels.of('a').unwrap();
        assert_eq!(level.values()[..7], [None, None, Some(8), Some(8), Some(8), Some(9), Some(9)]);
        assert_eq!((level.values().len(), level.first(), level.last()), (BINS, Some(8), Some(9)));
    }

    #[test]
    fn there_is_an_end_to_the_names() {
        let mut levels = Levels::default();
        let kept = (0..1000u16).filter(|name| levels.set(*name, 0, 1)).count();
        assert!(kept == LEVELS_MAX && levels.set(0, 1, 2) && levels.iter().count() == LEVELS_MAX);
    }
}
