//! The page tables as arrays: where each page is, whether a scan has marked it, whether it has been
//! accessed.
//!
//! Per page: a byte of [`flags`], another of [`lru`], four bytes whose meaning depends on the mark
//! (below), an eighth of a byte in the bitmap of marks, and four bytes in a reclaim list while it
//! is on a node that demotes, unless its neighbours in the list are those in memory. Pages are
//! numbered through all processes; a [`Space`] is the range of one process. Positions number the
//! same pages in the order of the workload's cells ([`crate::memory::layout`]).
//!
//! The note of a page is, while it is marked, the time of the mark; else, in event mode, the
//! accesses that a page of its cell had had when its accessed bit was last read. Event mode does
//! not see accesses: whether there was one since then is drawn when the bit is read
//! ([`Memory::take_accessed`]). A page that is still marked has had none since its mark, because
//! its next access will be a hint fault. So the bit is drawn when the page is marked, and not while
//! it is marked.

mod accessed;
mod cells;
pub mod layout;
mod lists;
mod marks;
mod space;
mod stretch;

pub use cells::{CellMap, Cells};
pub use lists::{List, Lists};
pub use space::{HUGE_PAGES, Space};
pub use stretch::{GLANCE, Glance};

use thermocline_mem::{Arena, ArenaError, prefetch};

use crate::machine::{Machine, NODES_MAX, NodeIndex};
use crate::random::Random;
use marks::Marks;

/// A page, numbered through all processes.
pub type Page = u32;

/// Bits of a page's byte: what an access reads and changes.
pub mod flags {
    /// The node that holds the page; [`NOWHERE`] before it is allocated.
    pub const NODE: u8 = 63;
    /// The node of a page that is not allocated.
    pub const NOWHERE: u8 = 63;
    /// A scan has marked it (PROT_NONE): its next access is a hint fault.
    pub const MARKED: u8 = 1 << 6;
    /// The accessed bit of its page table entry.
    pub const ACCESSED: u8 = 1 << 7;
}

/// Bits of a page that only reclaim and DAMON use.
pub mod lru {
    /// PG_referenced: reclaim has found it accessed once.
    pub const REFERENCED: u8 = 1;
    /// PG_active.
    pub const ACTIVE: u8 = 1 << 1;
    /// It is in a reclaim list.
    pub const LISTED: u8 = 1 << 2;
    /// The next access that sets the accessed bit costs its program time: somebody has cleared it.
    /// The kernel sets it for nothing when a page is allocated or faults.
    pub const CLEARED: u8 = 1 << 3;
}

const _: () = assert!(NODES_MAX == flags::NOWHERE as usize);

/// Resolution of the time of a mark: 2^16 ns, so that 32 bits last for 78 hours.
pub const MARK_SHIFT: u32 = 16;

/// The memory of a node.
#[derive(Clone, Debug)]
pub struct NodeMemory {
    /// Usable pages.
    pub capacity: u64,
    /// Pages in use.
    pub used: u64,
    /// The reclaim lists; `None` if there is nowhere to demote to.
    pub lists: Option<Lists>,
}

/// All pages.
#[derive(Debug)]
pub struct Memory {
    flags: Arena<u8>,
    lru: Arena<u8>,
    notes: Arena<u32>,
    marks: Marks,
    /// The processes' ranges, ascending.
    pub spaces: Vec<Space>,
    /// The memory of each node.
    pub nodes: Vec<NodeMemory>,
    /// Counts by cell.
    pub cells: Cells,
    /// Draw accessed bits when they are read: event mode.
    lazy: bool,
    random: Random,
    /// Accessed bits of each process that accesses have set again, since this was last taken.
    set_again: Vec<u64>,
}

impl Memory {
    /// Memory for these processes, without any page allocated yet.
    ///
    /// # Errors
    /// The kernel does not give the memory.
    pub fn new(
        machine: &Machine,
        spaces: Vec<Space>,
        lazy: bool,
        random: Random,
    ) -> Result<Memory, ArenaError> {
        let pages = spaces.last().map_or(0, |s| s.end as usize);
        let mut all = Arena::reserve(pages)?;
        all.grow(pages)?;
        all.fill(flags::NOWHERE);
        let mut lru = Arena::reserve(pages)?;
        lru.grow(pages)?;
        let mut notes = Arena::reserve(pages)?;
        notes.grow(pages)?;
        let cells = spaces.last().map_or(0, |s| s.first_cell + s.map.len());
        let nodes = machine.nodes.iter().map(|n| NodeMemory {
            capacity: n.pages,
            used: 0,
            lists: (!n.demotion_targets.is_empty()).then(Lists::default),
        });
        Ok(Memory {
            flags: all,
            lru,
            notes,
            marks: Marks::new(pages)?,
            nodes: nodes.collect(),
            cells: Cells::new(cells as usize, machine.nodes.len()),
            set_again: vec![0; spaces.len()],
            spaces,
            lazy,
            random,
        })
    }

    /// Drops the reclaim lists, because no manager uses them. Call it before any page is allocated.
    pub(crate) fn keep_no_lists(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.lists = None);
    }

    /// Pages of all processes.
    pub fn pages(&self) -> u64 {
        self.flags.len() as u64
    }

    /// The bits of a page; see [`flags`].
    #[inline(always)]
    pub fn flags(&self, page: Page) -> u8 {
        self.flags[page as usize]
    }

    /// The bytes of all pages: what exact mode's loop works on. Only [`flags::ACCESSED`] may be
    /// changed through it.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.flags
    }

    /// The bytes of a range of pages.
    pub fn bytes(&self, range: std::ops::Range<Page>) -> &[u8] {
        &self.flags[range.start as usize..range.end as usize]
    }

    /// The node that holds a page, if it is allocated.
    #[inline]
    pub fn node(&self, page: Page) -> Option<NodeIndex> {
        let node = self.flags(page) & flags::NODE;
        (node != flags::NOWHERE).then_some(node)
    }

    /// Whether a scan has marked the page and it has not been accessed since.
    #[inline]
    pub fn is_marked(&self, page: Page) -> bool {
        self.flags(page) & flags::MARKED != 0
    }

    /// Free pages of a node.
    #[inline]
    pub fn free(&self, node: NodeIndex) -> u64 {
        let node = &self.nodes[usize::from(node)];
        node.capacity.saturating_sub(node.used)
    }

    /// The index of the process that has the page.
    #[inline]
    pub fn space_of(&self, page: Page) -> usize {
        match self.spaces.len() {
            1 => 0,
            _ => self.spaces.partition_point(|s| s.end <= page),
        }
    }

    /// The number, among all, of the cell that holds the page.
    #[inline]
    pub fn cell_of(&self, page: Page) -> u32 {
        self.spaces[self.space_of(page)].cell_of(page)
    }

    /// Moves a page to another node. A mark is lost: the new page table entry is an ordinary one.
    /// Returns whether there was one.
    pub fn move_to(&mut self, page: Page, to: NodeIndex) -> bool {
        let from = self.flags(page) & flags::NODE;
        if from == to || from == flags::NOWHERE {
            return false;
        }
        let marked = self.is_marked(page) && {
            self.unmark(page);
            true
        };
        let cell = self.cell_of(page);
        self.cells.leave(cell, from);
        self.cells.arrive(cell, to, 1);
        self.nodes[usize::from(from)].used -= 1;
        self.nodes[usize::from(to)].used += 1;
        let byte = &mut self.flags[page as usize];
        *byte = (*byte & !flags::NODE) | to;
        self.list(page);
        marked
    }

    /// Clears the mark of a page and returns its time.
    pub fn unmark(&mut self, page: Page) -> u32 {
        debug_assert!(self.is_marked(page));
        let space = &self.spaces[self.space_of(page)];
        let position = space.position(page);
        let cell = space.first_cell + space.map.cell_of(position);
        let place = (space.start + position) as usize;
        let byte = &mut self.flags[page as usize];
        *byte &= !flags::MARKED;
        let node = *byte & flags::NODE;
        self.marks.clear(place);
        self.cells.unmark(cell, node);
        let note = &mut self.notes[page as usize];
        let time = *note;
        *note = if self.lazy { (self.cells.accesses(cell) as f32).to_bits() } else { 0 };
        time
    }

    /// When a marked page was marked, in units of 2^[`MARK_SHIFT`] ns.
    pub fn mark_time(&self, page: Page) -> Option<u32> {
        self.is_marked(page).then(|| self.notes[page as usize])
    }

    /// The bits of a page that reclaim keeps in it; see [`lru`].
    #[inline]
    pub(crate) fn lru(&self, page: Page) -> u8 {
        self.lru[page as usize]
    }

    /// Sets bits of a page that reclaim keeps in it.
    pub(crate) fn set_lru(&mut self, page: Page, set: u8, clear: u8) {
        let byte = &mut self.lru[page as usize];
        *byte = (*byte & !clear) | set;
    }

    /// A page of the cell that is marked, each with the same chance; `None` if none is.
    pub fn marked_page_of(&self, space: usize, cell: u32, random: &mut Random) -> Option<Page> {
        let s = &self.spaces[space];
        let marked = self.cells.marked(s.first_cell + cell);
        let range = s.map.range(cell);
        let start = s.start as usize;
        let place =
            self.marks.pick(start + range.start as usize..start + range.end as usize, marked, random)?;
        let page = s.page((place - start) as u32);
        // It is going to fault.
        prefetch(&self.flags, page as usize);
        prefetch(&self.notes, page as usize);
        prefetch(&self.lru, page as usize);
        Some(page)
    }

    /// Marked pages of all processes.
    pub fn marked(&self) -> u64 {
        self.cells.all_marked()
    }

    /// Pages on each node, recounted from the pages.
    pub fn census(&self) -> [u64; NODES_MAX + 1] {
        let mut count = [0; NODES_MAX + 1];
        for byte in self.flags.iter() {
            count[usize::from(byte & flags::NODE)] += 1;
        }
        count
    }

    /// Memory of the arrays in bytes.
    pub fn memory_bytes(&self) -> usize {
        let lists = self.nodes.iter().filter_map(|n| n.lists.as_ref()).map(Lists::memory_bytes);
        self.flags.committed_bytes()
            + self.lru.committed_bytes()
            + self.notes.committed_bytes()
            + self.marks.memory_bytes()
            + lists.sum::<usize>()
    }

    /// Puts a page into the reclaim lists of its node, at the young end, unless it is in a list
    /// already. The first page of a huge page stands for the others.
    fn list(&mut self, page: Page) {
        let byte = self.flags[page as usize];
        let first = self.spaces[self.space_of(page)].block(page).start;
        if first != page && (self.flags[first as usize] ^ byte) & flags::NODE == 0 {
            return;
        }
        let Some(lists) = self.nodes[usize::from(byte & flags::NODE)].lists.as_mut() else { return };
        let bits = &mut self.lru[page as usize];
        if *bits & lru::LISTED == 0 {
            lists.push(List::of(*bits & lru::ACTIVE != 0), page);
            *bits |= lru::LISTED;
        }
    }

    /// Takes the oldest page of a node's list. A page that has left the node since it was listed
    /// goes to the list of its present node and is not returned.
    pub(crate) fn pop(&mut self, node: NodeIndex, list: List) -> Option<Page> {
        loop {
            let page = self.nodes[usize::from(node)].lists.as_mut()?.pop(list)?;
            self.lru[page as usize] &= !lru::LISTED;
            if self.flags[page as usize] & flags::NODE == node {
                return Some(page);
            }
            self.list(page);
        }
    }

    /// Puts a page back at the young end of a list of its node.
    pub(crate) fn push(&mut self, page: Page, list: List) {
        let (set, clear) = match list {
            List::Active => (lru::ACTIVE, 0),
            List::Inactive => (0, lru::ACTIVE),
        };
        self.set_lru(page, set, clear);
        self.list(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::preset;
    use crate::memory::layout::Layout;
    use crate::random::Stream;

    /// One process of `pages` pages in cells of 64, on `cxl-2tier`, without any allocated.
    pub(super) fn empty(pages: u32, lazy: bool) -> Memory {
        let machine = Machine::new(&preset("cxl-2tier").unwrap()).unwrap();
        let map = CellMap::equal(pages, 64);
        let space = Space { start: 0, end: pages, layout: Layout::Identity, map, first_cell: 0, huge: false };
        Memory::new(&machine, vec![space], lazy, Random::new(1, Stream::Accessed)).unwrap()
    }

    /// The same with all of them on the slow node.
    pub(super) fn memory(pages: u32, lazy: bool) -> Memory {
        let mut memory = empty(pages, lazy);
        memory.allocate(0..pages, 1);
        memory
    }

    #[test]
    fn a_page_is_counted_where_it_is() {
        let mut memory = memory(256, false);
        memory.mark(0, 70..71, 1, 5, false);
        assert_eq!((memory.marked(), memory.mark_time(70)), (1, Some(5)));
        assert!(memory.move_to(70, 0));
        assert_eq!(
            (memory.marked(), memory.node(70), memory.nodes[0].used, memory.nodes[1].used),
            (0, Some(0), 1, 255)
        );
        assert_eq!(memory.census()[..2], [1, 255]);
        assert_eq!(memory.pop(0, List::Inactive), Some(70));
        assert!(!memory.move_to(70, 0));
    }

    #[test]
    fn a_page_that_left_and_came_back_is_listed_once() {
        let mut memory = memory(4, false);
        memory.move_to(2, 0);
        memory.move_to(2, 1);
        memory.move_to(2, 0);
        assert_eq!(memory.pop(0, List::Inactive), Some(2));
        assert_eq!(memory.pop(0, List::Inactive), None);
        memory.move_to(2, 1);
        memory.move_to(2, 0);
        memory.move_to(3, 0);
        memory.move_to(2, 1);
        assert_eq!(memory.pop(0, List::Inactive), Some(3));
    }
}
