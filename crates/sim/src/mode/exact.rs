//! Exact mode: every access is made.
//!
//! Threads take turns, the one that is furthest behind first, for at most one `TURN_PS` if there
//! are several. The accesses of a turn are drawn in batches, so that the pages' bytes can be
//! prefetched; the time of an access is added from a table that counts accesses by node in the same
//! addition.

use std::ops::AddAssign;

use thermocline_core::units::Nanos;
use thermocline_mem::prefetch;

use super::Mode;
use crate::memory::{Page, flags};
use crate::random::{Random, Stream};
use crate::system::System;
use crate::workload::{Phase, access};
use crate::world::World;

/// Accesses drawn at a time; their number must fit [`COUNT_BITS`].
const BATCH: usize = 512;
/// Longest turn of a thread among several: accesses of two threads within it may be in the wrong
/// order.
const TURN_PS: u64 = 20_000_000;
const PS: u64 = 1000;

/// Bits for the number of a batch's accesses to a node.
const COUNT_BITS: u32 = 10;
/// Bits for a batch's time in ps below the numbers, in [`Sums::Narrow`] and [`Sums::Wide`].
const NARROW_BITS: u32 = 34;
const WIDE_BITS: u32 = 48;
/// Nodes of which [`Sums::Narrow`] can count the accesses, the first of them as the remainder.
const NARROW_NODES: usize = 4;
/// The same for [`Sums::Wide`], each of them.
const WIDE_NODES: usize = 8;
/// All nodes that a page's byte can name.
const MANY_NODES: usize = flags::NODE as usize + 1;

/// The increment of an access to each node: its time in ps, and above that ten bits per node for
/// the count.
#[derive(Clone, Debug)]
enum Sums {
    /// Few nodes and short accesses, the usual case: half the work.
    Narrow([u64; WIDE_NODES]),
    /// Machines of a usual size.
    Wide([u128; WIDE_NODES]),
    /// Any machine: only the times; accesses are counted individually.
    Many(Box<[u64; MANY_NODES]>),
}

impl Sums {
    fn new(times_ps: &[u64]) -> Sums {
        let longest = times_ps.iter().copied().max().unwrap_or(0);
        if times_ps.len() <= NARROW_NODES && longest.saturating_mul(BATCH as u64) < 1 << NARROW_BITS {
            let mut sums = [0; WIDE_NODES];
            for (node, ps) in times_ps.iter().enumerate() {
                let count = if node == 0 { 0 } else { 1 << (NARROW_BITS + COUNT_BITS * (node as u32 - 1)) };
                sums[node] = ps | count;
            }
            Sums::Narrow(sums)
        } else if times_ps.len() <= WIDE_NODES && longest.saturating_mul(BATCH as u64) < 1 << WIDE_BITS {
            let mut sums = [0; WIDE_NODES];
            for (node, ps) in times_ps.iter().enumerate() {
                sums[node] = u128::from(*ps) | 1 << (WIDE_BITS + COUNT_BITS * node as u32);
            }
            Sums::Wide(sums)
        } else {
            let mut times = Box::new([0; MANY_NODES]);
            times[..times_ps.len()].copy_from_slice(times_ps);
            Sums::Many(times)
        }
    }

    /// Accesses the pages until one is marked, and adds the number of accesses per node; returns
    /// their number and their time in ps.
    fn access(&self, bytes: &mut [u8], batch: &[Page], served: &mut [f64]) -> (usize, u64) {
        const COUNT: u64 = (1 << COUNT_BITS) - 1;
        match self {
            Sums::Narrow(sums) => {
                let (done, sum) = access_all(bytes, batch, sums);
                let mut first = done as u64;
                for (node, served) in served.iter_mut().enumerate().skip(1) {
                    let to = (sum >> (NARROW_BITS + COUNT_BITS * (node as u32 - 1))) & COUNT;
                    *served += to as f64;
                    first -= to;
                }
                served[0] += first as f64;
                (done, sum & ((1 << NARROW_BITS) - 1))
            }
            Sums::Wide(sums) => {
                let (done, sum) = access_all(bytes, batch, sums);
                for (node, served) in served.iter_mut().enumerate() {
                    let to = (sum >> (WIDE_BITS + COUNT_BITS * node as u32)) as u64 & COUNT;
                    *served += to as f64;
                }
                (done, (sum & ((1 << WIDE_BITS) - 1)) as u64)
            }
            Sums::Many(times) => access_each(bytes, batch, times, served),
        }
    }
}

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

    /// Accesses until the next sample of a thread: as in event mode, each access has the same
    /// probability.
    fn next_sample(&mut self, world: &World, thread: u32) -> u64 {
        match world.sampling(thread) {
            Some(accesses) => (self.samples.exponential() * accesses) as u64,
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
            let times = process.access_ns[..nodes].iter().map(|ns| (ns * PS as f64).round() as u64);
            let times: Vec<u64> = times.collect();
            self.sums.push(Sums::new(&times));
            self.longest_ps.push(times.into_iter().max().unwrap_or(1).max(1));
        }
    }

    /// Runs a thread until `end_ps`, or until it is done. Returns early, with true, after a fault
    /// or sample.
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
            // Few enough that only the last access can pass the end.
            let n = (BATCH - thread.at)
                .min(usize::try_from((end_ps - thread.clock_ps) / longest + 1).unwrap_or(BATCH))
                .min(usize::try_from(thread.left).unwrap_or(BATCH))
                .min(usize::try_from(thread.until_pause).unwrap_or(BATCH))
                .min(usize::try_from(thread.until_sample.saturating_add(1)).unwrap_or(BATCH));
            let batch = &thread.batch[thread.at..thread.at + n];
            let System { memory, served, .. } = &mut world.system;
            let (done, ps) = sums.access(memory.bytes_mut(), batch, served);
            thread.count(world, done, ps);
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
                // The last access of the batch is the sampled one.
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

/// Accesses the pages until one is marked; returns their number, and the sum of their increments.
#[inline]
fn access_all<T: Copy + Default + AddAssign>(
    bytes: &mut [u8],
    batch: &[Page],
    sums: &[T; WIDE_NODES],
) -> (usize, T) {
    let mut sum = T::default();
    for (i, page) in batch.iter().enumerate() {
        let byte = &mut bytes[*page as usize];
        let old = *byte;
        if old & flags::MARKED != 0 {
            return (i, sum);
        }
        *byte = old | flags::ACCESSED;
        // There are no more nodes; the modulo tells the compiler.
        sum += sums[usize::from(old & flags::NODE) % WIDE_NODES];
    }
    (batch.len(), sum)
}

/// The same on machines with many nodes, each access counted individually.
fn access_each(
    bytes: &mut [u8],
    batch: &[Page],
    times: &[u64; MANY_NODES],
    served: &mut [f64],
) -> (usize, u64) {
    let mut sum = 0u64;
    for (i, page) in batch.iter().enumerate() {
        let byte = &mut bytes[*page as usize];
        let node = usize::from(*byte & flags::NODE);
        if *byte & flags::MARKED != 0 {
            return (i, sum);
        }
        *byte |= flags::ACCESSED;
        sum = sum.saturating_add(times[node]);
        served[node] += 1.0;
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
    /// Begins the next phase; false if the thread is done.
    fn enter(&mut self, world: &mut World, number: u32) -> bool {
        self.phase = world.next_phase(number);
        self.left = self.phase.as_ref().map_or(0, |p| p.accesses);
        // Accesses of the phase before that were drawn but not made.
        self.at = BATCH;
        self.phase.is_some()
    }

    fn draw(&mut self, world: &World) {
        let Some(phase) = &mut self.phase else { return };
        // Not more than will be made: a walk must not run ahead of its phase.
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

    fn count(&mut self, world: &mut World, done: usize, ps: u64) {
        self.at += done;
        self.left -= done as u64;
        self.clock_ps += ps;
        if self.until_pause != u64::MAX {
            self.until_pause -= done as u64;
        }
        if self.until_sample != u64::MAX {
            // Below zero, as one less than "never", when the access to sample has been made.
            self.until_sample = self.until_sample.checked_sub(done as u64).unwrap_or(u64::MAX - 1);
        }
        world.system.counters.accesses += done as u64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sums_count_alike() {
        let times = [100_000, 250_000, 400_000, 1_000_000];
        let narrow = Sums::new(&times);
        assert!(matches!(narrow, Sums::Narrow(_)));
        let wide = Sums::new(&[&times[..], &[5]].concat());
        assert!(matches!(wide, Sums::Wide(_)) && matches!(Sums::new(&[1 << 26]), Sums::Wide(_)));
        let many = Sums::new(&[&times[..], &[5; 5]].concat());
        assert!(matches!(many, Sums::Many(_)) && matches!(Sums::new(&[1 << 40]), Sums::Many(_)));
        let batch: Vec<Page> = (0..BATCH as Page).map(|i| i * i % 1000).collect();
        for marked in [None, Some(batch[300])] {
            let mut bytes: Vec<u8> = (0..1000).map(|i| (i % 7 % 4) as u8).collect();
            marked.into_iter().for_each(|page| bytes[page as usize] |= flags::MARKED);
            let accessed = |sums: &Sums| {
                let mut served = vec![0.0; times.len()];
                let (done, ps) = sums.access(&mut bytes.clone(), &batch, &mut served);
                (done, ps, served)
            };
            let seen = accessed(&narrow);
            assert_eq!(seen, accessed(&wide));
            assert_eq!(seen, accessed(&many));
            assert_eq!(seen.2.iter().sum::<f64>(), seen.0 as f64);
            let time: f64 = seen.2.iter().zip(times).map(|(n, ps)| n * ps as f64).sum();
            assert_eq!((seen.1 as f64, marked.is_none()), (time, seen.0 == BATCH));
        }
    }
}
