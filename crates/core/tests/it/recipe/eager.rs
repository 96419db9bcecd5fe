//! Rule `eager`: a page that faults soon after a scan is proposed at once, ranked by its wait.

use thermocline_core::access::{Access, Detail};
use thermocline_core::candidate::{Candidate, Candidates, Reason, score_of_rate};
use thermocline_core::record::Record;
use thermocline_core::rule::{Context, Rule};
use thermocline_core::units::Nanos;

use super::config;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Eager {
    wait_max: Nanos,
    life: Nanos,
}

impl Eager {
    /// The rule with its keys; candidates live for `life`.
    pub fn new(config: &config::rule::Eager, life: Nanos) -> Eager {
        Eager { wait_max: Nanos::from_ms(config.wait_max_ms), life }
    }
}

impl Rule for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let Detail::HintFault { latency: Some(latency) } = access.detail else { return };
        record.ready = ctx.topology.is_lower(access.node) && latency.time <= self.wait_max;
        if record.ready {
            let score = score_of_rate(latency.time);
            out.push(Candidate::promotion(access, score, Reason::ShortLatency, self.life));
        }
    }
}
