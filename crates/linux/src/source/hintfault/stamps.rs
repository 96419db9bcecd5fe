//! Computes when the kernel's scanner last stamped each page, from the ranges that it was seen to
//! scan.
//!
//! The kernel does not publish a page's stamp. What can be observed is when each scan of a range
//! begins and ends, how many entries it marked, and when it reaches each page table on the way. A
//! page is stamped by the first scan that covers it after its last fault, because the kernel does
//! not stamp a page again while it stays marked; with `restamp` it is stamped by the latest scan
//! (S0, patch 2). A latency in faults counts the hint faults of base pages in the same process (S0,
//! patch 1).
//!
//! Known error, for one fault per page: a page that was mapped, or demoted by the kernel, after
//! scans of its range were seen. Its first latency is too long, so it seems colder than it is until
//! it faults again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use thermocline_core::access::{FaultLatency, Scans};
use thermocline_core::pace::{Passes, followed};
use thermocline_core::units::{Nanos, PAGES_PER_MIB, Pid};

use super::chunk::{CHUNK_PAGES, CHUNK_SHIFT, Chunk, ChunkScan};
use super::decode::{RawFault, RawScan};

/// A range that begins this long after the end of the previous one belongs to another step. Within
/// a step ranges follow each other immediately.
const STEP_APART: Nanos = Nanos::from_ms(2);
/// Maximum number of scans of one process in progress at the same time.
const OPEN_SCANS_MAX: usize = 4;
/// Maximum number of faults during a scan whose order relative to it is determined when it ends.
/// Later ones count as answered.
const PENDING_MAX: usize = 65536;
/// Maximum number of ticks remembered of one scan: the page tables of 8 GiB.
const TICKS_MAX: usize = 4096;
/// Memory per chunk, in bytes: the chunk, its page states, and its entries in two tables.
const CHUNK_BYTES: usize = size_of::<Slot>() + CHUNK_PAGES + 32;

/// Limits and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampOptions {
    /// Maximum number of processes remembered.
    pub processes_max: usize,
    /// Memory for scans, in bytes.
    pub history_bytes: usize,
    /// A page's stamp is that of the latest scan that covers it, not of the first after its last
    /// fault.
    pub restamp: bool,
}

thermocline_core::statistics! {
    /// What had to be forgotten for want of room.
    #[derive(Copy)]
    StampStats "source_stamps" {
        /// Processes known.
        processes: u64, "processes", Gauge;
        /// Chunks (2 MiB each) with a history.
        chunks: u64, "chunks", Gauge;
        /// Processes forgotten because too many were known.
        processes_evicted: u64, "processes", Counter;
        /// Chunks forgotten because the memory for scans was used up.
        chunks_evicted: u64, "chunks", Counter;
        /// Scans whose end was never seen.
        scans_unfinished: u64, "scans", Counter;
        /// Time that scans took of the programs that they marked, from begin to end.
        scan_time: Nanos, "ns", Counter;
        /// Faults with a latency.
        stamped: u64, "faults", Counter;
        /// Faults of pages that no scan was seen to cover since their last fault.
        unstamped: u64, "faults", Counter;
    }
}

/// The scans of all processes.
#[derive(Debug)]
pub struct Stamps {
    options: StampOptions,
    chunks_max: usize,
    processes: HashMap<u32, Process, BuildHasherDefault<Mix>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Where the search for a chunk to evict continues.
    hand: usize,
    stats: StampStats,
}

#[derive(Debug, Default)]
struct Process {
    faults: u32,
    /// Slot of each chunk, by virtual page number >> [`CHUNK_SHIFT`].
    chunks: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    open: Vec<OpenScan>,
    /// Faults within a range while it was being scanned.
    pending: Vec<Pending>,
    /// What the last scan took per page, in nanoseconds: it predicts how far a scan in progress has
    /// come.
    ns_per_page: u64,
    /// First page of the last range.
    last_start: u64,
    /// When the last range was completely marked.
    last_end: Nanos,
    /// How scans pass over it. The first pass may have begun before the process was first seen.
    passes: Passes,
}

#[derive(Debug)]
struct OpenScan {
    scan: RawScan,
    faults: u32,
    /// When each page table was reached, in order of address. Missing page tables are not in the
    /// list.
    ticks: Vec<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    vpn: u64,
    time: Nanos,
    pmd: bool,
}

#[derive(Debug)]
struct Slot {
    pid: u32,
    number: u64,
    /// Scanned since the hand last passed it.
    recent: bool,
    chunk: Chunk,
}

impl OpenScan {
    fn covers(&self, vpn: u64) -> bool {
        (self.scan.start..self.scan.end).contains(&vpn)
    }

    fn pages(&self) -> u64 {
        self.scan.end - self.scan.start
    }

    /// When the scan, which ended at `end`, passed `vpn`.
    fn passed(&self, vpn: u64, end: Nanos) -> Nanos {
        let first = self.scan.start >> CHUNK_SHIFT;
        let chunks = (self.scan.end.saturating_sub(1) >> CHUNK_SHIFT).saturating_sub(first) + 1;
        let index = (vpn >> CHUNK_SHIFT).saturating_sub(first).min(chunks - 1);
        // Missing page tables give no tick. Which ones are missing is not known, so the ticks are
        // spread evenly over all.
        let tick = (u128::from(index) * self.ticks.len() as u128 / u128::from(chunks)) as usize;
        // A page table stays locked from its tick until all its pages are marked. A fault takes the
        // same lock, so none of its pages faults in between.
        self.ticks.get(tick).copied().unwrap_or_else(|| {
            between(self.scan.time, end, vpn.saturating_sub(self.scan.start), self.pages())
        })
    }

    /// When the scan, still in progress at `now`, passed `vpn`; `None` if it probably has not yet.
    fn passed_by(&self, vpn: u64, now: Nanos, ns_per_page: u64) -> Option<Nanos> {
        let chunk = (vpn >> CHUNK_SHIFT).saturating_sub(self.scan.start >> CHUNK_SHIFT);
        let passed = match self.ticks.get(chunk as usize) {
            Some(&tick) => tick,
            None if self.ticks.is_empty() => {
                let before = vpn.saturating_sub(self.scan.start);
                self.scan.time.plus(Nanos(before.saturating_mul(ns_per_page)))
            }
            None => return None,
        };
        (passed <= now).then_some(passed)
    }
}

/// The time `part` of `whole` into the span between two times.
fn between(from: Nanos, to: Nanos, part: u64, whole: u64) -> Nanos {
    let share = u128::from(to.since(from).0) * u128::from(part.min(whole)) / u128::from(whole.max(1));
    from.plus(Nanos(share as u64))
}

impl Process {
    fn fault(&mut self, slots: &mut [Slot], fault: &RawFault, restamp: bool) -> Option<FaultLatency> {
        let faults = self.faults;
        self.faults = faults.wrapping_add(u32::from(!fault.pmd));
        let chunk = self.chunks.get(&(fault.vpn >> CHUNK_SHIFT)).map(|&slot| &mut slots[slot as usize].chunk);
        let page = fault.vpn as usize % CHUNK_PAGES;
        let mut stamp = chunk.as_ref().and_then(|chunk| match restamp {
            false => chunk.first_after_fault(page).copied(),
            true => chunk.latest_after_fault(page).copied(),
        });
        if let Some(open) = self.open.iter().find(|open| open.covers(fault.vpn)) {
            let passed = open.passed_by(fault.vpn, fault.time, self.ns_per_page);
            // If nothing else has marked the page, this scan has. With `restamp` it may have
            // stamped it again.
            if stamp.is_none() || (restamp && passed.is_some()) {
                let time = passed.unwrap_or(fault.time);
                stamp = Some(ChunkScan { time, faults: open.faults, start: 0, end: 0 });
            }
            if self.pending.len() < PENDING_MAX {
                self.pending.push(Pending { vpn: fault.vpn, time: fault.time, pmd: fault.pmd });
            }
        }
        if let Some(chunk) = chunk {
            chunk.answer(page, fault.pmd);
        }
        stamp.map(|stamp| FaultLatency {
            time: fault.time.since(stamp.time),
            faults: faults.wrapping_sub(stamp.faults),
        })
    }
}

impl Stamps {
    /// Sets whether the stamp of a page is from now on that of the latest scan that covers it, or
    /// that of the first after its last fault.
    pub fn set_restamp(&mut self, restamp: bool) {
        self.options.restamp = restamp;
    }

    /// Starts without any scans seen.
    pub fn new(options: StampOptions) -> Stamps {
        Stamps {
            options,
            chunks_max: (options.history_bytes / CHUNK_BYTES).clamp(1, u32::MAX as usize),
            processes: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            stats: StampStats::default(),
        }
    }

    /// A scan begins to mark a range.
    pub fn scan_begin(&mut self, scan: RawScan) {
        if let Some(lost) = self.take_open(scan.pid, scan.tid) {
            self.stats.scans_unfinished += 1;
            let process = self.process(scan.pid);
            let end = lost.scan.time.plus(Nanos(lost.pages().saturating_mul(process.ns_per_page)));
            self.close(&lost, end);
        }
        let process = self.process(scan.pid);
        if scan.time.since(process.last_end) >= STEP_APART {
            process.passes.step(scan.time);
        }
        if scan.start < process.last_start {
            process.passes.end();
        }
        process.last_start = scan.start;
        if process.open.len() < OPEN_SCANS_MAX {
            let faults = process.faults;
            process.open.push(OpenScan { scan, faults, ticks: Vec::new() });
        } else {
            self.stats.scans_unfinished += 1;
        }
    }

    /// A scan reaches its next page table.
    pub fn scan_tick(&mut self, tick: RawScan) {
        let process = self.processes.get_mut(&tick.pid.0);
        let open = process.and_then(|process| process.open.iter_mut().find(|open| open.scan.tid == tick.tid));
        if let Some(open) = open.filter(|open| open.ticks.len() < TICKS_MAX) {
            open.ticks.push(tick.time);
        }
    }

    /// A scan has marked a range.
    pub fn scan_end(&mut self, scan: RawScan) {
        let Some(open) = self.take_open(scan.pid, scan.tid) else { return };
        if (open.scan.start, open.scan.end) != (scan.start, scan.end) {
            self.stats.scans_unfinished += 1;
            return;
        }
        self.stats.scan_time = self.stats.scan_time.plus(scan.time.since(open.scan.time));
        if scan.updated > 0 || self.options.restamp {
            self.close(&open, scan.time);
        }
        let process = self.process(scan.pid);
        process.last_end = scan.time;
        process.passes.mark(scan.updated.into());
        if scan.updated > 0 {
            process.ns_per_page = scan.time.since(open.scan.time).0 / open.pages().max(1);
        }
        if process.open.is_empty() {
            process.pending.clear();
        }
    }

    /// A page faults. Returns its latency, if a scan was seen to cover it since its last fault.
    pub fn fault(&mut self, fault: &RawFault) -> Option<FaultLatency> {
        let latency = match self.processes.get_mut(&fault.pid.0) {
            Some(process) => process.fault(&mut self.slots, fault, self.options.restamp),
            None => {
                self.process(fault.pid).faults = u32::from(!fault.pmd);
                None
            }
        };
        match latency {
            Some(_) => self.stats.stamped += 1,
            None => self.stats.unstamped += 1,
        }
        latency
    }

    /// `count` faults of a process were lost.
    pub fn lost(&mut self, pid: Pid, count: u64) {
        if let Some(process) = self.processes.get_mut(&pid.0) {
            process.faults = process.faults.wrapping_add(count as u32);
        }
    }

    /// A page was moved: its entry is new, and the next scan that covers it on a lower tier stamps
    /// it.
    pub fn moved(&mut self, pid: Pid, vpn: u64) {
        let slot = self.processes.get(&pid.0).and_then(|process| process.chunks.get(&(vpn >> CHUNK_SHIFT)));
        if let Some(&slot) = slot {
            self.slots[slot as usize].chunk.answer(vpn as usize % CHUNK_PAGES, false);
        }
    }

    /// Whether a scan was seen to cover a page after its last fault. If so, its next access is a
    /// hint fault.
    pub fn is_marked(&self, pid: Pid, vpn: u64) -> bool {
        let process = self.processes.get(&pid.0);
        let slot = process.and_then(|process| process.chunks.get(&(vpn >> CHUNK_SHIFT)));
        slot.is_some_and(|&slot| {
            self.slots[slot as usize].chunk.first_after_fault(vpn as usize % CHUNK_PAGES).is_some()
        })
    }

    /// A process ended or has replaced its address space.
    pub fn forget(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid.0) else { return };
        for slot in process.chunks.into_values() {
            self.slots[slot as usize].chunk = Chunk::new();
            self.free.push(slot);
        }
    }

    /// How the kernel scans the process that the pace follows at `now`, and how much of its memory
    /// has been scanned. `None` before the third step of any process.
    pub fn scans(&self, now: Nanos) -> Option<Scans> {
        let mib = |process: &Process| (process.chunks.len() * CHUNK_PAGES) as u64 / PAGES_PER_MIB;
        followed(now, self.processes.iter().map(|(pid, process)| (Pid(*pid), &process.passes, mib(process))))
    }

    /// The current counters.
    pub fn stats(&self) -> StampStats {
        StampStats {
            processes: self.processes.len() as u64,
            chunks: (self.slots.len() - self.free.len()) as u64,
            ..self.stats
        }
    }

    fn take_open(&mut self, pid: Pid, tid: u32) -> Option<OpenScan> {
        let process = self.processes.get_mut(&pid.0)?;
        let index = process.open.iter().position(|open| open.scan.tid == tid)?;
        Some(process.open.swap_remove(index))
    }

    /// Enters a scan that ended at `ended` into the chunks that it covered, and determines the
    /// order of the faults that occurred during it.
    fn close(&mut self, open: &OpenScan, ended: Nanos) {
        let pid = open.scan.pid;
        let numbers = open.scan.start >> CHUNK_SHIFT
            ..open.scan.end.saturating_add(CHUNK_PAGES as u64 - 1) >> CHUNK_SHIFT;
        for number in numbers.take(self.chunks_max) {
            let first = number << CHUNK_SHIFT;
            let (start, end) = (open.scan.start.max(first), open.scan.end.min(first + CHUNK_PAGES as u64));
            let scan = ChunkScan {
                time: open.passed(start + (end - start) / 2, ended),
                faults: open.faults,
                start: (start - first) as u16,
                end: (end - first) as u16,
            };
            let slot = self.slot(pid, number);
            slot.recent = true;
            slot.chunk.push(scan);
        }
        let Some(process) = self.processes.get(&pid.0) else { return };
        // Only a page that faulted after the scan passed it has answered the scan. One that faulted
        // earlier was marked afterwards.
        let after = |fault: &&Pending| open.covers(fault.vpn) && fault.time >= open.passed(fault.vpn, ended);
        for fault in process.pending.iter().filter(after) {
            if let Some(&slot) = process.chunks.get(&(fault.vpn >> CHUNK_SHIFT)) {
                self.slots[slot as usize].chunk.answer(fault.vpn as usize % CHUNK_PAGES, fault.pmd);
            }
        }
    }

    fn process(&mut self, pid: Pid) -> &mut Process {
        if !self.processes.contains_key(&pid.0) && self.processes.len() >= self.options.processes_max.max(1) {
            let oldest = self
                .processes
                .iter()
                .min_by_key(|(pid, p)| (p.passes.last_step(), **pid))
                .map(|(pid, _)| Pid(*pid));
            if let Some(oldest) = oldest {
                self.forget(oldest);
                self.stats.processes_evicted += 1;
            }
        }
        self.processes.entry(pid.0).or_default()
    }

    /// The slot of chunk `number` of a known process. If it must be created and memory is used up,
    /// it takes the place of a chunk that was not scanned recently.
    fn slot(&mut self, pid: Pid, number: u64) -> &mut Slot {
        let known = self.processes.get(&pid.0).and_then(|p| p.chunks.get(&number)).copied();
        let index = known.unwrap_or_else(|| {
            let index = self.vacant_slot();
            self.slots[index as usize] = Slot { pid: pid.0, number, recent: true, chunk: Chunk::new() };
            self.processes.entry(pid.0).or_default().chunks.insert(number, index);
            index
        });
        &mut self.slots[index as usize]
    }

    fn vacant_slot(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        if self.slots.len() < self.chunks_max {
            self.slots.push(Slot { pid: 0, number: 0, recent: false, chunk: Chunk::new() });
            return (self.slots.len() - 1) as u32;
        }
        // Second chance: at most two rounds, because the first clears every `recent`.
        while self.slots[self.hand].recent {
            self.slots[self.hand].recent = false;
            self.hand = (self.hand + 1) % self.slots.len();
        }
        let index = self.hand;
        self.hand = (self.hand + 1) % self.slots.len();
        let victim = &self.slots[index];
        if let Some(process) = self.processes.get_mut(&victim.pid) {
            process.chunks.remove(&victim.number);
        }
        self.stats.chunks_evicted += 1;
        index as u32
    }
}

/// A hasher for numbers that no adversary chooses: one multiplication (by 2^64 divided by the
/// golden ratio), with the high bits mixed into the low ones.
#[derive(Clone, Copy, Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
mod tests;
