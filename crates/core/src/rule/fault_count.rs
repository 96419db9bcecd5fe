//! Rule `fault-count`: the hint-fault latency counted in faults of the process instead of in time.
//!
//! For each hint fault on a page below the top tier: it is proposed when fewer than
//! `fault_count_threshold` (1000000) hint faults of its process came between the scan that marked
//! it and this fault; the shorter it waited, the higher its score.
//!
//! Source: S0, "Hot page promotion optimization for large address space" (2024-03), patch 1. Patch
//! 2 stamps a page again at each scan that finds it still marked (`restamp`, on as in the series):
//! the latency is then since the last scan over the page, not the first. The rule requests the one
//! it needs from the source. The unit scales itself: a process that faults slowly is given more
//! time. S0 took about 51 s for a million faults, which raises mainline's threshold by 25 to 50
//! times.
//!
//! What differs: S0 counts in buckets of 65536 faults and in 32 bits; here the count is exact. S0
//! keeps the rate limit only; here the candidates are also ranked.

use crate::access::{Access, Detail};
use crate::candidate::{Candidate, Candidates, Reason, score_of_rate};
use crate::config;
use crate::record::Record;
use crate::rule::{Context, Gauge, Rule};
use crate::units::Nanos;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct FaultCount {
    threshold: u32,
    restamp: bool,
    life: Nanos,
    longest_hot: u32,
}

impl FaultCount {
    /// The rule with its keys; candidates live for `life`.
    pub fn new(config: &config::rule::FaultCount, life: Nanos) -> FaultCount {
        FaultCount { threshold: config.fault_count_threshold, restamp: config.restamp, life, longest_hot: 0 }
    }
}

impl Rule for FaultCount {
    fn name(&self) -> &'static str {
        "fault-count"
    }

    fn restamp(&self) -> Option<bool> {
        Some(self.restamp)
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let Detail::HintFault { latency } = access.detail else { return };
        if !ctx.topology.is_lower(access.node) {
            return;
        }
        let hot = latency.filter(|l| l.faults < self.threshold);
        record.ready = hot.is_some();
        record.frequency =
            if record.ready { record.frequency.saturating_add(1).min(ctx.frequency_max) } else { 0 };
        if let Some(latency) = hot {
            self.longest_hot = self.longest_hot.max(latency.faults);
            out.push(Candidate::promotion(access, score_of_rate(latency.time), Reason::FewFaults, self.life));
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, value: u32| Gauge { name, node: None, value: value.into() };
        vec![
            gauge("fault_count_threshold", self.threshold),
            gauge("longest_hot_latency_faults", self.longest_hot),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::FaultLatency;
    use crate::rule::testing::{Machine, fault, sample};

    fn with(faults: Option<u32>, seconds: u64) -> Access {
        let latency = faults.map(|faults| FaultLatency { time: Nanos::from_s(seconds), faults });
        Access { detail: Detail::HintFault { latency }, ..fault(2, 1, 700_000, 0) }
    }

    #[test]
    fn faults_decide_and_time_does_not() {
        let mut machine = Machine::new();
        let mut rule = FaultCount::new(&config::rule::FaultCount::default(), Nanos::from_s(10));
        // S0's own samples: 20 to 630 s, all far above mainline's threshold.
        assert!(machine.access(&mut rule, &with(Some(403_000), 20)).ready);
        assert!(machine.access(&mut rule, &with(Some(999_999), 630)).ready);
        assert!(!machine.access(&mut rule, &with(Some(1_000_000), 1)).ready);
        assert!(!machine.access(&mut rule, &with(None, 0)).ready);
        assert_eq!(machine.proposed().len(), 2);
        assert!(machine.proposed()[0].score > machine.proposed()[1].score);
        assert_eq!(machine.proposed()[0].reason, Reason::FewFaults);
    }

    #[test]
    fn samples_and_top_tier_pages_say_nothing() {
        let mut machine = Machine::new();
        let mut rule = FaultCount::new(&config::rule::FaultCount::default(), Nanos::from_s(10));
        machine.access(&mut rule, &sample(2, 1, 0));
        machine.access(&mut rule, &fault(0, 2, 0, 0));
        assert!(machine.proposed().is_empty());
    }

    #[test]
    fn it_says_which_stamp_it_needs() {
        for restamp in [false, true] {
            let config = config::rule::FaultCount { restamp, ..config::rule::FaultCount::default() };
            assert_eq!(FaultCount::new(&config, Nanos(0)).restamp(), Some(restamp));
        }
    }
}
