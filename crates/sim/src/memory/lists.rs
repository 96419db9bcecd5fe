//! A node's reclaim lists: active and inactive, oldest first, in blocks, so that the memory used
//! follows the number of listed pages, less those that follow each other in a long row.

use std::collections::VecDeque;
use std::ops::Range;

use super::Page;

/// The kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Pages that reclaim considers.
    Inactive,
    /// Pages that reclaim found accessed twice.
    Active,
}

impl List {
    /// The list of a page that is active or not.
    pub const fn of(active: bool) -> List {
        if active { List::Active } else { List::Inactive }
    }
}

/// Pages in a block.
const BLOCK: usize = 1 << 14;
/// Pages that follow each other, from so many on, are kept as a range.
const RANGE_MIN: u32 = 64;

#[derive(Clone, Debug)]
enum Block {
    /// Pages that follow each other, as allocation lists them: they take no memory of their own.
    Range(Range<Page>),
    /// Any pages.
    Pages(Vec<Page>),
}

#[derive(Clone, Debug, Default)]
struct Queue {
    /// Oldest block first; the last one is being filled.
    blocks: VecDeque<Block>,
    /// Pages taken from the first block, if it is no range.
    taken: usize,
    len: usize,
}

impl Queue {
    fn push(&mut self, page: Page) {
        self.len += 1;
        match self.blocks.back_mut() {
            Some(Block::Range(range)) if range.end == page => range.end += 1,
            Some(Block::Pages(pages)) if pages.len() < BLOCK => pages.push(page),
            Some(short @ Block::Range(_)) if short.len() < RANGE_MIN as usize => short.push(page),
            _ => self.blocks.push_back(Block::Range(page..page + 1)),
        }
    }

    fn extend(&mut self, mut pages: Range<Page>) {
        while !pages.is_empty() {
            match self.blocks.back_mut() {
                Some(Block::Range(range)) if range.end == pages.start => {
                    self.len += pages.len();
                    range.end = pages.end;
                    return;
                }
                _ => self.push(pages.start),
            }
            pages.start += 1;
        }
    }

    fn pop(&mut self) -> Option<Page> {
        let (page, last) = match self.blocks.front_mut()? {
            Block::Range(range) => {
                let page = range.start;
                range.start += 1;
                (page, range.start == range.end)
            }
            Block::Pages(pages) => {
                let page = *pages.get(self.taken)?;
                self.taken += 1;
                (page, self.taken == pages.len())
            }
        };
        self.len -= 1;
        if last {
            self.blocks.pop_front();
            self.taken = 0;
        }
        Some(page)
    }

    fn memory_bytes(&self) -> usize {
        let pages = self.blocks.iter().filter(|block| matches!(block, Block::Pages(_))).count();
        pages * BLOCK * size_of::<Page>() + self.blocks.len() * size_of::<Block>()
    }
}

impl Block {
    fn len(&self) -> usize {
        match self {
            Block::Range(range) => range.len(),
            Block::Pages(pages) => pages.len(),
        }
    }

    /// Appends a page that does not follow the others.
    fn push(&mut self, page: Page) {
        if let Block::Range(range) = self {
            let mut pages = Vec::with_capacity(BLOCK);
            pages.extend(range);
            *self = Block::Pages(pages);
        }
        if let Block::Pages(pages) = self {
            pages.push(page);
        }
    }
}

/// The two lists of a node.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    inactive: Queue,
    active: Queue,
}

impl Lists {
    /// Pages in a list, including those that have left the node since.
    pub fn len(&self, list: List) -> u64 {
        self.queue(list).len as u64
    }

    /// Whether both are empty.
    pub fn is_empty(&self) -> bool {
        self.inactive.len + self.active.len == 0
    }

    /// Puts a page at the young end.
    pub fn push(&mut self, list: List, page: Page) {
        self.queue_mut(list).push(page);
    }

    /// Puts pages at the young end, one after the other.
    pub fn extend(&mut self, list: List, pages: Range<Page>) {
        self.queue_mut(list).extend(pages);
    }

    /// Takes the oldest.
    pub fn pop(&mut self, list: List) -> Option<Page> {
        self.queue_mut(list).pop()
    }

    /// Memory of the lists in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.inactive.memory_bytes() + self.active.memory_bytes()
    }

    fn queue(&self, list: List) -> &Queue {
        match list {
            List::Inactive => &self.inactive,
            List::Active => &self.active,
        }
    }

    fn queue_mut(&mut self, list: List) -> &mut Queue {
        match list {
            List::Inactive => &mut self.inactive,
            List::Active => &mut self.active,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, Stream};

    #[test]
    fn ranges_and_single_pages_come_out_in_the_order_in_which_they_went_in() {
        let mut random = Random::new(9, Stream::Models);
        let mut lists = Lists::default();
        let mut model = VecDeque::new();
        for _ in 0..20_000 {
            let start = random.below(1000) as Page;
            match random.below(4) {
                0 => {
                    let pages = start..start + random.below(200) as Page;
                    lists.extend(List::Active, pages.clone());
                    model.extend(pages);
                }
                1 => {
                    // Follows the last one, as often as not.
                    let next = model.back().map_or(start, |page| page + 1);
                    lists.push(List::Active, next);
                    model.push_back(next);
                }
                2 => {
                    lists.push(List::Active, start);
                    model.push_back(start);
                }
                _ => (0..random.below(60)).for_each(|_| {
                    assert_eq!(lists.pop(List::Active), model.pop_front());
                }),
            }
            assert_eq!(lists.len(List::Active), model.len() as u64);
        }
        assert!(model.len() > 1000);
        model.into_iter().for_each(|page| assert_eq!(lists.pop(List::Active), Some(page)));
        assert!(lists.is_empty() && lists.memory_bytes() == 0);
    }

    #[test]
    fn a_range_takes_no_memory_of_its_own() {
        let mut lists = Lists::default();
        lists.extend(List::Inactive, 0..1 << 20);
        assert_eq!(lists.len(List::Inactive), 1 << 20);
        assert!(lists.memory_bytes() < 100);
    }

    #[test]
    fn first_in_first_out_over_many_blocks() {
        let mut lists = Lists::default();
        let (mut pushed, mut popped) = (0u32, 0u32);
        for round in 0..10u32 {
            for _ in 0..BLOCK as u32 * 3 / 2 + round {
                lists.push(List::Inactive, pushed);
                pushed += 1;
            }
            for _ in 0..BLOCK as u32 {
                assert_eq!(lists.pop(List::Inactive), Some(popped));
                popped += 1;
            }
        }
        assert_eq!(lists.len(List::Inactive), u64::from(pushed - popped));
        while let Some(page) = lists.pop(List::Inactive) {
            assert_eq!(page, popped);
            popped += 1;
        }
        assert!(lists.is_empty() && pushed == popped && lists.memory_bytes() == 0);
        assert_eq!(lists.pop(List::Active), None);
    }
}
