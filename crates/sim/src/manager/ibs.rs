//! IBS-driven NUMA balancing (S1): sampled accesses replace hint faults, and nothing scans.
//!
//! Each thread is sampled once in a number of micro-operations, from a second after its start on;
//! the period adapts every 250 placements by the scan period's formula (core's `scan_period`). A
//! useful sample is handled like a hint fault, and counted as one, by task work of its thread.
//! Without scans, the latency of a page is the time since its previous sample. Between the nodes of
//! the top tier pages follow the thread that is sampled, as in ordinary NUMA balancing; in tiering
//! mode a sample of a top-tier page is an event, but not useful.
//!
//! Source: S1 and its series of 2023; costs from the overheads it reports (node 1): 7.35 us a hint,
//! and 19.2 s of switching the hardware on and off against 70.1 s of task work. Not modelled: pages
//! that another process shares.

use thermocline_core::published::scan_period::{
    Accesses, PLACEMENTS, SAMPLE_PERIOD_MAX_UOPS, SAMPLE_PERIOD_MIN_UOPS, SAMPLE_PERIOD_UOPS, adapt,
    placement_interval,
};
use thermocline_core::published::threshold::free_space_enough;
use thermocline_core::units::Nanos;

use super::{Manager, Notes, Sampling};
use crate::kernel::hint_fault::HintFaults;
use crate::memory::{MARK_SHIFT, flags};
use crate::system::{Fault, SampledAccess, System, Thread};

/// Accesses to memory from one sample of them to the next, per micro-operation of the sampling
/// period. The hardware picks micro-operations evenly, and each access is one, however many others
/// the program has between them. Derived, not fitted.
pub(super) const ACCESSES_PER_UOP: f64 = 1.0;
/// Time after its start at which a task is first sampled (S1: `access_faults_delay`).
const DELAY: Nanos = Nanos::from_ms(1000);

/// The sampling state of a thread.
#[derive(Clone, Copy, Debug)]
struct Task {
    period_uops: u32,
    placements: u32,
    /// No placement before this time.
    retry: Nanos,
    /// It has a preferred node: a thread takes that of the one which has started it.
    placed: bool,
    accesses: Accesses,
}

impl Default for Task {
    fn default() -> Task {
        Task {
            period_uops: SAMPLE_PERIOD_UOPS,
            placements: 0,
            retry: Nanos(0),
            placed: false,
            accesses: Accesses::default(),
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct Ibs {
    faults: HintFaults,
    tasks: Vec<Task>,
    /// When each page was last sampled, in the unit of marks, plus one; empty until the first
    /// sample.
    last: Vec<u32>,
    events: u64,
    useful: u64,
    /// A sample has hit a page below the top tier, so the kernel is in tiering mode and leaves the
    /// top tier's pages alone.
    tiering: bool,
}

impl Ibs {
    /// Creates the manager with this fault path.
    pub fn new(faults: HintFaults) -> Ibs {
        Ibs { faults, tasks: Vec::new(), last: Vec::new(), events: 0, useful: 0, tiering: false }
    }

    /// Counts a useful sample of a thread, and adapts its period. In tiering mode every one counts
    /// as remote and private, as promotions do there.
    fn count(&mut self, thread: u32, now: Nanos, local: bool, private: bool, failed: bool) {
        self.useful += 1;
        let task = &mut self.tasks[thread as usize];
        let accesses = &mut task.accesses;
        *(if local { &mut accesses.local } else { &mut accesses.remote }) += 1;
        *(if private { &mut accesses.private } else { &mut accesses.shared }) += 1;
        accesses.failed += u64::from(failed);
        if now < task.retry {
            return;
        }
        task.placements += 1;
        if task.placements == PLACEMENTS {
            task.period_uops =
                adapt(task.period_uops, SAMPLE_PERIOD_MIN_UOPS, SAMPLE_PERIOD_MAX_UOPS, &task.accesses);
            (task.placements, task.accesses, task.placed) = (0, Accesses::default(), true);
        }
        if task.placed {
            task.retry = now.plus(placement_interval(task.period_uops));
        }
    }
}

impl Manager for Ibs {
    fn name(&self) -> String {
        "ibs".to_owned()
    }

    fn tiering(&self) -> bool {
        true
    }

    fn sampling(&self, thread: u32) -> Option<Sampling> {
        let period = self.tasks.get(thread as usize).map_or(SAMPLE_PERIOD_UOPS, |t| t.period_uops);
        Some(Sampling { accesses: f64::from(period) * ACCESSES_PER_UOP })
    }

    fn on_sample(&mut self, system: &mut System, sample: &SampledAccess) -> f64 {
        if self.tasks.len() < system.threads.len() {
            let threads = &system.threads;
            let alone = |thread: &Thread| system.processes[usize::from(thread.process)].threads.len() == 1;
            self.tasks = threads.iter().map(|t| Task { placed: !alone(t), ..Task::default() }).collect();
            self.last = vec![0; system.memory.pages() as usize];
        }
        if system.now < system.threads[sample.thread as usize].started.plus(DELAY) {
            return 0.0;
        }
        self.events += 1;
        let sample_ns = system.machine.spec.cost.sample_ns;
        let node = system.memory.flags(sample.page) & flags::NODE;
        let alone = system.processes[sample.process].threads.len() == 1;
        let now = (system.now.0 >> MARK_SHIFT) as u32;
        let before = std::mem::replace(&mut self.last[sample.page as usize], now.wrapping_add(1));
        let local = node == sample.cpu_node;
        if !system.machine.is_kernel_lower(node) {
            if self.tiering {
                return 0.0;
            }
            system.counters.numa_hint_faults += 1;
            system.counters.numa_hint_faults_local += u64::from(local);
            system.counters.sampled_hints += 1;
            system.counters.not_promotable += 1;
            // The first sample of a page counts as private, as the first fault does.
            self.count(sample.thread, system.now, local, alone || before == 0, false);
            let cost = super::kernel::balance(system, sample.page, sample.cpu_node);
            return sample_ns + cost.unwrap_or(0.0);
        }
        self.tiering = true;
        system.counters.numa_hint_faults += 1;
        system.counters.sampled_hints += 1;
        let room = free_space_enough(&system.node_state(sample.cpu_node));
        if before == 0 && !room {
            // No earlier sample to measure a latency from.
            system.counters.rejected_latency += 1;
            self.count(sample.thread, system.now, false, true, false);
            return sample_ns;
        }
        let fault = Fault {
            thread: sample.thread,
            process: sample.process,
            page: sample.page,
            node,
            cpu_node: sample.cpu_node,
            marked: before.saturating_sub(1),
            faults: 0,
        };
        let failed = system.counters.failed_no_room;
        let cost = self.faults.fault(system, &fault);
        self.count(sample.thread, system.now, false, true, system.counters.failed_no_room > failed);
        sample_ns + cost
    }

    fn finish(&mut self, _system: &System) -> Result<Notes, String> {
        Ok(Notes {
            latencies: std::mem::take(&mut self.faults.latencies.samples),
            figures: vec![
                ("ibs_nr_events".to_owned(), self.events),
                ("ibs_useful_samples".to_owned(), self.useful),
            ],
            ..Notes::default()
        })
    }
}
