//! Event mode: from one hint fault to the next, exact in distribution.
//!
//! Within a phase accesses are independent and identically distributed, so the time until a thread
//! touches a marked page is memoryless. Let M be the share of its accesses that go to marked pages,
//! and D the time that the other accesses take per access made (including pauses). A running thread
//! faults at the rate M / D: on average (1 - M) / M accesses to unmarked pages come first, as in a
//! sequence of independent trials. Threads of a process that share a distribution form a
//! `group::Group`. Rates add up, so one draw gives the next fault of all of them, and further draws
//! give its thread, its cell and its marked page. The faulting access itself is made after the
//! fault, on the page's node at that time.
//!
//! Other events are: the end of a phase (threads count accesses as time passes), the end of a stall
//! (a faulting thread waits until its costs have passed), the next page of a walking thread, a
//! sample, and models that are due. Accessed bits are drawn when they are read ([`crate::memory`]);
//! before models run, the cells are updated with how often their pages have been accessed.

mod group;
mod walking;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use thermocline_core::units::Nanos;

use super::Mode;
use crate::memory::{Page, flags};
use crate::random::{Random, Stream};
use crate::workload::{Distribution, Shape, Walk};
use crate::world::World;
use group::Group;
use walking::Visit;

/// The state of a thread.
#[derive(Debug)]
enum Doing {
    /// It runs in its group.
    Running,
    /// It is stalled, or walks: the heap has its time.
    Waiting,
    /// It is done.
    Done,
}

#[derive(Debug)]
struct Thread {
    process: usize,
    doing: Doing,
    /// The group of its phase, unless it walks.
    group: Option<usize>,
    walk: Option<Walk>,
    /// The page that it visits, while it walks.
    visit: Option<Visit>,
    /// While it runs in a group, the group's clock at the end of its phase; otherwise the accesses
    /// left.
    left: f64,
    /// The group's clock up to which its pauses have been counted.
    paused: f64,
    /// Samples per access; 0 where it is not sampled.
    sampled: f64,
    /// Its next visit to a page is sampled.
    sample_next: bool,
    /// Its time in the heap while it waits; heap entries with another time are void.
    wakes: f64,
}

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Next {
    Until,
    PhaseEnd(usize),
    Wake,
    Fault,
    Sample,
}

/// See the module's description.
#[derive(Debug)]
pub struct Event {
    threads: Vec<Thread>,
    /// Groups, with holes where one has ended.
    groups: Vec<Option<Group>>,
    /// Threads that wait, by the bits of their time: for positive floats they are in the same
    /// order.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    now_ns: f64,
    random: Random,
    access_times_seen: u64,
    accesses: f64,
    changed: Vec<u32>,
}

impl Event {
    /// All threads at the start of their first phase.
    pub fn new(world: &mut World, seed: u64) -> Event {
        let mut event = Event {
            threads: Vec::new(),
            groups: Vec::new(),
            waiting: BinaryHeap::new(),
            now_ns: world.system.now.0 as f64,
            random: Random::new(seed, Stream::Events),
            access_times_seen: u64::MAX,
            accesses: 0.0,
            changed: Vec::new(),
        };
        for thread in &world.system.threads {
            event.threads.push(Thread {
                process: usize::from(thread.process),
                doing: Doing::Done,
                group: None,
                walk: None,
                visit: None,
                left: 0.0,
                paused: 0.0,
                sampled: 0.0,
                sample_next: false,
                wakes: 0.0,
            });
        }
        for i in 0..event.threads.len() as u32 {
            event.enter(world, i);
        }
        event
    }

    /// Begins a thread's next phase.
    fn enter(&mut self, world: &mut World, number: u32) {
        world.system.now = Nanos(self.now_ns as u64);
        let phase = world.next_phase(number);
        let thread = &mut self.threads[number as usize];
        let (process, old) = (thread.process, thread.group.take());
        thread.walk = None;
        thread.visit = None;
        thread.doing = Doing::Done;
        if let Some(phase) = phase {
            thread.left = phase.accesses as f64;
            match phase.shape {
                Shape::Random(distribution) => {
                    let index = self.group_of(world, process, distribution);
                    self.threads[number as usize].group = Some(index);
                    self.resume(world, number);
                }
                Shape::Walk(walk) => {
                    thread.walk = Some(walk);
                    self.wait(number, self.now_ns);
                }
            }
        }
        if let Some(old) = old {
            self.leave(world, old);
        }
    }

    /// The group of a distribution, with one user more.
    fn group_of(&mut self, world: &World, process: usize, distribution: Arc<Distribution>) -> usize {
        let same = |g: &Group| g.process == process && Arc::ptr_eq(&g.distribution, &distribution);
        let found = self.groups.iter().position(|g| g.as_ref().is_some_and(same));
        let index = found.unwrap_or_else(|| {
            let group = Some(Group::new(&world.system, process, distribution));
            let hole = self.groups.iter().position(Option::is_none).unwrap_or(self.groups.len());
            if hole < self.groups.len() {
                self.groups[hole] = group;
            } else {
                self.groups.push(group);
            }
            hole
        });
        if let Some(group) = &mut self.groups[index] {
            group.users += 1;
        }
        index
    }

    /// A thread leaves a group permanently.
    fn leave(&mut self, world: &mut World, index: usize) {
        let Some(group) = &mut self.groups[index] else { return };
        group.users -= 1;
        if group.users == 0 {
            group.tell_all(&mut world.system.memory.cells);
            self.groups[index] = None;
        }
    }

    /// Lets a thread run in its group.
    fn resume(&mut self, world: &World, number: u32) {
        let thread = &mut self.threads[number as usize];
        let Some(group) = thread.group.and_then(|i| self.groups[i].as_mut()) else { return };
        thread.doing = Doing::Running;
        thread.sampled = world.sampling(number).map_or(0.0, |accesses| 1.0 / accesses);
        thread.left += group.clock;
        thread.paused = group.clock;
        group.join(number, thread.left, thread.sampled);
    }

    /// Takes a running thread out of its group temporarily.
    fn halt(&mut self, world: &mut World, number: u32) {
        let thread = &mut self.threads[number as usize];
        let Some(group) = thread.group.and_then(|i| self.groups[i].as_mut()) else { return };
        count_pauses(world, thread, number, group.clock);
        thread.left -= group.clock;
        group.part(number, thread.sampled);
    }

    fn wait(&mut self, number: u32, until_ns: f64) {
        let thread = &mut self.threads[number as usize];
        thread.doing = Doing::Waiting;
        thread.wakes = until_ns;
        self.waiting.push(Reverse((until_ns.to_bits(), number)));
    }

    /// Updates rates for changes since the last event.
    fn refresh(&mut self, world: &mut World) {
        let system = &mut world.system;
        let times = std::mem::replace(&mut self.access_times_seen, system.access_times_changed);
        let many = system.memory.cells.take_changed(&mut self.changed);
        if many || times != system.access_times_changed {
            self.groups.iter_mut().flatten().for_each(|g| g.look(system));
            return;
        }
        for cell in &self.changed {
            self.groups.iter_mut().flatten().for_each(|g| g.changed(system, *cell));
        }
    }

    /// The next event and its time.
    fn next(&mut self, until_ns: f64) -> (Next, f64) {
        let (mut next, mut at) = (Next::Until, until_ns.max(self.now_ns));
        let (mut faults, mut samples) = (0.0, 0.0);
        for (i, group) in self.groups.iter().enumerate() {
            let Some(group) = group else { continue };
            faults += group.fault_rate();
            samples += group.sample_rate();
            let end = self.now_ns + group.until_phase_end();
            if end < at {
                (next, at) = (Next::PhaseEnd(i), end);
            }
        }
        if let Some(Reverse((bits, _))) = self.waiting.peek()
            && f64::from_bits(*bits) < at
        {
            (next, at) = (Next::Wake, f64::from_bits(*bits).max(self.now_ns));
        }
        let rate = faults + samples;
        if rate > 0.0 {
            let when = self.now_ns + self.random.exponential() / rate;
            if when < at {
                let sample = samples > 0.0 && faults.is_finite() && self.random.chance(samples / rate);
                (next, at) = (if sample { Next::Sample } else { Next::Fault }, when);
            }
        }
        (next, at)
    }

    /// Advances time without an event.
    fn pass(&mut self, world: &mut World, to_ns: f64) {
        let ns = to_ns - self.now_ns;
        if ns > 0.0 {
            for group in self.groups.iter_mut().flatten() {
                self.accesses += group.pass(ns, &mut world.system.served);
            }
        }
        self.now_ns = to_ns;
        world.system.now = Nanos(to_ns as u64);
    }

    /// Draws a group in proportion to these rates.
    fn choose(&mut self, rate: impl Fn(&Group) -> f64) -> Option<usize> {
        let all: f64 = self.groups.iter().flatten().map(&rate).sum();
        let mut left = if all.is_finite() { self.random.unit() * all } else { 0.0 };
        let mut last = None;
        for (i, group) in self.groups.iter().enumerate() {
            let rate = group.as_ref().map_or(0.0, &rate);
            if rate > 0.0 {
                last = Some(i);
                left -= rate;
                if left < 0.0 {
                    break;
                }
            }
        }
        last
    }

    /// A running thread touches a marked page.
    fn fault(&mut self, world: &mut World) {
        let Some(index) = self.choose(Group::fault_rate) else { return };
        let Some(group) = &self.groups[index] else { return };
        let number = group.running(self.random.below(group.threads() as u64) as usize);
        let Some(cell) = group.marked_cell(&mut self.random) else { return };
        let Some(page) = world.system.memory.marked_page_of(group.process, cell, &mut self.random) else {
            return;
        };
        self.halt(world, number);
        let sampled = self.draws_sample(number, 1.0);
        let cost = self.touch_marked(world, number, page) + self.access(world, number, page, 1.0, sampled);
        self.wait(number, self.now_ns + cost);
    }

    /// The hint fault of a thread; returns its cost in ns.
    fn touch_marked(&mut self, world: &mut World, number: u32, page: Page) -> f64 {
        let process = self.threads[number as usize].process;
        let cell = world.system.memory.cell_of(page);
        let ahead = world.manager.takes_marks_ahead() || world.system.memory.spaces[process].huge;
        let cells = &mut world.system.memory.cells;
        for group in self.groups.iter_mut().flatten().filter(|g| g.process == process) {
            if ahead {
                group.tell_all(cells);
            } else {
                group.tell(cell, cells);
            }
        }
        world.fault(number, page)
    }

    /// Draws whether one of `accesses` accesses of a thread is sampled.
    fn draws_sample(&mut self, number: u32, accesses: f64) -> bool {
        let sampled = self.threads[number as usize].sampled;
        sampled > 0.0 && self.random.chance(1.0 - (-sampled * accesses).exp())
    }

    /// Makes `accesses` accesses of a thread to a page outside a group, one of which may be
    /// sampled; returns their time in ns.
    fn access(&mut self, world: &mut World, number: u32, page: Page, accesses: f64, sampled: bool) -> f64 {
        let thread = &mut self.threads[number as usize];
        thread.left -= accesses;
        self.accesses += accesses;
        let system = &mut world.system;
        let node = usize::from(system.memory.flags(page) & flags::NODE);
        system.served[node] += accesses;
        let process = &system.processes[thread.process];
        let paused = accesses * process.think_ns;
        if process.think_sleeps {
            system.threads[number as usize].slept_ns += paused;
        }
        let ns = accesses * process.access_ns[node] + paused;
        if sampled { ns + world.sample(number, page) } else { ns }
    }

    /// A thread's wait has ended.
    fn wake(&mut self, world: &mut World, until_ns: f64) {
        let Some(Reverse((bits, number))) = self.waiting.pop() else { return };
        let thread = &mut self.threads[number as usize];
        if !matches!(thread.doing, Doing::Waiting) || thread.wakes.to_bits() != bits {
            return;
        }
        // Accesses are whole numbers, but the remainder after a time is not.
        if thread.left < 0.5 {
            self.enter(world, number);
        } else if thread.walk.is_some() {
            self.visit(world, number, until_ns);
        } else {
            self.resume(world, number);
        }
    }

    fn phase_end(&mut self, world: &mut World, index: usize) {
        let Some(number) = self.groups[index].as_ref().and_then(Group::first_to_end) else { return };
        self.halt(world, number);
        self.enter(world, number);
    }

    /// A running thread's access to an unmarked page is sampled.
    fn sample(&mut self, world: &mut World) {
        let Some(index) = self.choose(Group::sample_rate) else { return };
        let Some(group) = &self.groups[index] else { return };
        let by_rate = self.random.unit();
        let Some(number) = group.sampled_thread(by_rate, |t| self.threads[t as usize].sampled) else {
            return;
        };
        let space = &world.system.memory.spaces[group.process];
        // Accesses to marked pages are faults, which are sampled elsewhere: redraw those.
        let page = (0..DRAWS_MAX)
            .map(|_| space.page(group.distribution.draw(&space.map, &mut self.random)))
            .find(|page| !world.system.memory.is_marked(*page));
        self.halt(world, number);
        let cost = page.map_or(0.0, |page| world.sample(number, page));
        self.wait(number, self.now_ns + cost);
    }
}

/// Maximum number of draws for an unmarked page; if nearly all pages are marked, hardly any samples
/// are taken.
const DRAWS_MAX: u32 = 1000;

/// Counts the pauses of a running thread since the last call.
fn count_pauses(world: &mut World, thread: &mut Thread, number: u32, clock: f64) {
    let process = &world.system.processes[thread.process];
    if process.think_sleeps {
        world.system.threads[number as usize].slept_ns += (clock - thread.paused) * process.think_ns;
    }
    thread.paused = clock;
}

impl Mode for Event {
    fn advance(&mut self, world: &mut World, until: Nanos) {
        let mut until = until;
        loop {
            self.refresh(world);
            let (next, at_ns) = self.next(until.0 as f64);
            self.pass(world, at_ns);
            match next {
                Next::Until => {
                    world.system.now = until.max(world.system.now);
                    break;
                }
                Next::Fault => self.fault(world),
                Next::Sample => self.sample(world),
                Next::Wake => self.wake(world, until.0 as f64),
                Next::PhaseEnd(group) => self.phase_end(world, group),
            }
            if matches!(next, Next::PhaseEnd(_) | Next::Wake) && world.system.finished() {
                break;
            }
            until = until.min(world.next_due());
        }
        // Models may read accessed bits, CPU times and counts now.
        self.groups.iter_mut().flatten().for_each(|g| g.tell_all(&mut world.system.memory.cells));
        for (number, thread) in self.threads.iter_mut().enumerate() {
            if let (Doing::Running, Some(Some(group))) =
                (&thread.doing, thread.group.map(|i| &self.groups[i]))
            {
                let clock = group.clock;
                count_pauses(world, thread, number as u32, clock);
            }
        }
        world.system.counters.accesses = self.accesses as u64;
    }

    fn models_have_run(&mut self, world: &mut World) {
        for number in 0..self.threads.len() as u32 {
            self.interrupt(world, number);
            let debt = std::mem::take(&mut world.system.threads[number as usize].debt_ns);
            if debt == 0.0 {
                continue;
            }
            match self.threads[number as usize].doing {
                Doing::Done => {}
                Doing::Waiting => self.wait(number, self.threads[number as usize].wakes + debt),
                Doing::Running => {
                    self.halt(world, number);
                    self.wait(number, self.now_ns + debt);
                }
            }
        }
    }
}
