//! Generations of pages, and reclaim of the oldest ones on request: the interface of the
//! multi-generational LRU in `debugfs/lru_gen`.
//!
//! 1. *Aging* (`+`) reads and clears the accessed bit of every page of a node. Accessed pages join
//!    the youngest generation; all others become a generation older, up to four generations.
//! 2. *Eviction* (`-`) demotes pages that at least two agings found not accessed, the oldest
//!    generation first, until as many as were asked for are demoted. A page that was accessed since
//!    the last aging becomes young instead.
//!
//! Source: Linux 6.12 `mm/vmscan.c` (`run_aging`, `run_eviction`, MIN_NR_GENS, MAX_NR_GENS). A node
//! has one list here, in the order of addresses. The accessed bits are shared with
//! [`super::reclaim`], as in the kernel.

use thermocline_core::units::Nanos;

use super::reclaim;
use crate::machine::NodeIndex;
use crate::memory::Page;
use crate::system::{System, Way};

/// Number of generations (MAX_NR_GENS).
const GENERATIONS: u8 = 4;
/// The youngest generation that may be evicted: younger ones are protected (MIN_NR_GENS).
const EVICTABLE: u8 = 2;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Generations {
    /// Agings since each page was last found accessed.
    ages: Vec<u8>,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// When it was last aged; 0 before the first time.
    aged: Nanos,
    /// Pages of each age, as counted by the last aging, less those that eviction has examined.
    count: [u64; GENERATIONS as usize],
    /// Where eviction continues.
    at: Page,
}

impl Generations {
    /// Creates the generations with all pages young.
    pub fn new(system: &System) -> Generations {
        let nodes = vec![Node::default(); system.machine.nodes.len()];
        Generations { ages: vec![0; system.memory.pages() as usize], nodes }
    }

    /// When a node was last aged.
    pub fn aged(&self, node: NodeIndex) -> Nanos {
        self.nodes[usize::from(node)].aged
    }

    /// Ages a node.
    pub fn age(&mut self, system: &mut System, node: NodeIndex) {
        let mut count = [0; GENERATIONS as usize];
        let lower: Vec<bool> =
            (0..system.machine.nodes.len()).map(|n| system.machine.is_kernel_lower(n as NodeIndex)).collect();
        for space in 0..system.memory.spaces.len() {
            let (start, end, huge) = {
                let space = &system.memory.spaces[space];
                (space.start, space.end, space.huge)
            };
            for page in start..end {
                let Some(on) = system.memory.node(page) else { continue };
                if on != node {
                    // A page that moves to a node is young there.
                    if lower[usize::from(on)] {
                        self.ages[page as usize] = 0;
                    }
                    continue;
                }
                let first = if huge { system.memory.spaces[space].block(page).start } else { page };
                let age = if first != page {
                    // A huge page has one bit.
                    self.ages[first as usize]
                } else if system.memory.take_accessed_in(space, page) {
                    0
                } else {
                    (self.ages[page as usize] + 1).min(GENERATIONS - 1)
                };
                self.ages[page as usize] = age;
                count[usize::from(age)] += 1;
            }
        }
        self.nodes[usize::from(node)] =
            Node { aged: system.now, count, at: self.nodes[usize::from(node)].at };
    }

    /// Demotes `wanted` pages of a node, if as many are old; returns the number demoted.
    pub fn evict(&mut self, system: &mut System, node: NodeIndex, wanted: u64) -> u64 {
        let (i, pages) = (usize::from(node), system.memory.pages() as Page);
        let mut demoted = 0;
        for age in (EVICTABLE..GENERATIONS).rev() {
            let mut looked = 0;
            while demoted < wanted && looked < pages && self.nodes[i].count[usize::from(age)] > 0 {
                let page = self.nodes[i].at;
                let block = system.memory.spaces[system.memory.space_of(page)].block(page);
                self.nodes[i].at = block.end % pages;
                looked += block.end - block.start;
                if self.ages[page as usize] != age || system.memory.node(page) != Some(node) {
                    continue;
                }
                let Some(target) = reclaim::demotion_target(system, node) else { return demoted };
                let accessed = system.memory.take_accessed(page);
                for page in block {
                    self.ages[page as usize] = 0;
                    let count = &mut self.nodes[i].count[usize::from(age)];
                    *count = count.saturating_sub(1);
                    if !accessed
                        && system.memory.node(page) == Some(node)
                        && system.move_page(page, target) == Way::Down
                    {
                        system.counters.pgdemote_other += 1;
                        demoted += 1;
                    }
                }
            }
        }
        demoted
    }
}
