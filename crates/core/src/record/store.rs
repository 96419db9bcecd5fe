//! Slots by section, and the loop over a batch.

use thermocline_mem::{Arena, ArenaError, prefetch};

use crate::access::Access;
use crate::record::Record;
use crate::record::directory::{Directory, PFN_END, SECTION_FRAMES, Section};
use crate::record::layout::{Layout, unpack_node};
use crate::units::{Nanos, NodeId, Pfn};

/// Accesses whose slots are prefetched before the first of them is used: enough to hide the latency
/// of DRAM, few enough that the cache lines stay in the nearest cache.
const CHUNK: usize = 64;
/// log2 of the frames that share one remembered node: 2 MiB.
const BLOCK_SHIFT: u32 = 9;

/// All slots of one layout.
#[derive(Debug)]
pub(super) struct Store<L: Layout> {
    layout: L,
    directory: Directory,
    /// Slots of the sections, in the order in which the sections appeared.
    slots: Arena<L::Slot>,
    /// By 2 MiB block of slots: one more than the node that accessed it last; empty if nodes are
    /// not kept.
    nodes: Arena<u16>,
    nodes_beside: bool,
    /// First slots of the sections whose memory went offline; reused first.
    free: Vec<usize>,
    slots_max: usize,
    top_tier: NodeSet,
    unrecorded: u64,
}

/// The slot of an access, and its time in the section's ticks.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    stamp: u64,
}

/// The place of an access without a slot; no arena is that long.
const NO_PLACE: Place = Place { at: usize::MAX, stamp: 0 };

impl<L: Layout> Store<L> {
    pub(super) fn new(layout: L, nodes_beside: bool, sections_max: usize) -> Result<Store<L>, ArenaError> {
        let slots_max = sections_max.saturating_mul(SECTION_FRAMES);
        let nodes_beside = nodes_beside && !L::NODE;
        Ok(Store {
            layout,
            directory: Directory::new(),
            slots: Arena::reserve(slots_max)?,
            nodes: Arena::reserve(if nodes_beside { slots_max >> BLOCK_SHIFT } else { 0 })?,
            nodes_beside,
            free: Vec::new(),
            slots_max,
            top_tier: NodeSet::default(),
            unrecorded: 0,
        })
    }

    pub(super) fn observe(&mut self, batch: &[Access], mut each: impl FnMut(&Access, &mut Record)) {
        let mut chunks = batch.chunks(CHUNK);
        let mut now = chunks.next().unwrap_or(&[]);
        let mut places = [[NO_PLACE; CHUNK]; 2];
        let [mut asked, mut next] = places.each_mut();
        self.ask(now, asked, &mut []);
        while !now.is_empty() {
            let later = chunks.next().unwrap_or(&[]);
            self.ask(later, next, asked);
            self.visit(now, asked, &mut each);
            std::mem::swap(&mut asked, &mut next);
            now = later;
        }
    }

    /// Finds the places of a chunk and prefetches their cache lines; `pending` are those of the
    /// chunk before.
    #[inline(always)]
    fn ask(&mut self, chunk: &[Access], places: &mut [Place; CHUNK], pending: &mut [Place]) {
        let mut done = 0;
        while done < chunk.len() {
            done += self.ask_settled(&chunk[done..], &mut places[done..]);
            if let Some(access) = chunk.get(done) {
                let (before, rest) = places.split_at_mut(done);
                rest[0] = self.settle(access, pending.iter_mut().chain(before));
                prefetch(&self.slots, rest[0].at);
                done += 1;
            }
        }
    }

    /// The same up to the first access that needs [`Store::settle`]; returns the number of accesses
    /// before it.
    #[inline(always)]
    fn ask_settled(&self, chunk: &[Access], places: &mut [Place]) -> usize {
        let (directory, layout, slots) = (&self.directory, self.layout, &self.slots[..]);
        for (i, (access, place)) in chunk.iter().zip(places).enumerate() {
            let skips = L::LOWER_TIERS_ONLY && self.top_tier.contains(access.node);
            let Some(pfn) = access.pfn.filter(|_| !skips) else {
                *place = NO_PLACE;
                continue;
            };
            let section = directory.get(pfn);
            let stamp = layout.ticks(access.time).wrapping_sub(section.base);
            if stamp > L::STAMP_MAX {
                return i;
            }
            *place = Place { at: slot(section.first, pfn), stamp };
            prefetch(slots, place.at);
        }
        chunk.len()
    }

    /// The place of the first access to a section, of one so late that the section needs another
    /// base, or of one so early that it is "long ago" there. `pending` are places found and not yet
    /// visited.
    #[cold]
    #[inline(never)]
    fn settle<'a>(&mut self, access: &Access, pending: impl Iterator<Item = &'a mut Place>) -> Place {
        let Some(pfn) = access.pfn else { return NO_PLACE };
        let mut section = self.directory.get(pfn);
        let now = self.layout.ticks(access.time);
        let base = self.layout.base(now);
        if !section.exists() {
            let first = if pfn.0 < PFN_END { self.take_section() } else { None };
            let Some(first) = first else {
                self.unrecorded += 1;
                return NO_PLACE;
            };
            section = Section { first, base };
            self.directory.insert(pfn, section);
        } else if now.wrapping_sub(section.base) as i64 > 0 {
            let slots = section.first..section.first + SECTION_FRAMES;
            let ticks = base.wrapping_sub(section.base);
            for place in pending.filter(|place| slots.contains(&place.at)) {
                place.stamp = place.stamp.saturating_sub(ticks);
            }
            L::rebase(&mut self.slots[slots], ticks);
            section.base = base;
            self.directory.insert(pfn, section);
        }
        Place { at: slot(section.first, pfn), stamp: stamp(now, section.base) }
    }

    /// Decodes the records of accesses, passes them to the caller, and stores them.
    #[inline(always)]
    fn visit(
        &mut self,
        chunk: &[Access],
        places: &[Place; CHUNK],
        each: &mut impl FnMut(&Access, &mut Record),
    ) {
        let layout = self.layout;
        let (slots, nodes) = (&mut self.slots[..], &mut self.nodes[..]);
        for (access, &Place { at, stamp }) in chunk.iter().zip(places) {
            let Some(slot) = slots.get_mut(at) else {
                discard(access, each);
                continue;
            };
            let old = *slot;
            let mut record = layout.decode(old, stamp);
            if L::NODE {
                each(access, &mut record);
            } else {
                // Without nodes beside the slots there is a temporary one.
                let mut no_node = 0;
                let node = nodes.get_mut(at >> BLOCK_SHIFT).unwrap_or(&mut no_node);
                record.node = unpack_node(u32::from(*node));
                each(access, &mut record);
                if let Some(accessor) = access.accessor {
                    *node = accessor.0.wrapping_add(1);
                }
            }
            *slot = layout.encode(old, &record, access.accessor, stamp);
        }
    }

    /// First slot of a section of zeroed slots: a freed one, or a new one at the end.
    fn take_section(&mut self) -> Option<usize> {
        if let Some(first) = self.free.pop() {
            return Some(first);
        }
        let first = self.slots.len();
        let end = first + SECTION_FRAMES;
        if end > self.slots_max {
            return None;
        }
        if self.nodes_beside {
            self.nodes.grow(end >> BLOCK_SHIFT).ok()?;
        }
        self.slots.grow(end).ok()?;
        Some(first)
    }

    /// The slot of a frame whose section has slots.
    fn at(&self, pfn: Pfn) -> Option<usize> {
        let section = self.directory.get(pfn);
        section.exists().then(|| slot(section.first, pfn))
    }

    pub(super) fn get(&self, pfn: Pfn, now: Nanos) -> Option<Record> {
        let at = self.at(pfn)?;
        let bits = self.slots[at];
        if bits == L::Slot::default() {
            return None;
        }
        let stamp = stamp(self.layout.ticks(now), self.directory.get(pfn).base);
        let mut record = self.layout.decode(bits, stamp);
        if let Some(&node) = self.nodes.get(at >> BLOCK_SHIFT) {
            record.node = unpack_node(node.into());
        }
        Some(record)
    }

    pub(super) fn set_ready(&mut self, pfn: Pfn, ready: bool) -> bool {
        let Some(at) = self.at(pfn) else { return false };
        let slot = &mut self.slots[at];
        let recorded = *slot != L::Slot::default();
        if recorded {
            *slot = L::with_ready(*slot, ready);
        }
        recorded
    }

    pub(super) fn prefetch(&self, pfn: Pfn) {
        if let Some(at) = self.at(pfn) {
            prefetch(&self.slots, at);
        }
    }

    pub(super) fn clear(&mut self, start: Pfn, end: Pfn) {
        if end.0 - start.0 == 1 {
            // Nearly always; the other way builds a list.
            if let Some(at) = self.at(start) {
                self.slots[at] = L::Slot::default();
            }
            return;
        }
        for (frame, first) in self.directory.range(start, end) {
            let from = start.0.saturating_sub(frame.0) as usize;
            let to = (end.0 - frame.0).min(SECTION_FRAMES as u64) as usize;
            self.slots[first + from..first + to].fill(L::Slot::default());
        }
    }

    pub(super) fn offline(&mut self, start: Pfn, end: Pfn) {
        for (frame, first) in self.directory.range(start, end) {
            let last = first + SECTION_FRAMES;
            if start <= frame && frame.0 + SECTION_FRAMES as u64 <= end.0 {
                self.directory.remove(frame);
                self.slots.release(first..last);
                if self.nodes_beside {
                    self.nodes.release(first >> BLOCK_SHIFT..last >> BLOCK_SHIFT);
                }
                self.free.push(first);
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
        self.slots.len() / SECTION_FRAMES - self.free.len()
    }

    pub(super) fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let returned = self.free.len() * SECTION_FRAMES * size_of::<L::Slot>();
        self.slots.committed_bytes() - returned
            + self.nodes.committed_bytes()
            + self.directory.memory_bytes()
            + self.free.capacity() * size_of::<usize>()
    }
}

/// Passes an access without a slot to the caller, with an empty record that nobody stores.
#[cold]
fn discard(access: &Access, each: &mut dyn FnMut(&Access, &mut Record)) {
    each(access, &mut Record::default());
}

/// Ticks from `base` to `now`, 0 if `now` is earlier.
const fn stamp(now: u64, base: u64) -> u64 {
    let ticks = now.wrapping_sub(base);
    if ticks as i64 >= 0 { ticks } else { 0 }
}

#[inline(always)]
const fn slot(first: usize, pfn: Pfn) -> usize {
    first + pfn.0 as usize % SECTION_FRAMES
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

    #[inline(always)]
    fn contains(&self, node: NodeId) -> bool {
        self.0.get(usize::from(node.0) / 64).is_some_and(|word| (word >> (node.0 % 64)) & 1 != 0)
    }
}
