//! A node's reclaim lists: active and inactive, oldest first, in blocks, so that the memory used
//! follows the number of listed pages.

use std::collections::VecDeque;

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

#[derive(Clone, Debug, Default)]
struct Queue {
    /// Oldest block first; the last one is being filled.
    blocks: VecDeque<Vec<Page>>,
    /// Pages taken from the first block.
    taken: usize,
    len: usize,
}

impl Queue {
    fn push(&mut self, page: Page) {
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK => block.push(page),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(page);
                self.blocks.push_back(block);
            }
        }
        self.len += 1;
    }

    fn pop(&mut self) -> Option<Page> {
        let page = *self.blocks.front()?.get(self.taken)?;
        self.taken += 1;
        self.len -= 1;
        if self.taken == BLOCK || self.len == 0 {
            self.blocks.pop_front();
            self.taken = 0;
        }
        Some(page)
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

    /// Takes the oldest.
    pub fn pop(&mut self, list: List) -> Option<Page> {
        self.queue_mut(list).pop()
    }

    /// Memory of the lists in bytes.
    pub fn memory_bytes(&self) -> usize {
        (self.inactive.blocks.len() + self.active.blocks.len()) * BLOCK * size_of::<Page>()
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
