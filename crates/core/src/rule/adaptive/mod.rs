//! Rule `adaptive`: pages whose waits stand out from those of the pages they compete with.
//!
//! For the pages of lower tiers that would go to the same top-tier node:
//! 1. Each hint fault adds its wait since the scan, times the folio's base pages, to a histogram in quarter octaves that
//!    halves in `half_life_s` (30). It weighs by base pages too: what counts is the access rate per page of DRAM.
//! 2. Once a second two exponential classes are fitted to it. They are real when the cold mean is at least 3 times the hot
//!    one and they explain the faults clearly better than one class does (0.005 nats a fault, 10 nats in all).
//! 3. The cut is the wait that nine of ten hot faults stay below, but at most `cold_percent` (20) of the cold ones, and
//!    `cut_max_ms` (60000).
//! 4. `confirmations` (3) faults of a page in a row below the cut propose it; the shorter the wait, the higher its score. A fault
//!    above the cut starts again at nothing.
//! 5. When the classes merge, because the hot pages have moved, the cut stays, but below the best tenth of the waits.
//! 6. After `settle_s` (60) of one class nothing stands out. Then, if `fill` is set, the pages in the best quarter of waits, and
//!    below `fill_below_ms` (1000), fill the target until a sixteenth of it is left. Else nothing is proposed.
//!
//! Evidence of other sources is judged as by the rule `frequency`. Source: ours. It needs no threshold in ms: the same
//! program on a machine ten times as slow gets the same pages moved.

mod mixture;
#[cfg(test)]
mod simulation;

use std::collections::BTreeMap;

use crate::access::{Access, Detail};
use crate::config;
use crate::rule::{Candidate, Candidates, Context, Frequency, Gauge, Reason, Record, Rule, score_of_rate};
use crate::topology::NodeState;
use crate::units::{Nanos, NodeId};
use mixture::{Classes, Histogram};

/// Time between two fits.
const FIT_EVERY: Nanos = Nanos::from_s(1);
/// Classes whose means are closer than this are one class.
const RATIO_MIN: f64 = 3.0;
/// Nats by which two classes must explain a fault better than one, on average.
const GAIN_MIN: f64 = 0.005;
/// Nats by which two classes must explain all faults better: chance reaches 10 once in 20,000 (chi-squared, two degrees of freedom).
const EVIDENCE_MIN: f64 = 10.0;
/// Mean waits below which nine of ten exponential waits fall: ln 10.
const NINE_OF_TEN: f64 = std::f64::consts::LN_10;

/// What the waits of one target's pages say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Too few faults so far.
    Unknown,
    /// Two classes.
    Two(Classes),
    /// One class, or not yet enough to tell.
    One,
}

/// The pages that compete for the DRAM of one node.
#[derive(Clone, Debug)]
struct Target {
    waits: Histogram,
    state: State,
    /// Waits below it count for a page, in µs for each base page.
    cut_us: Option<f64>,
    /// The cut is there to fill a target, not to tell hot from cold.
    filling: bool,
    /// When two classes were last seen, or the first fault.
    classes_at: Nanos,
    /// More than a sixteenth of the node is free.
    room: bool,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Adaptive {
    config: config::rule::Adaptive,
    frequency: Frequency,
    life: Nanos,
    /// Only nodes of the topology get an entry, so the map is bounded.
    targets: BTreeMap<NodeId, Target>,
    fitted: Option<Nanos>,
}

impl Adaptive {
    /// The rule with its keys and those of `frequency`; candidates live for `life`.
    pub fn new(
        config: &config::rule::Adaptive,
        frequency: &config::rule::Frequency,
        life: Nanos,
    ) -> Adaptive {
        Adaptive {
            config: config.clone(),
            frequency: Frequency::new(frequency, life),
            life,
            targets: BTreeMap::new(),
            fitted: None,
        }
    }
}

impl Rule for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let Detail::HintFault { latency } = access.detail else {
            return self.frequency.on_access(access, record, ctx, out);
        };
        let (Some(latency), Some(node)) =
            (latency, ctx.topology.promotion_target(access.node, access.accessor))
        else {
            return;
        };
        let target = self.targets.entry(node).or_insert_with(|| Target::new(access.time));
        let wait = Nanos(latency.time.0.saturating_mul(access.pages()));
        let wait_us = wait.0 / 1000;
        target.waits.add(wait_us, access.pages());
        let Some(cut_us) = target.cut_us else { return };
        let below = (wait_us as f64) < cut_us && latency.time.ms() < self.config.cut_max_ms;
        record.frequency = if below { record.frequency.saturating_add(1).min(ctx.frequency_max) } else { 0 };
        // A layout that cannot count to the number of confirmations is full at its maximum.
        record.ready = record.frequency >= self.config.confirmations.min(ctx.frequency_max);
        if record.ready {
            let reason = if target.filling { Reason::FreeRoom } else { Reason::HighRate };
            out.push(Candidate::promotion(access, score_of_rate(wait), reason, self.life));
        }
    }

    fn on_tick(&mut self, now: Nanos, nodes: &[NodeState], _out: &mut Candidates) {
        for state in nodes {
            if let Some(target) = self.targets.get_mut(&state.node) {
                target.set_room(state);
            }
        }
        let since = now.since(*self.fitted.get_or_insert(now));
        if since < FIT_EVERY {
            return;
        }
        self.fitted = Some(now);
        let halvings = since.0 as f64 / Nanos::from_s(self.config.half_life_s).0 as f64;
        let remaining = mixture::exp_minus(halvings * std::f64::consts::LN_2);
        for target in self.targets.values_mut() {
            target.fit(now, &self.config);
            target.waits.decay(remaining);
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        self.targets.iter().flat_map(|(node, target)| target.gauges(*node)).collect()
    }
}

impl Target {
    fn new(now: Nanos) -> Target {
        Target {
            waits: Histogram::new(),
            state: State::Unknown,
            cut_us: None,
            filling: false,
            classes_at: now,
            room: false,
        }
    }

    /// Takes note of the node's free memory, and stops filling where it runs out.
    fn set_room(&mut self, state: &NodeState) {
        let spare = state.watermarks.high_pages.saturating_add(state.managed_pages / 16);
        self.room = state.free_pages > spare;
        if self.filling && !self.room {
            self.filling = false;
            self.cut_us = None;
        }
    }

    /// Looks for two classes and sets the cut.
    fn fit(&mut self, now: Nanos, config: &config::rule::Adaptive) {
        let faults = self.waits.faults();
        if faults < f64::from(config.faults_min) {
            self.state = State::Unknown;
        } else {
            let real = |c: &Classes| {
                c.cold_us >= RATIO_MIN * c.hot_us && c.gain >= GAIN_MIN && c.gain * faults >= EVIDENCE_MIN
            };
            self.state = self.waits.classes().filter(real).map_or(State::One, State::Two);
        }
        if let State::Two(classes) = self.state {
            self.classes_at = now;
            self.filling = false;
            // An exponential wait stays below -ln(1 - share) times its mean in that share of cases.
            let cold = -mixture::ln(1.0 - f64::from(config.cold_percent) / 100.0);
            self.cut_us = Some((NINE_OF_TEN * classes.hot_us).min(cold * classes.cold_us));
        } else if now.since(self.classes_at) >= Nanos::from_s(config.settle_s) {
            self.filling = config.fill && self.room && self.state == State::One;
            let below_us = config.fill_below_ms as f64 * 1000.0;
            self.cut_us = self.filling.then(|| self.waits.quantile(0.25).min(below_us));
        } else if let Some(cut_us) = self.cut_us.filter(|_| self.state == State::One) {
            self.cut_us = Some(cut_us.min(self.waits.quantile(0.1)));
        }
    }

    fn gauges(&self, node: NodeId) -> Vec<Gauge> {
        let gauge = |name, value: f64| Gauge { name, node: Some(node), value: value as u64 };
        let mut gauges = vec![
            gauge(
                "classes",
                f64::from(match self.state {
                    State::Unknown => 0,
                    State::One => 1,
                    State::Two(_) => 2u8,
                }),
            ),
            gauge("cut_us", self.cut_us.unwrap_or(0.0)),
            gauge("faults_remembered", self.waits.faults()),
        ];
        if let State::Two(classes) = self.state {
            gauges.push(gauge("hot_wait_us", classes.hot_us));
            gauges.push(gauge("cold_wait_us", classes.cold_us));
            gauges.push(gauge("hot_faults_percent", classes.hot_share * 100.0));
        }
        gauges
    }
}
