//! What is done to many pages at once: their allocation, their marks, and an aging. A stretch of
//! pages that follow each other in one cell is treated together, so that the cost is that of the
//! memory touched.

use std::ops::Range;

use super::{List, Memory, Page, Space, flags, lru};
use crate::machine::NodeIndex;

/// Pages that are looked at together.
pub const GLANCE: usize = 64;

/// Pages that follow each other, in the same order in one cell.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// The cell's number among all.
    pub(super) cell: u32,
    /// The place of the first page among the positions of all processes.
    pub(super) place: usize,
    pub(super) pages: Range<Page>,
}

impl Space {
    /// The first of these pages and those after it in the same stretch.
    pub(super) fn stretch(&self, pages: Range<Page>) -> Stretch {
        let position = self.position(pages.start);
        let cell = self.map.cell_of(position);
        let len = if self.layout.keeps_order() { self.map.range(cell).end - position } else { 1 };
        Stretch {
            cell: self.first_cell + cell,
            place: (self.start + position) as usize,
            pages: pages.start..pages.end.min(pages.start + len),
        }
    }
}

/// How some pages stand to an aging of a node; in the masks, a byte a page, 0 or 255.
#[derive(Clone, Debug)]
pub struct Glance {
    /// The page is on the node.
    pub on: [u8; GLANCE],
    /// It is on the node, and has certainly not been accessed since its bit was last taken: taking
    /// it again would change nothing.
    pub idle: [u8; GLANCE],
    /// It is on a lower node.
    pub lower: [u8; GLANCE],
    /// The page after the last that was looked at.
    pub end: Page,
    start: Page,
    space: usize,
    /// Accesses to each page of their cell.
    accesses: f64,
}

impl Glance {
    /// Of no page.
    pub fn none() -> Glance {
        let none = [0; GLANCE];
        Glance { on: none, idle: none, lower: none, end: 0, start: 0, space: 0, accesses: 0.0 }
    }

    fn look(&mut self, flags: &[u8], notes: &[u32], node: NodeIndex, lower: NodeIndex, idle_from: u32) {
        let mask = |yes: bool| if yes { 255 } else { 0 };
        (self.on, self.idle, self.lower) = ([0; GLANCE], [0; GLANCE], [0; GLANCE]);
        // Separate loops, without a branch, so that the compiler vectorises them.
        for (idle, note) in self.idle.iter_mut().zip(notes) {
            *idle = mask(*note >= idle_from);
        }
        for ((on, below), byte) in self.on.iter_mut().zip(&mut self.lower).zip(flags) {
            let at = byte & flags::NODE;
            *on = mask(at == node);
            *below = mask(at >= lower) & mask(at != flags::NOWHERE);
        }
        for ((idle, on), byte) in self.idle.iter_mut().zip(&self.on).zip(flags) {
            *idle = (*idle | mask(byte & flags::MARKED != 0)) & mask(byte & flags::ACCESSED == 0) & on;
        }
    }
}

impl Memory {
    /// Allocates pages of one process on a node, as accessed by their first write.
    pub fn allocate(&mut self, pages: Range<Page>, node: NodeIndex) {
        let all = pages.start as usize..pages.end as usize;
        debug_assert!(self.flags[all.clone()].iter().all(|byte| *byte == flags::NOWHERE));
        self.flags[all.clone()].fill(node | flags::ACCESSED);
        self.nodes[usize::from(node)].used += u64::from(pages.end - pages.start);
        let space = self.space_of(pages.start);
        let mut rest = pages.clone();
        while !rest.is_empty() {
            let Stretch { cell, pages, .. } = self.spaces[space].stretch(rest.clone());
            self.cells.arrive(cell, node, pages.end - pages.start);
            rest.start = pages.end;
        }
        if self.spaces[space].huge {
            pages.for_each(|page| self.list(page));
        } else if let Some(lists) = &mut self.nodes[usize::from(node)].lists {
            lists.extend(List::Inactive, pages);
            self.lru[all].iter_mut().for_each(|bits| *bits |= lru::LISTED);
        }
    }

    /// Marks those of a process's pages that are on nodes from `lower` on and not marked yet, at
    /// `time` (in units of 2^[`super::MARK_SHIFT`] ns), and stamps the marked ones again if
    /// `restamp` says so. Returns the number of new marks.
    pub fn mark(
        &mut self,
        space: usize,
        pages: Range<Page>,
        lower: NodeIndex,
        time: u32,
        restamp: bool,
    ) -> u64 {
        let before = self.cells.all_marked();
        let mut rest = pages;
        while !rest.is_empty() {
            let Stretch { cell, place, pages } = self.spaces[space].stretch(rest.clone());
            rest.start = pages.end;
            // Pages of one node, counted together.
            let (mut on, mut fresh) = (0, 0);
            for (place, page) in (place..).zip(pages) {
                let byte = self.flags[page as usize];
                let node = byte & flags::NODE;
                if byte & flags::MARKED != 0 {
                    if restamp {
                        self.notes[page as usize] = time;
                    }
                } else if node >= lower && node != flags::NOWHERE {
                    if self.lazy {
                        self.settle(page, cell);
                    }
                    self.flags[page as usize] |= flags::MARKED;
                    self.notes[page as usize] = time;
                    self.marks.set(place);
                    if node != on {
                        self.cells.mark(cell, on, fresh);
                        (on, fresh) = (node, 0);
                    }
                    fresh += 1;
                }
            }
            self.cells.mark(cell, on, fresh);
        }
        self.cells.all_marked() - before
    }

    /// Looks how the first [`GLANCE`] of these pages, or as many as are in one stretch, stand to an
    /// aging of `node`; nodes from `lower` on count as lower. False if their bits have to be taken
    /// one by one: those of huge pages.
    pub fn glance(
        &self,
        space: usize,
        pages: Range<Page>,
        node: NodeIndex,
        lower: NodeIndex,
        glance: &mut Glance,
    ) -> bool {
        let of = &self.spaces[space];
        if of.huge {
            return false;
        }
        let Stretch { cell, pages, .. } = of.stretch(pages);
        glance.space = space;
        glance.start = pages.start;
        glance.end = pages.end.min(pages.start + GLANCE as Page);
        glance.accesses = self.cells.accesses(cell);
        let all = glance.start as usize..glance.end as usize;
        let idle_from = if self.lazy { idle_from(glance.accesses) } else { 0 };
        glance.look(&self.flags[all.clone()], &self.notes[all], node, lower, idle_from);
        true
    }

    /// Takes the accessed bits of the pages on the node that may have been accessed; tells for each
    /// of them its place in the glance, and whether it was.
    pub fn take_glanced(&mut self, glance: &Glance, mut taken: impl FnMut(usize, bool)) {
        let Glance { on, idle, .. } = glance;
        for (i, page) in (glance.start..glance.end).enumerate() {
            if on[i] != idle[i] {
                taken(i, self.take_of_cell(glance.space, page, glance.accesses));
            }
        }
    }
}

/// The note from which on a page of a cell with so many accesses a page has had none since.
///
/// Notes are rounded, but not below the accesses then if they are not below those now. And they are
/// not negative, so that their bits have their order.
fn idle_from(accesses: f64) -> u32 {
    let nearest = accesses as f32;
    (if f64::from(nearest) < accesses { nearest.next_up() } else { nearest }).to_bits()
}

#[cfg(test)]
mod tests {
    use super::super::tests::memory;
    use super::*;

    #[test]
    fn a_glance_tells_what_taking_the_bits_would() {
        for lazy in [false, true] {
            let mut memory = memory(640, lazy);
            (0..640).for_each(|page| {
                memory.take_accessed(page);
            });
            // Shares that no f32 holds, so that notes are rounded both ways.
            for cell in 0..10 {
                memory.cells.add_accesses(cell, 1.0 / f64::from(cell + 3));
            }
            (0..640).step_by(3).for_each(|page| {
                memory.take_accessed(page);
            });
            (0..640).step_by(7).for_each(|page| {
                memory.move_to(page, 0);
            });
            (0..640).step_by(11).for_each(|page| memory.touch(page));
            memory.mark(0, 0..640, 1, 5, false);
            (0..640)
                .step_by(5)
                .filter(|page| memory.is_marked(*page))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|page| {
                    memory.unmark(page);
                });
            let mut seen = [0; 3];
            let mut at = 0;
            let mut glance = Glance::none();
            while at < 640 {
                assert!(memory.glance(0, at..640, 1, 1, &mut glance));
                let len = (glance.end - at) as usize;
                assert_eq!(len, 64, "a cell has as many");
                for i in 0..len {
                    let page = at + i as Page;
                    let on = memory.node(page) == Some(1);
                    assert_eq!((glance.on[i] != 0, glance.lower[i] != 0), (on, on), "{page}");
                    if glance.idle[i] != 0 {
                        let before = (memory.flags(page), memory.notes[page as usize], memory.random.clone());
                        assert!(on && !memory.take_accessed(page), "{page} is idle");
                        let after = (memory.flags(page), memory.notes[page as usize], memory.random.clone());
                        assert_eq!(format!("{before:?}"), format!("{after:?}"), "{page}");
                        seen[0] += 1;
                    } else {
                        seen[1] += u32::from(on);
                        seen[2] += u32::from(!on);
                    }
                }
                at += len as Page;
            }
            assert!(seen.iter().all(|n| *n > 20), "{seen:?}");
        }
    }

    #[test]
    fn pages_are_idle_from_the_first_note_that_is_no_less_than_the_accesses() {
        for accesses in [0.0, 0.1, 1.0 / 3.0, 2.0 / 3.0, 1.0, 109.0, 1e6 + 0.03, 123_456_789.0] {
            let from = f32::from_bits(idle_from(accesses));
            assert!(f64::from(from) >= accesses, "{accesses}");
            assert!(from == 0.0 || f64::from(from.next_down()) < accesses, "{accesses}");
        }
    }

    #[test]
    fn allocation_lists_and_counts_each_page_once() {
        let mut memory = memory(0, true);
        assert_eq!(memory.pages(), 0);
        memory = super::super::tests::empty(200, true);
        memory.allocate(0..70, 0);
        memory.allocate(70..130, 1);
        memory.allocate(130..200, 0);
        assert_eq!((memory.nodes[0].used, memory.nodes[1].used), (140, 60));
        assert_eq!(memory.cells.count(0).on, [64, 0]);
        assert_eq!(memory.cells.count(1).on, [6, 58]);
        assert_eq!(memory.cells.count(2).on, [62, 2]);
        let popped: Vec<Page> = std::iter::from_fn(|| memory.pop(0, List::Inactive)).collect();
        assert_eq!(popped, (0..70).chain(130..200).collect::<Vec<_>>());
        assert_eq!(memory.node(100), Some(1));
    }
}
