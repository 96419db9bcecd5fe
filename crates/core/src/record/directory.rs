//! Maps a section of frames to its slots.

use crate::units::Pfn;

/// log2 of the frames in a section: 128 MiB, the step in which Linux adds and removes memory on
/// x86-64.
pub(super) const SECTION_SHIFT: u32 = 15;
/// Frames in a section.
pub(super) const SECTION_FRAMES: usize = 1 << SECTION_SHIFT;
/// Frame after the last that can have a record: 4 PiB of physical addresses, the most that x86-64
/// can have.
pub(super) const PFN_END: u64 = 1 << 40;

const LEAF_SHIFT: u32 = 11;
const LEAF_SECTIONS: usize = 1 << LEAF_SHIFT;
const LEAVES: usize = (PFN_END >> (SECTION_SHIFT + LEAF_SHIFT)) as usize;

/// A section that has slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    /// Index of its first slot.
    pub(super) first: usize,
    /// The tick that its stamps count from. It is kept beside `first`, so that both come with one
    /// cache line.
    pub(super) base: u64,
}

/// A section without slots. Every tick is below its base and so, modulo 2^64, far beyond it: one
/// test finds sections without slots, accesses that need a later base and accesses that are too
/// early for their base.
const NO_SECTION: Section = Section { first: 0, base: 1 << 62 };

impl Section {
    pub(super) fn exists(self) -> bool {
        self.base != NO_SECTION.base
    }
}

type Leaf = [Section; LEAF_SECTIONS];

/// Two levels: a root of 128 KiB, and 32 KiB for each 256 GiB of physical addresses in which any
/// frame has a record.
#[derive(Debug)]
pub(super) struct Directory {
    root: Vec<Option<Box<Leaf>>>,
}

impl Directory {
    pub(super) fn new() -> Directory {
        Directory { root: (0..LEAVES).map(|_| None).collect() }
    }

    /// The section of `pfn`; `NO_SECTION` if it has no slots.
    #[inline(always)]
    pub(super) fn get(&self, pfn: Pfn) -> Section {
        let (leaf, entry) = position(pfn);
        match self.root.get(leaf) {
            Some(Some(leaf)) => leaf[entry],
            _ => NO_SECTION,
        }
    }

    /// Enters or changes the section of `pfn`, which must be below [`PFN_END`].
    pub(super) fn insert(&mut self, pfn: Pfn, section: Section) {
        let (leaf, entry) = position(pfn);
        if let Some(leaf) = self.root.get_mut(leaf) {
            leaf.get_or_insert_with(|| Box::new([NO_SECTION; LEAF_SECTIONS]))[entry] = section;
        }
    }

    /// Takes the section of `pfn` out; its leaf is freed with the last section in it.
    pub(super) fn remove(&mut self, pfn: Pfn) {
        let (leaf, entry) = position(pfn);
        if let Some(place) = self.root.get_mut(leaf)
            && let Some(leaf) = place
        {
            leaf[entry] = NO_SECTION;
            if !leaf.iter().any(|section| section.exists()) {
                *place = None;
            }
        }
    }

    /// First frame and first slot of every section that holds a frame of `[start, end)`, ascending.
    pub(super) fn range(&self, start: Pfn, end: Pfn) -> Vec<(Pfn, usize)> {
        let mut found = Vec::new();
        let mut pfn = start.0 & !(SECTION_FRAMES as u64 - 1);
        while pfn < end.0.min(PFN_END) {
            let (leaf, entry) = position(Pfn(pfn));
            let frames = match &self.root[leaf] {
                // An empty leaf is one step, so any range takes a bounded number of steps.
                None => (LEAF_SECTIONS - entry) * SECTION_FRAMES,
                Some(leaf) => {
                    if leaf[entry].exists() {
                        found.push((Pfn(pfn), leaf[entry].first));
                    }
                    SECTION_FRAMES
                }
            };
            pfn += frames as u64;
        }
        found
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.root.len() * size_of::<Option<Box<Leaf>>>()
            + self.root.iter().flatten().count() * size_of::<Leaf>()
    }
}

/// Leaf of a frame's section, and the section's entry in it.
#[inline(always)]
const fn position(pfn: Pfn) -> (usize, usize) {
    let section = (pfn.0 >> SECTION_SHIFT) as usize;
    (section >> LEAF_SHIFT, section % LEAF_SECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB_256: u64 = 1 << 26;

    fn at(first: usize) -> Section {
        Section { first, base: first as u64 + 1 }
    }

    #[test]
    fn finds_what_was_entered_and_nothing_else() {
        let mut directory = Directory::new();
        let last = Pfn(PFN_END - 1);
        directory.insert(Pfn(0), at(0));
        directory.insert(Pfn(32768 * 3 + 5), at(7));
        directory.insert(last, at(1));
        assert_eq!(directory.get(Pfn(32767)), at(0));
        assert_eq!(directory.get(Pfn(32768)), NO_SECTION);
        assert_eq!(directory.get(Pfn(32768 * 3)), at(7));
        assert_eq!(directory.get(last), at(1));
        assert_eq!(directory.get(Pfn(PFN_END)), NO_SECTION);
        assert_eq!(directory.get(Pfn(u64::MAX)), NO_SECTION);
        let all = directory.range(Pfn(0), Pfn(u64::MAX));
        assert_eq!(all, [(Pfn(0), 0), (Pfn(32768 * 3), 7), (Pfn(PFN_END - 32768), 1)]);
        assert_eq!(directory.range(Pfn(1), Pfn(2)), [(Pfn(0), 0)]);
        assert_eq!(directory.range(Pfn(32768), Pfn(32768)), []);
        assert_eq!(directory.range(Pfn(u64::MAX), Pfn(u64::MAX)), []);
    }

    #[test]
    fn stays_small_however_far_apart_the_frames() {
        let mut directory = Directory::new();
        assert_eq!(directory.memory_bytes(), 128 << 10);
        for i in 0..4 {
            directory.insert(Pfn(i * 1000 * GIB_256), at(i as usize));
        }
        assert_eq!(directory.memory_bytes(), (128 + 4 * 32) << 10);
        for i in 0..4 {
            directory.remove(Pfn(i * 1000 * GIB_256));
        }
        assert_eq!(directory.memory_bytes(), 128 << 10);
        directory.remove(Pfn(u64::MAX));
    }
}
