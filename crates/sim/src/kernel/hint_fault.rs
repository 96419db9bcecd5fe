//! What the kernel does at a hint fault in tiering mode (`numa_balancing` = 2).
//!
//! 1. If the target, the node of the faulting CPU, has plenty of room, the page is promoted and the
//!    threshold reset.
//! 2. Otherwise the latency decides: the time since the scan against the threshold, which follows
//!    the candidates ([`Metric::Time`]), or hint faults of the process since the scan against a
//!    fixed number ([`Metric::Faults`], S0).
//! 3. A hot page is a candidate; above the rate limit it is refused.
//! 4. A candidate within the limit is migrated if the target stays above its high watermark;
//!    otherwise kswapd is woken and the page stays.
//!
//! Source: Linux 6.12 `kernel/sched/fair.c` (`should_numa_migrate_memory`) and `mm/migrate.c`
//! (`migrate_misplaced_folio_prepare`); S0, patch 1. The arithmetic is core's `published`.

use thermocline_core::published::fault_count;
use thermocline_core::published::stamp::StampWidth;
use thermocline_core::published::threshold::{
    ADJUST_PERIOD_MS, Threshold, free_space_enough, rate_limit_pages,
};

use super::scanner;
use crate::machine::NodeIndex;
use crate::memory::Page;
use crate::system::{Fault, START, System};

/// How the latency of a fault is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// In time: mainline.
    Time,
    /// In hint faults of the process: S0.
    Faults,
}

/// A sample of latencies in ms with the threshold at their time, as printed by S0.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Faults so far.
    faults: u64,
    /// Time of the fault in ms since the start of the run, its latency in ms, the threshold in ms.
    pub samples: Vec<(u64, u64, u64)>,
}

/// One latency in this many is kept.
const SAMPLE_EVERY: u64 = 4096;
/// Maximum number kept.
const SAMPLES_MAX: usize = 1 << 16;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct HintFaults {
    metric: Metric,
    width: StampWidth,
    /// A sample of the latencies.
    pub latencies: Latencies,
}

impl HintFaults {
    /// The fault path of a kernel built for `nr_cpus` CPUs.
    pub fn new(metric: Metric, nr_cpus: u32) -> HintFaults {
        HintFaults { metric, width: StampWidth::for_cpus(nr_cpus), latencies: Latencies::default() }
    }

    /// Handles a fault whose mark has been taken; returns what it costs the thread beyond the fault
    /// itself, in ns.
    pub fn fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        if !system.machine.is_kernel_lower(fault.node) {
            system.counters.not_promotable += 1;
            return 0.0;
        }
        let passes = passes(system, fault.cpu_node, |system| self.is_hot(system, fault));
        if !passes || !migrate(system, fault.page, fault.cpu_node) {
            return 0.0;
        }
        scanner::record_promotion(system, fault.thread);
        system.machine.spec.cost.migrate_ns
    }

    fn is_hot(&mut self, system: &mut System, fault: &Fault) -> bool {
        match self.metric {
            Metric::Faults => {
                let then = system.processes[fault.process].scan.faults_at(fault.marked);
                let latency = fault_count::latency(fault.faults, fault_count::stamp(then, self.width));
                fault_count::is_hot(latency, system.kernel.fault_count_threshold)
            }
            Metric::Time => {
                let settings = &system.kernel;
                let reference = settings.hot_threshold_ms;
                let balance = &mut system.balance[usize::from(fault.cpu_node)];
                let limit = rate_limit_pages(settings.promote_rate_limit_mbps);
                let period = settings.scan_period_max_ms;
                if balance.threshold.adjust(system.now, balance.candidates, limit, reference, period) {
                    balance.course.push((system.now, balance.threshold.ms(reference)));
                }
                let threshold = balance.threshold.ms(reference);
                let marked_ms = fault.marked_at().ms();
                let latency = self.width.latency_ms(system.now.ms(), self.width.stamp(marked_ms));
                let seen = &mut self.latencies;
                if seen.faults.is_multiple_of(SAMPLE_EVERY) && seen.samples.len() < SAMPLES_MAX {
                    seen.samples.push((system.now.since(START).ms(), latency, threshold));
                }
                seen.faults += 1;
                latency < threshold
            }
        }
    }
}

/// Whether a page may be migrated to a node: there is plenty of room, or the page is hot and the
/// rate limit allows it. Counts what is decided.
pub(super) fn passes(system: &mut System, to: NodeIndex, is_hot: impl FnOnce(&mut System) -> bool) -> bool {
    let target = usize::from(to);
    if free_space_enough(&system.node_state(to)) {
        let balance = &mut system.balance[target];
        if balance.threshold != Threshold::default() {
            balance.threshold.reset();
        }
        system.counters.free_space += 1;
        system.counters.pgpromote_candidate_nrl += 1;
        return true;
    }
    if !is_hot(system) {
        system.counters.rejected_latency += 1;
        return false;
    }
    system.counters.pgpromote_candidate += 1;
    let limit = rate_limit_pages(system.kernel.promote_rate_limit_mbps);
    let balance = &mut system.balance[target];
    balance.candidates += 1;
    if balance.rate.limited(system.now, balance.candidates, limit) {
        system.counters.rate_limited += 1;
        return false;
    }
    system.counters.attempted += 1;
    true
}

/// Promotes a page that passes, if its target stays above its high watermark; otherwise wakes
/// kswapd. Counts the result.
pub(super) fn migrate(system: &mut System, page: Page, to: NodeIndex) -> bool {
    let high = system.machine.nodes[usize::from(to)].watermarks.high_pages;
    if system.memory.free(to) <= high + 1 {
        system.wake_kswapd(to);
        system.counters.failed_no_room += 1;
        return false;
    }
    system.move_page(page, to);
    system.counters.pgpromote_success += 1;
    system.counters.numa_pages_migrated += 1;
    true
}

/// The time between two adjustments is the longest scan period; the kernel's default is core's
/// constant.
const _: () = assert!(ADJUST_PERIOD_MS == 60_000);
