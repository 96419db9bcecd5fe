//! Rule `inter-arrival`: two hardware samples of a page in quick succession.
//!
//! For each sample of a page below the top tier: the page is proposed when its last sample was less
//! than the threshold ago; the shorter, the higher its score. The threshold is mainline's:
//! `hot_threshold_ms` (1000), with the same feedback per target node.
//!
//! Source: S1, "Using Hardware Hints for Optimal Page Placement" (2023-11). With samples in place
//! of scans no page is stamped, so mainline's "latency" becomes the time between two samples. S1's
//! sampling period is the source's affair ([`SamplePeriod`](crate::pace::SamplePeriod)).

use crate::access::{Access, Detail};
use crate::candidate::{Candidate, Candidates, Reason, score_of_rate};
use crate::config;
use crate::published::threshold::rate_limit_pages;
use crate::record::Record;
use crate::rule::thresholds::Thresholds;
use crate::rule::{Context, Gauge, Rule, told};
use crate::topology::NodeState;
use crate::units::Nanos;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct InterArrival {
    hot_threshold_ms: u64,
    thresholds: Thresholds,
    life: Nanos,
}

impl InterArrival {
    /// The rule with its keys, driven by the rate limit; candidates live for `life`.
    pub fn new(config: &config::rule::InterArrival, rate_limit_mbps: u64, life: Nanos) -> InterArrival {
        let period = config.feedback.then_some(config.adjust_period_ms);
        InterArrival {
            hot_threshold_ms: config.hot_threshold_ms,
            thresholds: Thresholds::new(config.hot_threshold_ms, period, rate_limit_pages(rate_limit_mbps)),
            life,
        }
    }
}

impl Rule for InterArrival {
    fn name(&self) -> &'static str {
        "inter-arrival"
    }

    fn window(&self) -> Nanos {
        // The feedback may double the threshold.
        Nanos::from_ms(2 * self.hot_threshold_ms)
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        if !matches!(access.detail, Detail::Sample { .. }) {
            return;
        }
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

    fn gauges(&self) -> Vec<Gauge> {
        self.thresholds.gauges()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::testing::{Machine, fault, sample};

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
}
