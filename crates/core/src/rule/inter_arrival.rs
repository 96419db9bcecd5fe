//! Rule `inter-arrival`: two hardware samples of a page in quick succession.
//!
//! For each sample:
//! 1. A page below the top tier is proposed when its last sample was less than the threshold ago;
//!    the shorter, the higher its score. The threshold is mainline's: `hot_threshold_ms` (1000),
//!    with the same feedback per target node.
//! 2. Every 250 samples the sampling period that the source should use is adapted by the kernel's
//!    scan-period formula, from `sample_period_uops` (10000) within `sample_period_min_uops` (5000)
//!    and `sample_period_max_uops` (20000).
//!
//! Source: S1, "Using Hardware Hints for Optimal Page Placement" (2023-11). With samples in place
//! of scans no page is stamped, so mainline's "latency" becomes the time between two samples. S1
//! adapts a period for each task; a perf event belongs to a CPU, so here there is one for all, and
//! "private" means that the same node accessed the page before.

use crate::access::{Access, Detail};
use crate::candidate::{Candidate, Candidates, Reason, score_of_rate};
use crate::config;
use crate::moves::{Move, Outcome};
use crate::published::scan_period::{Accesses, SAMPLES, adapt};
use crate::published::threshold::rate_limit_pages;
use crate::record::Record;
use crate::rule::thresholds::Thresholds;
use crate::rule::{Context, Gauge, Rule, told};
use crate::topology::NodeState;
use crate::units::Nanos;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct InterArrival {
    config: config::rule::InterArrival,
    thresholds: Thresholds,
    life: Nanos,
    period_uops: u32,
    samples: u32,
    accesses: Accesses,
}

impl InterArrival {
    /// The rule with its keys, driven by the rate limit; candidates live for `life`.
    pub fn new(config: &config::rule::InterArrival, rate_limit_mbps: u64, life: Nanos) -> InterArrival {
        let period = config.feedback.then_some(config.adjust_period_ms);
        InterArrival {
            config: config.clone(),
            thresholds: Thresholds::new(config.hot_threshold_ms, period, rate_limit_pages(rate_limit_mbps)),
            life,
            period_uops: config.sample_period_uops,
            samples: 0,
            accesses: Accesses::default(),
        }
    }

    /// Counts a sample and adapts the period once there are enough.
    fn count(&mut self, access: &Access, record: &Record) {
        if let Some(accessor) = access.accessor {
            let local = u64::from(accessor == access.node);
            self.accesses.local += local;
            self.accesses.remote += 1 - local;
            let shared = u64::from(record.node.is_some_and(|before| before != accessor));
            self.accesses.shared += shared;
            self.accesses.private += 1 - shared;
        }
        self.samples += 1;
        if self.samples >= SAMPLES {
            let (min, max) = (self.config.sample_period_min_uops, self.config.sample_period_max_uops);
            self.period_uops = adapt(self.period_uops, min.min(max), max, &self.accesses);
            self.samples = 0;
            self.accesses = Accesses::default();
        }
    }
}

impl Rule for InterArrival {
    fn name(&self) -> &'static str {
        "inter-arrival"
    }

    fn window(&self) -> Nanos {
        // The feedback may double the threshold.
        Nanos::from_ms(2 * self.config.hot_threshold_ms)
    }

    fn sample_period_uops(&self) -> Option<u32> {
        Some(self.period_uops)
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        if !matches!(access.detail, Detail::Sample { .. }) {
            return;
        }
        self.count(access, record);
        if !ctx.topology.is_lower(access.node) {
            return;
        }
        let gap = told(record.gap).unwrap_or(self.window());
        let score = score_of_rate(access.detail.between_accesses(gap));
        record.ready = record.gap.is_some_and(|gap| self.thresholds.accepts(access, ctx.topology, gap));
        record.frequency =
            if record.ready { record.frequency.max(1).saturating_add(1) } else { 1 }.min(ctx.frequency_max);
        if record.ready {
            out.push(Candidate::promotion(access, score, Reason::ShortInterval, self.life));
        }
    }

    fn on_tick(&mut self, _now: Nanos, nodes: &[NodeState], _out: &mut Candidates) {
        self.thresholds.on_tick(nodes);
    }

    fn on_outcome(&mut self, _done: &Move, outcome: Outcome, _out: &mut Candidates) {
        if matches!(outcome, Outcome::Busy | Outcome::NodeFull | Outcome::Pinned) {
            self.accesses.failed += 1;
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        let period = Gauge { name: "sample_period_uops", node: None, value: self.period_uops.into() };
        std::iter::once(period).chain(self.thresholds.gauges()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::testing::{Machine, fault, sample};
    use crate::units::{NodeId, VirtPage};

    fn rule() -> InterArrival {
        InterArrival::new(&config::rule::InterArrival::default(), 256, Nanos::from_s(10))
    }

    #[test]
    fn two_samples_within_the_threshold_propose() {
        let mut machine = Machine::new();
        let mut rule = rule();
        // The first sample proposes nothing; 999 ms later is hot, 1000 ms later is not.
        let ready = [5000, 5999, 6999, 7000].map(|t| machine.access(&mut rule, &sample(2, 1, t)).ready);
        assert_eq!(ready, [false, true, false, true]);
        let scores: Vec<u16> = machine.proposed().iter().map(|c| c.score).collect();
        assert_eq!(scores, [score_of_rate(Nanos::from_ms(999)), score_of_rate(Nanos::from_ms(1))]);
    }

    #[test]
    fn the_threshold_follows_mainlines_feedback() {
        let mut machine = Machine::new();
        let mut rule = rule();
        machine.access(&mut rule, &sample(2, 1, 60_001));
        assert!(machine.access(&mut rule, &sample(2, 1, 61_100)).ready, "1125 ms after the first minute");
    }

    #[test]
    fn hint_faults_say_nothing() {
        let mut machine = Machine::new();
        let mut rule = rule();
        machine.access(&mut rule, &fault(2, 1, 1000, 1));
        machine.access(&mut rule, &fault(2, 1, 1001, 1));
        assert!(machine.proposed().is_empty());
    }

    fn from(node: u16, accessor: u16, time_ms: u64) -> Access {
        Access { accessor: Some(NodeId(accessor)), ..sample(node, 1, time_ms) }
    }

    #[test]
    fn the_sampling_period_adapts_every_250_samples() {
        let mut machine = Machine::new();
        let mut rule = rule();
        let samples =
            |machine: &mut Machine, rule: &mut InterArrival, accessor: fn(u64) -> u16, node: u16| {
                for i in 0..250 {
                    machine.access(rule, &from(node, accessor(i), i));
                }
                rule.sample_period_uops()
            };
        // Pages of the slow node alone: none local, none shared, so the period doubles.
        assert_eq!(samples(&mut machine, &mut rule, |_| 0, 2), Some(20_000));
        // One node, then the other, on a page of node 2: shared and remote, seven slots shorter, to
        // the minimum in the end.
        assert_eq!(samples(&mut machine, &mut rule, |i| (i % 2) as u16, 2), Some(6000));
        assert_eq!(samples(&mut machine, &mut rule, |i| (i % 2) as u16, 2), Some(5000));
        // Local and, but for the first, private: nine of ten, so two slots of 500 longer.
        assert_eq!(samples(&mut machine, &mut rule, |_| 0, 0), Some(6000));
        // A failed move doubles it in any case.
        let page = VirtPage::default();
        let done = Move { page, pfn: None, order: 0, from: NodeId(2) };
        rule.on_outcome(&done, Outcome::NodeFull, &mut Candidates::new(1));
        assert_eq!(samples(&mut machine, &mut rule, |_| 0, 0), Some(12_000));
    }
}
