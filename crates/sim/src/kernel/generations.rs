//! Generations of pages, and reclaim of the oldest ones on request: the interface of the
//! multi-generational LRU in `debugfs/lru_gen`.
//!
//! 1. *Aging* (`+`) reads and clears the accessed bit of every page of a node. Accessed pages join
//!    the youngest generation; then a younger one is begun, up to four generations.
//! 2. *Eviction* (`-`) demotes pages of all but the two youngest generations, the oldest first,
//!    until as many as were asked for are demoted. So it takes pages that were not accessed between
//!    the last two agings. A page that was accessed since joins the youngest generation instead.
//!
//! Source: Linux 6.12 `mm/vmscan.c` (`run_aging`, `run_eviction`, MIN_NR_GENS, MAX_NR_GENS). A node
//! has one list here, in the order of addresses. The accessed bits are shared with
//! [`super::reclaim`], as in the kernel.

use thermocline_core::units::Nanos;

use super::reclaim;
use crate::machine::NodeIndex;
use crate::memory::{Glance, Page};
use crate::system::{System, Way};

/// Number of generations (MAX_NR_GENS).
const GENERATIONS: u8 = 4;
/// The youngest generation that may be evicted: younger ones are protected (MIN_NR_GENS).
const EVICTABLE: u8 = 2;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Generations {
    /// Generations that are younger than each page's.
    ages: Vec<u8>,
    nodes: Vec<Node>,
}

/// Whose pages eviction may take.
pub trait Whose {
    /// Base pages that may still be taken of a space.
    fn left(&self, space: usize) -> u64;
    /// Pages of a space were taken.
    fn took(&mut self, space: usize, pages: u64);
}

/// Everybody's.
pub struct Everybody;

impl Whose for Everybody {
    fn left(&self, _space: usize) -> u64 {
        u64::MAX
    }

    fn took(&mut self, _space: usize, _pages: u64) {}
}

/// Pages of each age.
type Count = [u64; GENERATIONS as usize];

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// When it was aged, the latest time first; 0 before the first time.
    aged: [Nanos; GENERATIONS as usize - 1],
    /// Pages of each age, as counted by the last aging, less those that eviction has examined.
    count: Count,
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
        self.nodes[usize::from(node)].aged[0]
    }

    /// Ages a node; returns the CPU time that it takes, in ns.
    pub fn age(&mut self, system: &mut System, node: NodeIndex) -> f64 {
        let mut count = Count::default();
        let mut glance = Glance::none();
        for space in 0..system.memory.spaces.len() {
            let (mut at, end) = (system.memory.spaces[space].start, system.memory.spaces[space].end);
            while at < end {
                if system.memory.glance(space, at..end, node, system.machine.kernel_top, &mut glance) {
                    self.age_glanced(system, at, &glance, &mut count);
                    at = glance.end;
                } else {
                    self.age_page(system, space, at, node, &mut count);
                    at += 1;
                }
            }
        }
        let ns = count.iter().sum::<u64>() as f64 * system.machine.spec.cost.age_ns;
        system.aside_ns += ns;
        let of = &mut self.nodes[usize::from(node)];
        of.aged.rotate_right(1);
        of.aged[0] = system.now;
        of.count = count;
        ns
    }

    /// Ages the pages of a glance, from `start` on: idle ones together, so that memory that nobody
    /// accesses costs little, and those that may have been accessed one by one.
    fn age_glanced(&mut self, system: &mut System, start: Page, glance: &Glance, count: &mut Count) {
        let Glance { on, idle, lower, end, .. } = glance;
        let ages = &mut self.ages[start as usize..*end as usize];
        for (((age, on), idle), lower) in ages.iter_mut().zip(on).zip(idle).zip(lower) {
            // A page that moves to a node is young there.
            *age = ((*age + 1).min(GENERATIONS - 1) & idle) | (*age & !idle & (on | !lower));
        }
        if on != idle {
            system.memory.take_glanced(glance, |i, accessed| {
                ages[i] = if accessed { 1 } else { (ages[i] + 1).min(GENERATIONS - 1) };
            });
        }
        for (count, of) in count.iter_mut().zip(0u8..) {
            // A byte holds as many as are glanced at.
            let here: u8 = ages.iter().zip(on).map(|(age, on)| u8::from(*age == of) & on).sum();
            *count += u64::from(here);
        }
    }

    /// Ages one page, of a huge page or any.
    fn age_page(
        &mut self,
        system: &mut System,
        space: usize,
        page: Page,
        node: NodeIndex,
        count: &mut Count,
    ) {
        let Some(on) = system.memory.node(page) else { return };
        if on != node {
            if system.machine.is_kernel_lower(on) {
                self.ages[page as usize] = 0;
            }
            return;
        }
        let first = system.memory.spaces[space].block(page).start;
        let age = if first != page {
            // A huge page has one bit.
            self.ages[first as usize]
        } else if system.memory.take_accessed_in(space, page) {
            1
        } else {
            (self.ages[page as usize] + 1).min(GENERATIONS - 1)
        };
        self.ages[page as usize] = age;
        count[usize::from(age)] += 1;
    }

    /// Demotes `wanted` pages of a node that were not accessed for `idle`, if there are as many of
    /// those that may be taken; returns the number demoted.
    pub fn evict(
        &mut self,
        system: &mut System,
        node: NodeIndex,
        wanted: u64,
        idle: Nanos,
        whose: &mut impl Whose,
    ) -> u64 {
        let (i, pages) = (usize::from(node), system.memory.pages() as Page);
        let mut demoted = 0;
        for age in (EVICTABLE..GENERATIONS).rev() {
            // Its pages were not accessed since the aging that began the next younger one.
            if system.now.since(self.nodes[i].aged[usize::from(age) - 1]) < idle {
                continue;
            }
            let mut looked = 0;
            while demoted < wanted && looked < pages && self.nodes[i].count[usize::from(age)] > 0 {
                let page = self.nodes[i].at;
                let space = system.memory.space_of(page);
                let block = system.memory.spaces[space].block(page);
                self.nodes[i].at = block.end % pages;
                looked += block.end - block.start;
                if self.ages[page as usize] != age || system.memory.node(page) != Some(node) {
                    continue;
                }
                if whose.left(space) == 0 {
                    continue;
                }
                let before = demoted;
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
                whose.took(space, demoted - before);
            }
        }
        demoted
    }
}
