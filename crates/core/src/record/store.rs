//! Slots by section, and the loop over a batch.

use thermocline_mem::{Arena, ArenaError, prefetch};

use crate::access::Access;
use crate::record::directory::{Directory, PFN_END, SECTION_FRAMES, SECTION_SHIFT};
use crate::record::layout::{Layout, pack_node, unpack_node};
use crate::rule::Record;
use crate::units::{Nanos, NodeId, Pfn};

/// Accesses between asking for a slot's cache line and using it: enough to hide the latency of DRAM, few enough that
/// the lines asked for stay in the nearest cache.
const AHEAD: usize = 32;
/// The slot of an access that has none; no arena is that long.
const NOWHERE: usize = usize::MAX;
/// log2 of the frames that share one remembered node: 2 MiB.
const BLOCK_SHIFT: u32 = 9;
const SECTION_BLOCKS: usize = SECTION_FRAMES >> BLOCK_SHIFT;

/// All slots of one layout.
#[derive(Debug)]
pub(super) struct Store<L: Layout> {
    layout: L,
    directory: Directory,
    /// Slots of the sections, in the order in which the sections appeared.
    slots: Arena<L::Slot>,
    /// By section: the tick that its stamps count from.
    bases: Vec<u64>,
    /// By 2 MiB block: one more than the node that accessed it last; empty where nodes are not kept beside the slots.
    nodes: Arena<u16>,
    nodes_beside: bool,
    /// Sections whose memory went offline; the next ones to be given out.
    free: Vec<u32>,
    sections_max: usize,
    top_tier: NodeSet,
    unrecorded: u64,
}

impl<L: Layout> Store<L> {
    pub(super) fn new(layout: L, nodes_beside: bool, sections_max: usize) -> Result<Store<L>, ArenaError> {
        let nodes_beside = nodes_beside && !L::NODE;
        Ok(Store {
            layout,
            directory: Directory::new(),
            slots: Arena::reserve(sections_max.saturating_mul(SECTION_FRAMES))?,
            bases: Vec::new(),
            nodes: Arena::reserve(if nodes_beside { sections_max * SECTION_BLOCKS } else { 0 })?,
            nodes_beside,
            free: Vec::new(),
            sections_max,
            top_tier: NodeSet::default(),
            unrecorded: 0,
        })
    }

    pub(super) fn observe(&mut self, batch: &[Access], mut each: impl FnMut(&Access, &mut Record)) {
        let mut ring = [NOWHERE; AHEAD];
        for (place, access) in ring.iter_mut().zip(batch) {
            *place = self.ask(access);
        }
        for (i, access) in batch.iter().enumerate() {
            let place = &mut ring[i % AHEAD];
            let at = *place;
            if let Some(later) = batch.get(i + AHEAD) {
                *place = self.ask(later);
            }
            self.step(at, access, &mut each);
        }
    }

    /// Finds the slot of an access and asks for its cache line.
    #[inline(always)]
    fn ask(&mut self, access: &Access) -> usize {
        let Some(pfn) = access.pfn else { return NOWHERE };
        if L::LOWER_TIERS_ONLY && self.top_tier.contains(access.node) {
            return NOWHERE;
        }
        let at = match self.directory.get(pfn) {
            Some(section) => slot(section, pfn),
            None => self.allocate(pfn, access.time),
        };
        prefetch(&self.slots, at);
        if !L::NODE && self.nodes_beside {
            prefetch(&self.nodes, at >> BLOCK_SHIFT);
        }
        at
    }

    #[inline(always)]
    fn step(&mut self, at: usize, access: &Access, each: &mut impl FnMut(&Access, &mut Record)) {
        let base = self.bases.get(at >> SECTION_SHIFT).copied().unwrap_or(0);
        let mut stamp = self.layout.stamp(access.time, base);
        if stamp > L::STAMP_MAX && at != NOWHERE {
            stamp = self.rebase(at >> SECTION_SHIFT, access.time);
        }
        let Some(slot) = self.slots.get_mut(at) else {
            return each(access, &mut Record::default());
        };
        let old = *slot;
        let mut record = self.layout.decode(old, stamp);
        let mut beside = if L::NODE { None } else { self.nodes.get_mut(at >> BLOCK_SHIFT) };
        if let Some(node) = &beside {
            record.node = unpack_node(u32::from(**node));
        }
        each(access, &mut record);
        record.node = access.accessor.or(record.node);
        *slot = self.layout.encode(old, &record, stamp);
        if let Some(node) = &mut beside {
            let packed = u16::try_from(pack_node(record.node)).unwrap_or(0);
            // A line that is only read stays shared and clean.
            if **node != packed {
                **node = packed;
            }
        }
    }

    /// Gives the section of `pfn` slots and returns the one of `pfn`; [`NOWHERE`] where there is no more room.
    #[cold]
    fn allocate(&mut self, pfn: Pfn, time: Nanos) -> usize {
        let section = if pfn.0 >= PFN_END { None } else { self.take_section() };
        let Some(section) = section else {
            self.unrecorded += 1;
            return NOWHERE;
        };
        self.bases[section] = self.layout.base(time);
        self.directory.insert(pfn, section as u32);
        slot(section, pfn)
    }

    /// A section of zeroed slots, from those that were given back or at the end.
    fn take_section(&mut self) -> Option<usize> {
        if let Some(section) = self.free.pop() {
            return Some(section as usize);
        }
        let section = self.bases.len();
        if section >= self.sections_max {
            return None;
        }
        self.slots.grow((section + 1) * SECTION_FRAMES).ok()?;
        if self.nodes_beside {
            self.nodes.grow((section + 1) * SECTION_BLOCKS).ok()?;
        }
        self.bases.push(0);
        Some(section)
    }

    /// Moves the section to a base that suits `time`; returns the stamp of `time` there.
    #[cold]
    fn rebase(&mut self, section: usize, time: Nanos) -> u64 {
        let base = self.layout.base(time);
        let first = section << SECTION_SHIFT;
        L::rebase(&mut self.slots[first..first + SECTION_FRAMES], base.saturating_sub(self.bases[section]));
        self.bases[section] = base;
        self.layout.stamp(time, base)
    }

    pub(super) fn get(&self, pfn: Pfn, now: Nanos) -> Option<Record> {
        let section = self.directory.get(pfn)?;
        let at = slot(section, pfn);
        let bits = self.slots[at];
        if bits == L::Slot::default() {
            return None;
        }
        let mut record = self.layout.decode(bits, self.layout.stamp(now, self.bases[section]));
        if let Some(&node) = self.nodes.get(at >> BLOCK_SHIFT) {
            record.node = unpack_node(node.into());
        }
        Some(record)
    }

    pub(super) fn set_ready(&mut self, pfn: Pfn, ready: bool) -> bool {
        let Some(section) = self.directory.get(pfn) else { return false };
        let slot = &mut self.slots[slot(section, pfn)];
        let recorded = *slot != L::Slot::default();
        if recorded {
            *slot = L::with_ready(*slot, ready);
        }
        recorded
    }

    pub(super) fn clear(&mut self, start: Pfn, end: Pfn) {
        for (first, section) in self.directory.range(start, end) {
            let at = section << SECTION_SHIFT;
            let from = start.0.saturating_sub(first.0) as usize;
            let to = (end.0 - first.0).min(SECTION_FRAMES as u64) as usize;
            if from < to {
                self.slots[at + from..at + to].fill(L::Slot::default());
            }
        }
    }

    pub(super) fn offline(&mut self, start: Pfn, end: Pfn) {
        for (first, section) in self.directory.range(start, end) {
            if start <= first && first.0 + SECTION_FRAMES as u64 <= end.0 {
                self.directory.remove(first);
                self.slots.release(section << SECTION_SHIFT..(section + 1) << SECTION_SHIFT);
                if self.nodes_beside {
                    self.nodes.release(section * SECTION_BLOCKS..(section + 1) * SECTION_BLOCKS);
                }
                self.free.push(section as u32);
            }
        }
        self.clear(start, end);
    }

    pub(super) fn set_top_tier(&mut self, nodes: impl Iterator<Item = NodeId>) {
        self.top_tier = NodeSet::default();
        nodes.for_each(|node| self.top_tier.insert(node));
    }

    pub(super) fn resolution(&self) -> Nanos {
        self.layout.resolution()
    }

    pub(super) fn keeps_node(&self) -> bool {
        L::NODE || self.nodes_beside
    }

    pub(super) fn sections(&self) -> usize {
        self.bases.len() - self.free.len()
    }

    pub(super) fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let returned = self.free.len() * SECTION_FRAMES * size_of::<L::Slot>();
        self.slots.committed_bytes() - returned
            + self.nodes.committed_bytes()
            + self.directory.memory_bytes()
            + self.bases.capacity() * size_of::<u64>()
            + self.free.capacity() * size_of::<u32>()
    }
}

#[inline(always)]
const fn slot(section: usize, pfn: Pfn) -> usize {
    (section << SECTION_SHIFT) | (pfn.0 as usize % SECTION_FRAMES)
}

/// A set of nodes, as many as Linux can have (CONFIG_NODES_SHIFT is at most 10).
#[derive(Clone, Copy, Debug, Default)]
struct NodeSet([u64; 16]);

impl NodeSet {
    fn insert(&mut self, node: NodeId) {
        if let Some(word) = self.0.get_mut(usize::from(node.0) / 64) {
            *word |= 1 << (node.0 % 64);
        }
    }

    fn contains(&self, node: NodeId) -> bool {
        self.0.get(usize::from(node.0) / 64).is_some_and(|word| word >> (node.0 % 64) & 1 != 0)
    }
}
