//! Exact mode: every access is made.
//!
//! Threads go on by turns, the one that is furthest behind first, by `TURN` at most where there are several. The
//! accesses of a turn are drawn in batches, so that the pages' bytes can be prefetched; what an access takes is added from a table
//! that counts the accesses by node in the same addition.

use thermocline_core::units::Nanos;
use thermocline_mem::prefetch;

use super::Mode;
use crate::machine::NODES_MAX;
use crate::memory::{Page, flags};
use crate::random::{Random, Stream};
use crate::workload::{Phase, access};
use crate::world::World;

/// Accesses that are drawn at a time; their count must fit the bits of [`Sums`].
const BATCH: usize = 512;
/// Longest turn of a thread among several: what two threads do within it may be seen in the wrong order.
const TURN_PS: u64 = 20_000_000;
const PS: u64 = 1000;

/// What accesses to each node add: picoseconds in the low 48 bits, and from there on ten bits a node for their number.
type Sums = [u128; 8];
const COUNT_SHIFT: u32 = 48;
const COUNT_BITS: u32 = 10;

#[derive(Debug)]
struct Thread {
    process: usize,
    clock_ps: u64,
    phase: Option<Phase>,
    left: u64,
    random: Random,
    batch: Vec<Page>,
    at: usize,
    /// Accesses until the next pause.
    until_pause: u64,
    /// Accesses until the next sample, where it is sampled.
    until_sample: u64,
}

/// See the module's description.
#[derive(Debug)]
pub struct Exact {
    threads: Vec<Thread>,
    sums: Vec<Sums>,
    longest_ps: Vec<u64>,
    access_times_seen: u64,
    samples: Random,
}

impl Exact {
    /// All threads at the start of their first phase.
    pub fn new(world: &mut World, seed: u64) -> Exact {
        let start_ps = world.system.now.0 * PS;
        let mut exact = Exact {
            threads: Vec::new(),
            sums: Vec::new(),
            longest_ps: Vec::new(),
            access_times_seen: u64::MAX,
            samples: Random::new(seed, Stream::Events),
        };
        for i in 0..world.system.threads.len() as u32 {
            let process = usize::from(world.system.threads[i as usize].process);
            let mut thread = Thread {
                process,
                clock_ps: start_ps,
                phase: None,
                left: 0,
                random: Random::new(seed, Stream::Accesses(i)),
                batch: vec![0; BATCH],
                at: BATCH,
                until_pause: pause_after(world, process),
                until_sample: 0,
            };
            thread.until_sample = exact.next_sample(world, i);
            thread.enter(world, i);
            exact.threads.push(thread);
        }
        exact
    }

    /// Accesses until the next sample of a thread: as in event mode, each access has the same chance.
    fn next_sample(&mut self, world: &World, thread: u32) -> u64 {
        match world.manager.sampling(thread) {
            Some(sampling) => (self.samples.exponential() * sampling.accesses) as u64,
            None => u64::MAX,
        }
    }

    fn refresh(&mut self, world: &World) {
        if self.access_times_seen == world.system.access_times_changed {
            return;
        }
        self.access_times_seen = world.system.access_times_changed;
        let nodes = world.system.machine.nodes.len();
        self.sums.clear();
        self.longest_ps.clear();
        for process in &world.system.processes {
            let mut sums: Sums = [0; 8];
            let mut longest = 1;
            for (node, sum) in sums.iter_mut().enumerate().take(nodes) {
                let ps = (process.access_ns[node] * PS as f64).round() as u64;
                longest = longest.max(ps);
                *sum = u128::from(ps) | 1 << (COUNT_SHIFT + COUNT_BITS * node as u32);
            }
            self.sums.push(sums);
            self.longest_ps.push(longest);
        }
    }

    /// Lets a thread run until `end`, or its end of life. Returns early, with true, after a fault or sample.
    fn turn(&mut self, world: &mut World, number: u32, end_ps: u64) -> bool {
        let thread = &mut self.threads[number as usize];
        let process = thread.process;
        let (sums, longest) = (&self.sums[process], self.longest_ps[process]);
        while thread.clock_ps < end_ps {
            if thread.left == 0 {
                world.system.now = Nanos(thread.clock_ps / PS);
                if !thread.enter(world, number) {
                    return false;
                }
            }
            if thread.at == BATCH {
                thread.draw(world);
            }
            // So few that only the last access can pass the end.
            let n = (BATCH - thread.at)
                .min(usize::try_from((end_ps - thread.clock_ps) / longest + 1).unwrap_or(BATCH))
                .min(usize::try_from(thread.left).unwrap_or(BATCH))
                .min(usize::try_from(thread.until_pause).unwrap_or(BATCH))
                .min(usize::try_from(thread.until_sample.saturating_add(1)).unwrap_or(BATCH));
            let batch = &thread.batch[thread.at..thread.at + n];
            let bytes = world.system.memory.bytes_mut();
            let (done, sum) = access_all(bytes, batch, sums);
            thread.count(world, done, sum);
            if done < n {
                // The next page is marked: the fault comes first, the access is made after it.
                let page = thread.batch[thread.at];
                world.system.now = Nanos(thread.clock_ps / PS);
                let cost = world.fault(number, page);
                thread.clock_ps += (cost * PS as f64) as u64;
                return true;
            }
            if thread.until_pause == 0 {
                thread.pause(world, number);
            }
            if thread.until_sample == u64::MAX - 1 {
                // The last access of the batch was the one to sample.
                let page = thread.batch[thread.at - 1];
                world.system.now = Nanos(thread.clock_ps / PS);
                let cost = world.sample(number, page);
                thread.clock_ps += (cost * PS as f64) as u64;
                let next = self.next_sample(world, number);
                self.threads[number as usize].until_sample = next;
                return true;
            }
        }
        false
    }
}

/// Accesses the pages until one is marked; returns how many, and the sum of what they add.
#[inline]
fn access_all(bytes: &mut [u8], batch: &[Page], sums: &Sums) -> (usize, u128) {
    let mut sum = 0u128;
    for (i, page) in batch.iter().enumerate() {
        let byte = &mut bytes[*page as usize];
        let old = *byte;
        if old & flags::MARKED != 0 {
            return (i, sum);
        }
        *byte = old | flags::ACCESSED;
        sum += sums[usize::from(old & flags::NODE)];
    }
    (batch.len(), sum)
}

fn pause_after(world: &World, process: usize) -> u64 {
    match world.system.processes[process].think_after {
        0 => u64::MAX,
        n => n,
    }
}

impl Thread {
    /// Begins the next phase; false at the end of life.
    fn enter(&mut self, world: &mut World, number: u32) -> bool {
        self.phase = world.next_phase(number);
        self.left = self.phase.as_ref().map_or(0, |p| p.accesses);
        // Accesses of the phase before that were drawn but not made.
        self.at = BATCH;
        self.phase.is_some()
    }

    fn draw(&mut self, world: &World) {
        let Some(phase) = &mut self.phase else { return };
        // No more than will be made: a walk must not run ahead of its phase.
        let n = BATCH.min(usize::try_from(self.left).unwrap_or(BATCH));
        self.at = BATCH - n;
        let space = &world.system.memory.spaces[self.process];
        let batch = &mut self.batch[self.at..];
        access::fill(space, &mut phase.shape, &mut self.random, batch);
        let bytes = world.system.memory.bytes(0..world.system.memory.pages() as Page);
        for page in batch {
            prefetch(bytes, *page as usize);
        }
    }

    fn count(&mut self, world: &mut World, done: usize, sum: u128) {
        self.at += done;
        self.left -= done as u64;
        self.clock_ps += (sum & ((1 << COUNT_SHIFT) - 1)) as u64;
        if self.until_pause != u64::MAX {
            self.until_pause -= done as u64;
        }
        if self.until_sample != u64::MAX {
            // Below zero, as one less than "never", when the access to sample has been made.
            self.until_sample = self.until_sample.checked_sub(done as u64).unwrap_or(u64::MAX - 1);
        }
        world.system.counters.accesses += done as u64;
        for node in 0..NODES_MAX as u32 {
            let count = (sum >> (COUNT_SHIFT + COUNT_BITS * node)) as u64 & ((1 << COUNT_BITS) - 1);
            world.system.served[node as usize] += count as f64;
        }
    }

    fn pause(&mut self, world: &mut World, number: u32) {
        let process = &world.system.processes[self.process];
        let ns = process.think_ns * process.think_after as f64;
        self.until_pause = process.think_after;
        self.clock_ps += (ns * PS as f64) as u64;
        if process.think_sleeps {
            world.system.threads[number as usize].slept_ns += ns;
        }
    }
}

impl Mode for Exact {
    fn advance(&mut self, world: &mut World, until: Nanos) {
        self.refresh(world);
        let mut until = until;
        loop {
            let running = self.threads.iter().enumerate().filter(|(_, t)| t.phase.is_some());
            let behind = running.min_by_key(|(_, t)| t.clock_ps).map(|(i, t)| (i as u32, t.clock_ps));
            let until_ps = until.0.saturating_mul(PS);
            let Some((number, clock_ps)) = behind.filter(|(_, clock)| *clock < until_ps) else { break };
            let alone = self.threads.iter().filter(|t| t.phase.is_some()).nth(1).is_none();
            let end_ps = if alone { until_ps } else { until_ps.min(clock_ps + TURN_PS) };
            if self.turn(world, number, end_ps) {
                until = until.min(world.next_due());
            } else if world.system.finished() {
                return;
            }
        }
        world.system.now = world.system.now.max(until);
    }

    fn models_have_run(&mut self, world: &mut World) {
        let now_ps = world.system.now.0 * PS;
        for (thread, state) in self.threads.iter_mut().zip(&mut world.system.threads) {
            let debt = std::mem::take(&mut state.debt_ns);
            if debt > 0.0 {
                thread.clock_ps = thread.clock_ps.max(now_ps) + (debt * PS as f64) as u64;
            }
        }
    }
}
