//! Cells: a fixed partition of a process's positions, within which accesses are distributed evenly.

use std::ops::Range;

use crate::machine::NodeIndex;

/// Which positions of a process belong to which cell.
#[derive(Clone, Debug)]
pub struct CellMap {
    /// First position of each cell, and the end of the last.
    bounds: Vec<u32>,
    /// log2 of the size of all cells but the last, if they are equal.
    shift: Option<u32>,
}

impl CellMap {
    /// Cells of `size` positions (the last one may be smaller).
    pub fn equal(positions: u32, size: u32) -> CellMap {
        let size = size.max(1);
        let mut bounds: Vec<u32> = (0..positions).step_by(size as usize).collect();
        bounds.push(positions);
        CellMap { bounds, shift: size.is_power_of_two().then(|| size.trailing_zeros()) }
    }

    /// Cells that begin at these positions, ascending from 0, and end with `positions`.
    pub fn of(starts: &[u32], positions: u32) -> CellMap {
        debug_assert!(starts.first() == Some(&0) && starts.is_sorted());
        let mut bounds = starts.to_vec();
        bounds.push(positions);
        CellMap { bounds, shift: None }
    }

    /// Number of cells.
    pub fn len(&self) -> u32 {
        self.bounds.len() as u32 - 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The positions of a cell.
    pub fn range(&self, cell: u32) -> Range<u32> {
        self.bounds[cell as usize]..self.bounds[cell as usize + 1]
    }

    /// Pages in a cell.
    #[inline]
    pub fn size(&self, cell: u32) -> u32 {
        self.bounds[cell as usize + 1] - self.bounds[cell as usize]
    }

    /// The cell that holds a position.
    #[inline]
    pub fn cell_of(&self, position: u32) -> u32 {
        match self.shift {
            Some(shift) => position >> shift,
            None => self.bounds.partition_point(|b| *b <= position) as u32 - 1,
        }
    }
}

/// The counts of a cell's pages.
#[derive(Clone, Copy, Debug)]
pub struct Count<'a> {
    /// Pages on each node.
    pub on: &'a [u32],
    /// Of these, marked.
    pub marked: &'a [u32],
}

/// Counts of all cells, and which of them have changed.
#[derive(Clone, Debug)]
pub struct Cells {
    nodes: usize,
    /// For each cell, its pages on each node, followed by the marked ones on each node.
    counts: Vec<u32>,
    /// Mean accesses of an unmarked page of each cell; event mode only.
    accesses: Vec<f64>,
    marked: u64,
    /// Cells that have changed since the last [`Cells::take_changed`]; without order, with
    /// repetitions.
    changed: Vec<u32>,
    overflow: bool,
}

/// More changes than this are not listed individually.
const CHANGED_MAX: usize = 256;

impl Cells {
    pub(super) fn new(cells: usize, nodes: usize) -> Cells {
        Cells {
            nodes,
            counts: vec![0; cells * 2 * nodes],
            accesses: vec![0.0; cells],
            marked: 0,
            changed: Vec::new(),
            overflow: true,
        }
    }

    /// The counts of a cell.
    #[inline]
    pub fn count(&self, cell: u32) -> Count<'_> {
        let first = cell as usize * 2 * self.nodes;
        let (on, marked) = self.counts[first..first + 2 * self.nodes].split_at(self.nodes);
        Count { on, marked }
    }

    /// Marked pages of a cell.
    #[inline]
    pub fn marked(&self, cell: u32) -> u32 {
        self.count(cell).marked.iter().sum()
    }

    /// Marked pages of all cells.
    pub fn all_marked(&self) -> u64 {
        self.marked
    }

    /// Mean accesses of an unmarked page of a cell.
    #[inline]
    pub fn accesses(&self, cell: u32) -> f64 {
        self.accesses[cell as usize]
    }

    /// Adds accesses to each unmarked page of a cell.
    #[inline]
    pub fn add_accesses(&mut self, cell: u32, accesses: f64) {
        self.accesses[cell as usize] += accesses;
    }

    /// Puts the cells that have changed since the last call into `into` (with repetitions); returns
    /// true if they are too many to list.
    pub fn take_changed(&mut self, into: &mut Vec<u32>) -> bool {
        into.clear();
        std::mem::swap(into, &mut self.changed);
        std::mem::take(&mut self.overflow)
    }

    #[inline]
    fn on(&mut self, cell: u32, node: NodeIndex) -> &mut u32 {
        &mut self.counts[cell as usize * 2 * self.nodes + usize::from(node)]
    }

    #[inline]
    fn marked_on(&mut self, cell: u32, node: NodeIndex) -> &mut u32 {
        &mut self.counts[(cell as usize * 2 + 1) * self.nodes + usize::from(node)]
    }

    pub(super) fn arrive(&mut self, cell: u32, node: NodeIndex, pages: u32) {
        *self.on(cell, node) += pages;
        self.note(cell);
    }

    pub(super) fn leave(&mut self, cell: u32, node: NodeIndex) {
        *self.on(cell, node) -= 1;
        self.note(cell);
    }

    pub(super) fn mark(&mut self, cell: u32, node: NodeIndex, pages: u32) {
        if pages == 0 {
            return;
        }
        *self.marked_on(cell, node) += pages;
        self.marked += u64::from(pages);
        self.note(cell);
    }

    pub(super) fn unmark(&mut self, cell: u32, node: NodeIndex) {
        *self.marked_on(cell, node) -= 1;
        self.marked -= 1;
        self.note(cell);
    }

    #[inline]
    fn note(&mut self, cell: u32) {
        if self.overflow || self.changed.last() == Some(&cell) {
            return;
        }
        self.overflow = self.changed.len() >= CHANGED_MAX;
        self.changed.push(cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_has_its_cell() {
        let maps = [
            CellMap::equal(1000, 64),
            CellMap::equal(1000, 100),
            CellMap::equal(64, 64),
            CellMap::of(&[0, 1, 2, 4, 8, 500], 1000),
        ];
        for map in maps {
            let mut seen = 0;
            for cell in 0..map.len() {
                for position in map.range(cell) {
                    assert_eq!(map.cell_of(position), cell);
                    seen += 1;
                }
                assert_eq!(map.size(cell), map.range(cell).len() as u32);
            }
            assert_eq!(seen, map.range(map.len() - 1).end);
        }
    }

    #[test]
    fn many_changes_are_told_as_many() {
        let mut cells = Cells::new(1000, 2);
        let mut list = Vec::new();
        assert!(cells.take_changed(&mut list));
        cells.arrive(3, 0, 1);
        cells.arrive(3, 0, 1);
        cells.mark(4, 0, 1);
        assert!(!cells.take_changed(&mut list));
        assert_eq!(list, [3, 4]);
        (0..1000).for_each(|cell| cells.arrive(cell, 1, 1));
        assert!(cells.take_changed(&mut list));
        assert!(!cells.take_changed(&mut list) && list.is_empty());
    }
}
