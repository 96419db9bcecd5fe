//! The sampler of the lab's emulator: tagged accesses that missed, in rings of shared memory, one
//! per CPU.
//!
//! No real machine has it. Its samples name no process, like those of a device or of a guest's
//! accesses, so they are evidence of frames; [`crate::reverse`] finds their owners. It polls the
//! rings, because nothing wakes it.

#[cfg(feature = "bpf")]
mod evidence;
mod layout;
mod probe;

use std::os::fd::BorrowedFd;

use thermocline_core::config::HwSample;
use thermocline_core::pace::SamplePeriod;
use thermocline_core::units::{Nanos, Pid};

use super::Stats;
use super::useful::Judge;
use crate::clock::thread_cpu_time;
use crate::root::Root;
use crate::source::lab_device::{self, NoLabDevice};
use crate::source::{AccessSource, Event};
use crate::sys::DeviceMemory;
pub(super) use probe::probe;

use layout::{ASKED, DROPPED, HEAD, Layout, PERIOD, SLOT_BYTES, TAIL, sighting};

/// Time over which the budget is kept.
const BUDGET_EVERY: Nanos = Nanos::from_s(1);

/// Samples of all CPUs of the lab's machine.
#[derive(Debug)]
pub struct LabRings {
    memory: DeviceMemory,
    layout: Layout,
    judge: Judge,
    /// The ring to read first next time, so that a busy one does not starve the others.
    next: usize,
    /// What the rings had dropped when they were opened.
    dropped_before: u64,
    /// CPU time that reading may take in [`BUDGET_EVERY`].
    allowed: Nanos,
    budget_began: Nanos,
    spent: Nanos,
    period: SamplePeriod,
    stats: Stats,
}

impl LabRings {
    /// Maps the rings. Samples waiting in them are old and discarded.
    ///
    /// # Errors
    /// [`NoLabDevice`].
    pub fn open(root: &Root, config: &HwSample, judge: Judge, now: Nanos) -> Result<LabRings, NoLabDevice> {
        let (memory, layout) = lab_device::open(root, |memory| {
            Layout::read([0, 8, 16].map(|at| u64::from_le(memory.load(at))), memory.bytes())
        })?;
        let allowed = layout.rings as u64 * u64::from(config.cpu_budget_permille) * 1_000_000;
        let stats = Stats { sampler: "lab rings", cpus: layout.rings as u32, ..Stats::default() };
        let mut rings = LabRings {
            memory,
            layout,
            judge,
            next: 0,
            dropped_before: 0,
            allowed: Nanos(allowed),
            budget_began: now,
            spent: Nanos(0),
            period: SamplePeriod::new(config, layout.rings, now),
            stats,
        };
        rings.dropped_before = rings.dropped();
        rings.ask();
        for ring in 0..layout.rings {
            rings.set(ring, TAIL, rings.mark(ring, HEAD));
        }
        Ok(rings)
    }

    /// The counters, as of now.
    pub fn stats(&self) -> Stats {
        let waiting = |ring| self.mark(ring, HEAD).wrapping_sub(self.mark(ring, TAIL));
        let samples: u64 = (0..self.layout.rings).map(|ring| waiting(ring).min(self.layout.slots())).sum();
        let period = u32::try_from(self.mark(0, PERIOD)).unwrap_or(u32::MAX);
        Stats {
            period: (period > 0).then_some(period),
            lost: self.dropped().wrapping_sub(self.dropped_before),
            budgeted: self.over_budget(),
            waiting_bytes: samples * SLOT_BYTES as u64,
            ..self.stats.clone()
        }
    }

    /// Asks for the period that the samples so far call for; the host may have set another. What
    /// reading costs does not count.
    fn ask(&self) {
        for ring in 0..self.layout.rings {
            self.set(ring, ASKED, self.period.events().into());
        }
    }

    fn over_budget(&self) -> bool {
        self.spent >= self.allowed
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le(self.memory.load(at))
    }

    fn mark(&self, ring: usize, mark: usize) -> u64 {
        self.word(self.layout.marks(ring) + mark)
    }

    fn set(&self, ring: usize, mark: usize, value: u64) {
        self.memory.store(self.layout.marks(ring) + mark, value.to_le());
    }

    fn dropped(&self) -> u64 {
        (0..self.layout.rings).fold(0, |sum, ring| sum.wrapping_add(self.mark(ring, DROPPED)))
    }

    fn read(&mut self, ring: usize, max: usize, now: Nanos, each: &mut impl FnMut(Event)) -> usize {
        let (head, tail) = (self.mark(ring, HEAD), self.mark(ring, TAIL));
        let waiting = head.wrapping_sub(tail);
        if waiting == 0 {
            return 0;
        }
        // The marks were overwritten: the slots between them are not unread samples.
        if waiting > self.layout.slots() {
            self.stats.malformed += 1;
            self.set(ring, TAIL, head);
            return 0;
        }
        self.judge.set_period(u32::try_from(self.mark(ring, PERIOD)).unwrap_or(u32::MAX));
        let newest = self.word(self.layout.slot(ring, head.wrapping_sub(1)));
        let count = waiting.min(max as u64);
        for n in 0..count {
            let at = self.layout.slot(ring, tail.wrapping_add(n));
            let words = [0, 8, 16, 24].map(|word| self.word(at + word));
            // No process is named, so no sample can be out of scope yet.
            let judged = self.judge.judge(&sighting(words, ring, newest, now), |_| true);
            self.stats.samples.count(&judged);
            if let Ok(access) = judged {
                each(Event::Access(access));
            }
        }
        self.set(ring, TAIL, tail.wrapping_add(count));
        count as usize
    }
}

impl AccessSource for LabRings {
    /// Allocates nothing. Beyond the budget it reads nothing for the rest of the second: samples
    /// that the rings cannot hold are dropped and counted there.
    fn poll(
        &mut self,
        records_max: usize,
        now: Nanos,
        _in_scope: impl Fn(Pid) -> bool,
        mut each: impl FnMut(Event),
    ) -> usize {
        if now.since(self.budget_began) >= BUDGET_EVERY {
            self.budget_began = now;
            self.spent = Nanos(0);
        }
        if self.over_budget() {
            return 0;
        }
        let start = thread_cpu_time();
        let before = self.stats.samples;
        let mut records = 0;
        for turn in 0..self.layout.rings {
            let ring = (self.next + turn) % self.layout.rings;
            records += self.read(ring, records_max - records, now, &mut each);
            if records >= records_max {
                self.next = ring + 1;
                break;
            }
        }
        if records > 0 {
            let spent = thread_cpu_time().since(start);
            self.spent = self.spent.plus(spent);
            self.stats.read_ns = self.stats.read_ns.plus(spent);
            self.stats.samples.tell(&before, &mut self.period, spent, false);
            self.ask();
        }
        records
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::empty()
    }
}

#[cfg(test)]
mod tests;
