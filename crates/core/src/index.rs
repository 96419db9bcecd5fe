//! An index of numbered things by the hash of a key that each of them knows itself: eight bytes a
//! place, so that a look-up costs one cache line where nothing is found, and one more to compare
//! the key.

use std::hash::{BuildHasher, BuildHasherDefault, Hash};

use thermocline_mem::prefetch;

use crate::hash::FixedHasher;

/// A place without an entry. No tag is that large.
const EMPTY: u64 = u64::MAX;
/// Places at least, while there are any.
const PLACES_MIN: usize = 64;

/// The hash of a key, as an index wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    /// Of a key.
    #[inline]
    pub(crate) fn of(key: impl Hash) -> Tag {
        let hash = BuildHasherDefault::<FixedHasher>::default().hash_one(key);
        Tag((hash >> 32) as u32 & !1)
    }
}

/// See the module's description. Places are probed one after the other, and at least half of them
/// are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Tag in the high half, number in the low half; a power of two of them, or none.
    places: Vec<u64>,
    len: usize,
}

impl Index {
    /// Entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<u64>()
    }

    /// Asks the CPU for the places where a tag would be found.
    #[inline]
    pub(crate) fn prefetch(&self, tag: Tag) {
        prefetch(&self.places, self.home(tag));
    }

    /// The number with this tag that `is` the right one.
    #[inline]
    pub(crate) fn find(&self, tag: Tag, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.place(tag, is).map(|at| self.places[at] as u32)
    }

    /// Enters a number, in place of the one with this tag that `is` the same thing; returns that.
    pub(crate) fn insert(&mut self, tag: Tag, number: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        if let Some(at) = self.place(tag, is) {
            return Some(std::mem::replace(&mut self.places[at], entry(tag, number)) as u32);
        }
        if (self.len + 1) * 2 > self.places.len() {
            self.grow();
        }
        self.put(entry(tag, number));
        self.len += 1;
        None
    }

    /// Takes the number with this tag out that `is` the right one; returns whether there is one.
    pub(crate) fn remove(&mut self, tag: Tag, is: impl Fn(u32) -> bool) -> bool {
        let Some(mut hole) = self.place(tag, is) else { return false };
        let mask = self.places.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.places[at];
            if entry == EMPTY {
                break;
            }
            // An entry fills the hole unless the search for it begins behind the hole.
            let home = self.home(Tag((entry >> 32) as u32));
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = entry;
                hole = at;
            }
        }
        self.places[hole] = EMPTY;
        self.len -= 1;
        true
    }

    /// Where the search for a tag begins: at its highest bits, as many as number the places.
    #[inline]
    fn home(&self, tag: Tag) -> usize {
        ((u64::from(tag.0) * self.places.len() as u64) >> 32) as usize
    }

    #[inline]
    fn place(&self, tag: Tag, is: impl Fn(u32) -> bool) -> Option<usize> {
        let mask = self.places.len().checked_sub(1)?;
        let mut at = self.home(tag);
        loop {
            let entry = self.places[at];
            if entry == EMPTY {
                return None;
            }
            if (entry >> 32) as u32 == tag.0 && is(entry as u32) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// Puts an entry into the first empty place from its home on.
    fn put(&mut self, entry: u64) {
        let mask = self.places.len() - 1;
        let mut at = self.home(Tag((entry >> 32) as u32));
        while self.places[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.places[at] = entry;
    }

    fn grow(&mut self) {
        let more = vec![EMPTY; (self.places.len() * 2).max(PLACES_MIN)];
        let old = std::mem::replace(&mut self.places, more);
        old.into_iter().filter(|entry| *entry != EMPTY).for_each(|entry| self.put(entry));
    }
}

const fn entry(tag: Tag, number: u32) -> u64 {
    (tag.0 as u64) << 32 | number as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few homes and few tags, so that entries are moved, and tags are shared.
        #[test]
        fn it_is_a_map_whatever_is_entered_and_taken_out(
            steps in proptest::collection::vec((0u32..40, 0u32..3, any::<bool>()), 1..400),
        ) {
            let mut index = Index::default();
            let mut model = BTreeMap::new();
            // A thing's number is its key and how often it was entered.
            let tag = |key: u32| Tag((key % 10) << 28 & !1);
            for (round, (key, _, enter)) in (0u32..).zip(steps) {
                let same = |number: u32| number % 64 == key;
                if enter {
                    let number = round * 64 + key;
                    prop_assert_eq!(index.insert(tag(key), number, same), model.insert(key, number));
                } else {
                    prop_assert_eq!(index.remove(tag(key), same), model.remove(&key).is_some());
                }
                prop_assert_eq!(index.len(), model.len());
                for key in 0..40 {
                    prop_assert_eq!(index.find(tag(key), |n| n % 64 == key), model.get(&key).copied());
                }
            }
        }
    }

    #[test]
    fn it_grows_and_finds_every_number() {
        let mut index = Index::default();
        assert_eq!(index.find(Tag::of(1u64), |_| true), None);
        index.prefetch(Tag::of(1u64));
        for n in 0..10_000u32 {
            assert_eq!(index.insert(Tag::of(u64::from(n)), n, |m| m == n), None);
        }
        assert!((0..10_000u32).all(|n| index.find(Tag::of(u64::from(n)), |m| m == n) == Some(n)));
        assert_eq!((index.len(), index.bytes()), (10_000, 8 << 15));
        assert!((0..10_000u32).all(|n| index.remove(Tag::of(u64::from(n)), |m| m == n)));
        assert_eq!(index.len(), 0);
        assert!(index.places.iter().all(|place| *place == EMPTY));
    }
}
