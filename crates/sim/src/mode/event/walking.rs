//! Threads that walk from page to page.

use super::{Doing, Event};
use crate::memory::{Page, flags};
use crate::workload::Walk;
use crate::world::World;

/// A walking thread continues for this long without regard to other threads: one step of kswapd.
const RUN_NS: f64 = 1e6;

/// A walking thread's accesses to a page, counted when it reaches the page.
#[derive(Debug)]
pub(super) struct Visit {
    page: Page,
    /// The walk's state at the first of them.
    walk: Walk,
    accesses: f64,
    /// Time of one of them.
    each_ns: f64,
}

impl Event {
    /// Moves a walking thread to its next page and on from page to page while no other event can
    /// intervene: up to a marked page, up to the next due time, and for at most [`RUN_NS`].
    pub(super) fn visit(&mut self, world: &mut World, number: u32, until_ns: f64) {
        let process = self.threads[number as usize].process;
        let end_ns = until_ns.min(self.now_ns + RUN_NS);
        let thread = &mut self.threads[number as usize];
        thread.sampled = world.sampling(number).map_or(0.0, |accesses| 1.0 / accesses);
        let mut sample = std::mem::take(&mut thread.sample_next);
        let mut cost = 0.0;
        loop {
            let thread = &mut self.threads[number as usize];
            let left = thread.left;
            let Some(walk) = &thread.walk else { return };
            let page = world.system.memory.spaces[process].page(walk.at);
            let marked = world.system.memory.is_marked(page);
            if marked && cost > 0.0 {
                break;
            }
            let accesses = f64::from(walk.per_page - walk.done).min(left.ceil());
            sample = sample || self.draws_sample(number, accesses);
            let thread = &mut self.threads[number as usize];
            if sample && cost > 0.0 {
                thread.sample_next = true;
                break;
            }
            let Some(walk) = &mut thread.walk else { return };
            let before = walk.clone();
            walk.advance();
            if marked {
                cost += self.touch_marked(world, number, page);
            }
            world.system.memory.touch(page);
            let process_of = &world.system.processes[process];
            let node = usize::from(world.system.memory.flags(page) & flags::NODE);
            let each_ns = process_of.access_ns[node] + process_of.think_ns;
            self.threads[number as usize].visit = Some(Visit { page, walk: before, accesses, each_ns });
            cost += self.access(world, number, page, accesses, sample);
            if marked || sample || self.now_ns + cost >= end_ns || self.threads[number as usize].left < 0.5 {
                break;
            }
        }
        self.wait(number, self.now_ns + cost);
    }

    /// A scan has marked the page that a walking thread is in the middle of: its remaining accesses
    /// follow a hint fault.
    pub(super) fn interrupt(&mut self, world: &mut World, number: u32) {
        let thread = &mut self.threads[number as usize];
        let Some(visit) = thread.visit.take_if(|v| world.system.memory.is_marked(v.page)) else { return };
        let to_go_ns = thread.wakes - self.now_ns;
        let left = (to_go_ns / visit.each_ns).floor().min(visit.accesses);
        if !matches!(thread.doing, Doing::Waiting) || left < 1.0 {
            return;
        }
        let process = &world.system.processes[thread.process];
        if process.think_sleeps {
            world.system.threads[number as usize].slept_ns -= left * process.think_ns;
        }
        let node = usize::from(world.system.memory.flags(visit.page) & flags::NODE);
        world.system.served[node] -= left;
        self.accesses -= left;
        thread.left += left;
        let mut walk = visit.walk;
        walk.done += (visit.accesses - left) as u32;
        thread.walk = Some(walk);
        let next_ns = thread.wakes - left * visit.each_ns;
        self.wait(number, next_ns);
    }
}
