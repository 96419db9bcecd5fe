//! The frames of each node; DAMON's regions are ranges of them.
//!
//! Pages get frames in the order in which they are allocated, a frame that was freed last first, as
//! from the kernel's per-CPU lists. Only DAMON moves pages while it manages. So newly allocated
//! pages are found here ([`Frames::follow`]), and DAMON reports its own moves.

use crate::machine::NodeIndex;
use crate::memory::{Memory, Page};

/// A frame of a node, by its number there.
pub type Frame = u32;

/// No page.
const FREE: Page = Page::MAX;

#[derive(Clone, Debug, Default)]
struct Node {
    /// The page in each frame, up to the last frame used.
    pages: Vec<Page>,
    /// Frames that were used and are free.
    free: Vec<Frame>,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Frames {
    nodes: Vec<Node>,
    /// Of each process, the first page without a frame.
    known: Vec<Page>,
}

impl Frames {
    /// The frames of `nodes` nodes, all free.
    pub fn new(nodes: usize) -> Frames {
        Frames { nodes: vec![Node::default(); nodes], known: Vec::new() }
    }

    /// Gives frames to the pages that have been allocated since the last call.
    pub fn follow(&mut self, memory: &Memory) {
        self.known.resize(memory.spaces.len(), 0);
        for (i, space) in memory.spaces.iter().enumerate() {
            let mut page = self.known[i].max(space.start);
            while page < space.end
                && let Some(node) = memory.node(page)
            {
                self.put(node, page);
                page += 1;
            }
            self.known[i] = page;
        }
    }

    /// The page in a frame.
    #[inline]
    pub fn page(&self, node: NodeIndex, frame: Frame) -> Option<Page> {
        self.nodes[usize::from(node)].pages.get(frame as usize).copied().filter(|page| *page != FREE)
    }

    /// Frames of a node up to the last that has ever been used.
    pub fn used_end(&self, node: NodeIndex) -> Frame {
        self.nodes[usize::from(node)].pages.len() as Frame
    }

    /// The page of a frame has moved to another node.
    pub fn moved(&mut self, node: NodeIndex, frame: Frame, to: NodeIndex) {
        let from = &mut self.nodes[usize::from(node)];
        let page = std::mem::replace(&mut from.pages[frame as usize], FREE);
        from.free.push(frame);
        self.put(to, page);
    }

    fn put(&mut self, node: NodeIndex, page: Page) {
        let node = &mut self.nodes[usize::from(node)];
        match node.free.pop() {
            Some(frame) => node.pages[frame as usize] = page,
            None => node.pages.push(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_was_freed_is_used_next() {
        let mut frames = Frames::new(2);
        for page in 10..14 {
            frames.put(0, page);
        }
        frames.moved(0, 1, 1);
        assert_eq!((frames.page(0, 1), frames.page(1, 0)), (None, Some(11)));
        frames.put(0, 20);
        frames.put(0, 21);
        assert_eq!((frames.page(0, 1), frames.page(0, 4), frames.page(0, 5)), (Some(20), Some(21), None));
        frames.moved(1, 0, 0);
        assert_eq!((frames.page(0, 5), frames.used_end(0), frames.used_end(1)), (Some(11), 6, 1));
    }
}
