//! From a section of frames to where its slots are.

use crate::units::Pfn;

/// log2 of the frames in a section: 128 MiB, the step in which Linux adds and removes memory on x86-64.
pub(super) const SECTION_SHIFT: u32 = 15;
/// Frames in a section.
pub(super) const SECTION_FRAMES: usize = 1 << SECTION_SHIFT;
/// Frame after the last that can have a record: 4 PiB of physical addresses, the most that x86-64 can have.
pub(super) const PFN_END: u64 = 1 << 40;

const LEAF_SHIFT: u32 = 12;
const LEAF_SECTIONS: usize = 1 << LEAF_SHIFT;
const LEAVES: usize = (PFN_END >> (SECTION_SHIFT + LEAF_SHIFT)) as usize;

/// One more than the index of each section's slots; 0 where it has none.
type Leaf = [u32; LEAF_SECTIONS];

/// Two levels: a root of 64 KiB, and 16 KiB for each 512 GiB of physical addresses in which anything has a record.
#[derive(Debug)]
pub(super) struct Directory {
    root: Vec<Option<Box<Leaf>>>,
}

impl Directory {
    pub(super) fn new() -> Directory {
        Directory { root: (0..LEAVES).map(|_| None).collect() }
    }

    /// Index of the section's slots.
    #[inline(always)]
    pub(super) fn get(&self, pfn: Pfn) -> Option<usize> {
        let section = pfn.0 >> SECTION_SHIFT;
        let leaf = self.root.get((section >> LEAF_SHIFT) as usize)?.as_deref()?;
        (leaf[section as usize % LEAF_SECTIONS] as usize).checked_sub(1)
    }

    /// Enters the section of `pfn`, which must be below [`PFN_END`].
    pub(super) fn insert(&mut self, pfn: Pfn, index: u32) {
        let section = pfn.0 >> SECTION_SHIFT;
        if let Some(leaf) = self.root.get_mut((section >> LEAF_SHIFT) as usize) {
            leaf.get_or_insert_with(|| Box::new([0; LEAF_SECTIONS]))[section as usize % LEAF_SECTIONS] =
                index + 1;
        }
    }

    /// Takes the section of `pfn` out; its leaf goes with the last section in it.
    pub(super) fn remove(&mut self, pfn: Pfn) {
        let section = pfn.0 >> SECTION_SHIFT;
        if let Some(entry) = self.root.get_mut((section >> LEAF_SHIFT) as usize)
            && let Some(leaf) = entry
        {
            leaf[section as usize % LEAF_SECTIONS] = 0;
            if leaf.iter().all(|&index| index == 0) {
                *entry = None;
            }
        }
    }

    /// First frame and index of every section that holds a frame of `[start, end)`, ascending.
    pub(super) fn range(&self, start: Pfn, end: Pfn) -> Vec<(Pfn, usize)> {
        let mut found = Vec::new();
        let first = start.0 >> SECTION_SHIFT;
        let last = end.0.min(PFN_END).div_ceil(SECTION_FRAMES as u64);
        let mut section = first;
        while section < last {
            match self.root.get((section >> LEAF_SHIFT) as usize).and_then(Option::as_deref) {
                // Empty leaves are skipped as a whole, so that any range costs at most one step a leaf.
                None => section = ((section >> LEAF_SHIFT) + 1) << LEAF_SHIFT,
                Some(leaf) => {
                    if let Some(index) = (leaf[section as usize % LEAF_SECTIONS] as usize).checked_sub(1) {
                        found.push((Pfn(section << SECTION_SHIFT), index));
                    }
                    section += 1;
                }
            }
        }
        found
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.root.len() * size_of::<Option<Box<Leaf>>>()
            + self.root.iter().flatten().count() * size_of::<Leaf>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB_512: u64 = 1 << 27;

    #[test]
    fn finds_what_was_entered_and_nothing_else() {
        let mut directory = Directory::new();
        let last = Pfn(PFN_END - 1);
        directory.insert(Pfn(0), 0);
        directory.insert(Pfn(32768 * 3 + 5), 7);
        directory.insert(last, 1);
        assert_eq!(directory.get(Pfn(32767)), Some(0));
        assert_eq!(directory.get(Pfn(32768)), None);
        assert_eq!(directory.get(Pfn(32768 * 3)), Some(7));
        assert_eq!(directory.get(last), Some(1));
        assert_eq!(directory.get(Pfn(PFN_END)), None);
        assert_eq!(directory.get(Pfn(u64::MAX)), None);
        let all = directory.range(Pfn(0), Pfn(u64::MAX));
        assert_eq!(all, [(Pfn(0), 0), (Pfn(32768 * 3), 7), (Pfn(PFN_END - 32768), 1)]);
        assert_eq!(directory.range(Pfn(1), Pfn(2)), [(Pfn(0), 0)]);
        assert_eq!(directory.range(Pfn(5), Pfn(5)), [(Pfn(0), 0)]);
        assert_eq!(directory.range(Pfn(32768), Pfn(32768)), []);
    }

    #[test]
    fn stays_small_however_far_apart_the_frames() {
        let mut directory = Directory::new();
        assert_eq!(directory.memory_bytes(), 64 << 10);
        for i in 0..4 {
            directory.insert(Pfn(i * 1000 * GIB_512), i as u32);
        }
        assert_eq!(directory.memory_bytes(), (64 + 4 * 16) << 10);
        for i in 0..4 {
            directory.remove(Pfn(i * 1000 * GIB_512));
        }
        assert_eq!(directory.memory_bytes(), 64 << 10);
        directory.remove(Pfn(u64::MAX));
    }
}
