//! The scanner of NUMA balancing: periodically makes a part of a process's memory inaccessible, so
//! that its next access causes a fault.
//!
//! 1. A task asks for a scan when its CPU time has advanced by its scan period since its stamp; the
//!    stamp advances by the period. If the process's next scan is due as well, the task scans, and
//!    the next one is due a period later.
//! 2. A scan starts where the last one ended. It goes through ranges of the scan size and marks
//!    pages below the top tier that are not marked yet. A range in which something was marked
//!    counts in full against the scan size, and every range counts against eight times the scan
//!    size. So memory of the top tier, and memory that is already marked, is passed over up to
//!    eight times as fast.
//! 3. The scanning task is charged for it, and its stamp advances by 32 times the cost: at most 3 %
//!    of its time is spent on scanning.
//! 4. At the end of memory a pass is complete; a task adapts its period when its next fault is
//!    recorded (core's `scan_period`). In tiering mode, where promotions are recorded as private
//!    and remote, that always doubles it, within limits that follow from the size of the process.
//!    Tasks that fault on each other's pages form a group; their longest period follows from their
//!    number and from the share of such faults.
//!
//! The first period: a forked process computes it from its size after its first second of CPU time;
//! a thread keeps the scan delay of 1000 ms until a pass is complete. Source: Linux 6.12
//! `kernel/sched/fair.c` (`task_tick_numa`, `task_numa_work`, `init_numa_balancing`,
//! `task_nr_scan_windows`, `task_scan_min`, `task_scan_max`, `task_numa_placement`,
//! `update_task_scan_period`, `task_numa_group`) and `mm/mprotect.c`. Not modelled:
//! several mappings, and the skipping of those that a task has not touched recently.

use std::ops::Range;

use thermocline_core::published::scan_period::{Group, adapt, is_idle};
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use super::Model;
use crate::memory::{MARK_SHIFT, Page, flags};
use crate::system::scan::{BLOCK_PAGES, period_max_ms, period_min_ms};
use crate::system::{NEVER, System};

/// The share of its time that a task may scan: one in 32.
const OVERHEAD_FACTOR: f64 = 32.0;
/// Scans whose fault counts are kept; with one scan per 100 ms this is a day.
const HISTORY_MAX: usize = 1 << 20;

/// A hint fault that counts, as the kernel's `task_numa_fault` takes it.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The page was on the node of the CPU.
    pub local: bool,
    /// No other task had faulted on the page before.
    pub private: bool,
    /// The page should have moved and could not.
    pub failed: bool,
}

/// Records a page that was promoted at a hint fault of `thread`: as private and remote, like the
/// kernel in tiering mode.
pub fn record_promotion(system: &mut System, thread: u32) {
    record(system, thread, Recorded { local: false, private: true, failed: false });
}

/// Records a hint fault of `thread` that counts. A task joins the group of its process at its first
/// shared fault, and adapts its period at its first fault after a pass.
pub fn record(system: &mut System, thread: u32, fault: Recorded) {
    let task = &mut system.threads[thread as usize];
    let process = &mut system.processes[usize::from(task.process)];
    if !fault.private && !task.scan.grouped {
        task.scan.grouped = true;
        process.scan.group.join(task.scan.faults);
    }
    if task.scan.passes != process.scan.passes {
        task.scan.passes = process.scan.passes;
        let min = period_min_ms(&system.kernel, process.rss);
        let alone = period_max_ms(&system.kernel, process.rss);
        let accesses = std::mem::take(&mut task.scan.accesses);
        let group = &mut process.scan.group;
        let longest = |group: &Group| if task.scan.grouped { group.max_ms(alone) } else { alone };
        let before = longest(group);
        let faults = task.scan.faults.after(&accesses);
        if task.scan.grouped {
            group.replace(task.scan.faults, faults);
        }
        // Doubling keeps to the limit that was computed before these faults were added to the
        // group's, any other change to the one after.
        let max = if is_idle(&accesses) { before } else { longest(group) };
        task.scan.faults = faults;
        task.scan.period_ms = u64::from(adapt(task.scan.period_ms as u32, min as u32, max as u32, &accesses));
        if is_idle(&accesses) {
            process.scan.next = system.now.plus(Nanos::from_ms(task.scan.period_ms));
        }
    }
    let accesses = &mut task.scan.accesses;
    *(if fault.local { &mut accesses.local } else { &mut accesses.remote }) += 1;
    *(if fault.private { &mut accesses.private } else { &mut accesses.shared }) += 1;
    accesses.failed += u64::from(fault.failed);
}

/// See the module's description; one for all processes.
#[derive(Clone, Copy, Debug)]
pub struct Scanner {
    tick: Nanos,
    due: Nanos,
}

impl Scanner {
    /// A scanner on a machine with `hz` ticks a second.
    pub fn new(hz: u32) -> Scanner {
        Scanner { tick: Nanos(1_000_000_000 / u64::from(hz.max(1))), due: Nanos(0) }
    }

    /// The first tick at or after a time.
    fn on_tick(&self, time: Nanos) -> Nanos {
        Nanos(time.0.div_ceil(self.tick.0).saturating_mul(self.tick.0))
    }

    /// Whether a task's CPU time has reached its next stamp, and if so takes it.
    fn asks(system: &mut System, thread: u32) -> bool {
        let task = &mut system.threads[thread as usize];
        let period = Nanos::from_ms(task.scan.period_ms);
        let due = task.finished.is_none() && task.cpu(system.now) >= task.scan.stamp.plus(period);
        if due {
            if std::mem::take(&mut task.scan.fresh) {
                let rss = system.processes[usize::from(task.process)].rss;
                task.scan.period_ms = period_min_ms(&system.kernel, rss);
            }
            task.scan.stamp = task.scan.stamp.plus(period);
        }
        due
    }

    /// One scan of a process by one of its threads.
    fn scan(&self, system: &mut System, process: usize, thread: u32) {
        let settings = system.kernel;
        let period = Nanos::from_ms(system.threads[thread as usize].scan.period_ms);
        let time = (system.now.0 >> MARK_SHIFT) as u32;
        let mm = &mut system.processes[process].scan;
        mm.next = system.now.plus(period);
        mm.pace.step(system.now);
        if mm.history.len() < HISTORY_MAX {
            mm.history.push((time, mm.faults));
        }
        let space = &system.memory.spaces[process];
        let (start, len) = (u64::from(space.start), u64::from(space.len()));
        let size = (settings.scan_size_mb * PAGES_PER_MIB) as i64;
        let (mut pages, mut virtual_pages) = (size, size * settings.scan_virtual_factor as i64);
        let mut all = Passed::default();
        let mut at = mm.offset;
        if at >= len {
            at = 0;
        }
        while pages > 0 && virtual_pages > 0 && at < len {
            let end = (at + pages as u64).next_multiple_of(BLOCK_PAGES).min(len);
            let range = mark_range(system, process, (start + at) as Page..(start + end) as Page, time);
            let passed = (end - at) as i64;
            if range.marked > 0 {
                pages -= passed;
            }
            virtual_pages -= passed;
            all.marked += range.marked;
            all.again += range.again;
            all.skipped += passed as u64 - range.marked - range.again;
            at = end;
        }
        let mm = &mut system.processes[process];
        mm.scan.pace.mark(all.marked);
        if at >= len {
            mm.scan.passes += 1;
            mm.scan.pace.end();
            mm.scan.offset = 0;
            mm.passes.push(system.now);
        } else {
            mm.scan.offset = at;
        }
        system.counters.numa_pte_updates += all.marked;
        let costs = &system.machine.spec.cost;
        // Stamping a page again costs as much as the first time: the page's descriptor is written.
        let again_ns = if settings.restamp { costs.scan_mark_ns } else { costs.scan_again_ns };
        // A huge page has one entry.
        let space = &system.memory.spaces[process];
        let entries = if space.huge { 1.0 / f64::from(crate::memory::HUGE_PAGES) } else { 1.0 };
        let ns = all.marked as f64 * costs.scan_mark_ns
            + all.again as f64 * again_ns
            + all.skipped as f64 * costs.scan_skip_ns;
        let ns = ns * entries;
        system.stall(thread, ns);
        system.scan_ns += ns;
        let task = &mut system.threads[thread as usize].scan;
        task.stamp = task.stamp.plus(Nanos(2 * self.tick.0 + (OVERHEAD_FACTOR * ns) as u64));
    }
}

/// Result of a scan for the pages that it passed.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    marked: u64,
    /// Found marked.
    again: u64,
    skipped: u64,
}

/// Marks the eligible pages of a range of a process; restamps marked ones if S0's second patch is
/// on.
fn mark_range(system: &mut System, process: usize, range: Range<Page>, time: u32) -> Passed {
    let lower = if system.kernel.scan_all { 0 } else { system.machine.kernel_top };
    let is_lower = |byte: u8| {
        let node = byte & flags::NODE;
        node >= lower && node != flags::NOWHERE
    };
    let restamp = system.kernel.restamp;
    let mut passed = Passed::default();
    let mut at = range.start;
    while at < range.end {
        // Most of memory is passed over: count it by blocks, in loops that the compiler can
        // vectorise.
        let block = (at + 4096).min(range.end);
        let bytes = system.memory.bytes(at..block);
        let below = count(bytes, is_lower);
        let again = count(bytes, |byte| byte & flags::MARKED != 0);
        passed.again += again;
        if below > again || (restamp && again > 0) {
            passed.marked += system.memory.mark(process, at..block, lower, time, restamp);
        }
        at = block;
    }
    passed
}

/// How many of the bytes are such. They are summed up in bytes, which the compiler vectorises to
/// most at a time, so by groups that a byte can count.
fn count(bytes: &[u8], is: impl Fn(u8) -> bool) -> u64 {
    let group = |group: &[u8]| group.iter().map(|byte| u8::from(is(*byte))).sum::<u8>();
    bytes.chunks(128).map(|bytes| u64::from(group(bytes))).sum()
}

impl Model for Scanner {
    fn name(&self) -> &'static str {
        "scanner"
    }

    fn due(&self, _system: &System) -> Nanos {
        self.due
    }

    fn run(&mut self, system: &mut System) {
        let mut due = NEVER;
        for process in 0..system.processes.len() {
            for thread in system.processes[process].threads.clone() {
                if Self::asks(system, thread) && system.now >= system.processes[process].scan.next {
                    self.scan(system, process, thread);
                }
                let task = &system.threads[thread as usize];
                if task.finished.is_none() {
                    // CPU time does not run faster than real time, so it is not due before.
                    let left =
                        task.scan.stamp.plus(Nanos::from_ms(task.scan.period_ms)).since(task.cpu(system.now));
                    due = due.min(system.now.plus(left));
                }
            }
        }
        self.due = self.on_tick(due.max(system.now.plus(Nanos(1))));
    }
}
