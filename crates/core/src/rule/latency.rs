//! Rule `latency`: mainline's hint-fault latency.
//!
//! For each hint fault on a page below the top tier, with `latency` the time since the scan that
//! marked it:
//! 1. The target node's threshold starts at `hot_threshold_ms` (1000). Every `adjust_period_ms` (60
//!    s) the candidate pages of the period are compared with what the rate limit lets through:
//!    above 110 % the threshold falls by an eighth of the reference, below 90 % it rises by as
//!    much, within an eighth and twice the reference (`feedback`).
//! 2. A page whose latency is below the threshold is proposed; the shorter, the higher its score.
//!
//! Source: Linux 6.12 `kernel/sched/fair.c`, `should_numa_migrate_memory`. What differs: the kernel
//! moves in order of the faults and refuses what exceeds the rate limit; here candidates wait,
//! ranked. The kernel promotes every page that faults while the target has plenty of room; here
//! such a fault only resets the threshold, as in the kernel, and the page must still be hot.

use crate::access::{Access, Detail};
use crate::candidate::{Candidate, Candidates, Reason, score_of_rate};
use crate::config;
use crate::published::threshold::rate_limit_pages;
use crate::record::Record;
use crate::rule::thresholds::Thresholds;
use crate::rule::{Context, Gauge, Rule};
use crate::topology::NodeState;
use crate::units::Nanos;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Latency {
    thresholds: Thresholds,
    life: Nanos,
}

impl Latency {
    /// The rule with its keys, driven by the rate limit; candidates live for `life`.
    pub fn new(config: &config::rule::Latency, rate_limit_mbps: u64, life: Nanos) -> Latency {
        let period = config.feedback.then_some(config.adjust_period_ms);
        let limit = rate_limit_pages(rate_limit_mbps);
        Latency { thresholds: Thresholds::new(config.hot_threshold_ms, period, limit), life }
    }
}

impl Rule for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let Detail::HintFault { latency } = access.detail else { return };
        if !ctx.topology.is_lower(access.node) {
            return;
        }
        record.ready = latency.is_some_and(|l| self.thresholds.accepts(access, ctx.topology, l.time));
        record.frequency =
            if record.ready { record.frequency.saturating_add(1).min(ctx.frequency_max) } else { 0 };
        if let Some(latency) = latency.filter(|_| record.ready) {
            let score = score_of_rate(latency.time);
            out.push(Candidate::promotion(access, score, Reason::ShortLatency, self.life));
        }
    }

    fn on_tick(&mut self, _now: Nanos, nodes: &[NodeState], _out: &mut Candidates) {
        self.thresholds.on_tick(nodes);
    }

    fn gauges(&self) -> Vec<Gauge> {
        self.thresholds.gauges()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::testing::{Machine, fault};
    use crate::topology::Watermarks;
    use crate::units::NodeId;

    fn rule(rate_limit_mbps: u64) -> Latency {
        Latency::new(&config::rule::Latency::default(), rate_limit_mbps, Nanos::from_s(10))
    }

    fn threshold_ms(rule: &Latency, node: u16) -> Option<u64> {
        rule.gauges()
            .iter()
            .find(|g| g.name == "hot_threshold_ms" && g.node == Some(NodeId(node)))
            .map(|g| g.value)
    }

    #[test]
    fn the_latency_below_the_threshold_proposes() {
        let mut machine = Machine::new();
        let mut rule = rule(256);
        assert!(machine.access(&mut rule, &fault(2, 1, 5000, 999)).ready);
        assert!(!machine.access(&mut rule, &fault(2, 2, 5000, 1000)).ready);
        assert!(!machine.access(&mut rule, &fault(0, 3, 5000, 1)).ready);
        let mut unknown = fault(2, 4, 5000, 0);
        unknown.detail = Detail::HintFault { latency: None };
        assert!(!machine.access(&mut rule, &unknown).ready);
        let [candidate] = machine.proposed() else { panic!("one candidate") };
        assert_eq!(candidate.pfn.map(|p| p.0), Some(1));
        assert_eq!(candidate.score, score_of_rate(Nanos::from_ms(999)));
        assert_eq!(candidate.target, None);
    }

    #[test]
    fn a_shorter_latency_ranks_higher() {
        let mut machine = Machine::new();
        let mut rule = rule(256);
        for (pfn, latency_ms) in [(1, 500), (2, 5), (3, 50)] {
            machine.access(&mut rule, &fault(2, pfn, 5000, latency_ms));
        }
        let scores: Vec<u16> = machine.proposed().iter().map(|c| c.score).collect();
        assert!(scores[1] > scores[2] && scores[2] > scores[0], "{scores:?}");
    }

    #[test]
    fn with_the_kernels_limit_the_threshold_rises_to_twice_the_reference_and_stays() {
        let mut machine = Machine::new();
        let mut rule = rule(65_536);
        let mut thresholds = Vec::new();
        for minute in 1..=10 {
            machine.access(&mut rule, &fault(2, minute, minute * 60_001, 5000));
            thresholds.extend(threshold_ms(&rule, 0));
        }
        assert_eq!(thresholds, [1125, 1250, 1375, 1500, 1625, 1750, 1875, 2000, 2000, 2000]);
    }

    #[test]
    fn more_candidates_than_the_limit_lower_the_threshold_and_folios_count_their_pages() {
        // 1 MB/s: 256 pages a second, 15,360 a minute; 34 folios of 512 pages are 17,408, above 110
        // %.
        let mut machine = Machine::new();
        let mut rule = rule(1);
        machine.access(&mut rule, &fault(2, 0, 60_001, 5000));
        assert_eq!(threshold_ms(&rule, 0), Some(1125));
        for i in 0..34 {
            let mut folio = fault(2, 512 * i, 61_000, 1);
            folio.order = 9;
            machine.access(&mut rule, &folio);
        }
        machine.access(&mut rule, &fault(2, 0, 120_002, 5000));
        assert_eq!(threshold_ms(&rule, 0), Some(1000));
    }

    #[test]
    fn thresholds_are_kept_per_target_node() {
        let mut machine = Machine::new();
        let mut rule = rule(256);
        let mut other = fault(2, 1, 60_001, 5000);
        other.accessor = Some(NodeId(1));
        machine.access(&mut rule, &other);
        assert_eq!(threshold_ms(&rule, 1), Some(1125));
        assert_eq!(threshold_ms(&rule, 0), None);
    }

    #[test]
    fn plenty_of_room_on_the_target_resets_its_threshold() {
        let mut machine = Machine::new();
        let mut rule = rule(256);
        machine.access(&mut rule, &fault(2, 1, 60_001, 5000));
        let room = NodeState {
            node: NodeId(0),
            free_pages: 1 << 20,
            managed_pages: 1 << 20,
            watermarks: Watermarks::default(),
        };
        let mut out = Candidates::new(1);
        rule.on_tick(Nanos::from_s(61), &[NodeState { free_pages: 1 << 18, ..room }], &mut out);
        assert_eq!(threshold_ms(&rule, 0), Some(1125));
        rule.on_tick(Nanos::from_s(61), &[room], &mut out);
        assert_eq!(threshold_ms(&rule, 0), Some(1000));
        assert!(!machine.access(&mut rule, &fault(2, 2, 62_000, 1000)).ready);
    }

    #[test]
    fn without_feedback_the_threshold_stays() {
        let mut machine = Machine::new();
        let config = config::rule::Latency { feedback: false, ..config::rule::Latency::default() };
        let mut rule = Latency::new(&config, 256, Nanos::from_s(10));
        machine.access(&mut rule, &fault(2, 1, 60_001, 5000));
        assert_eq!(threshold_ms(&rule, 0), Some(1000));
    }
}
