//! What the engine has decided, on which evidence, and with what outcome.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use thermocline_core::admission::{Braking, Standing};
use thermocline_core::config::Source;
use thermocline_core::counters::Counters;
use thermocline_core::engine::{Engine, ScopeLedger};
use thermocline_core::refusal::RefusalReason;
use thermocline_core::rule::Gauge;
use thermocline_core::units::NodeId;
use thermocline_linux::demoter::DemoterStats;
use thermocline_linux::machine::{LiveMachine, Overhead};
use thermocline_linux::mover::MoverStats;
use thermocline_linux::reverse;
use thermocline_linux::source::hintfault::Stats;
use thermocline_linux::source::{Counted, ROWS, Rate, Row};

use super::fixed::{Fixed, Named};

/// The figures of the engine and of its machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Deciding {
    /// Counters of the engine.
    pub counters: Counters,
    /// Gauges of the engine and its rule.
    pub gauges: Vec<Gauge>,
    /// Candidates that wait now, by what holds them; `None`: nothing yet.
    #[serde(skip)]
    pub waiting: BTreeMap<Option<RefusalReason>, u64>,
    /// Nodes on which the kernel promotes every page at its first fault.
    pub free_space_promotion: Vec<NodeId>,
    /// Counters of the hint-fault source; all zero if it is disabled.
    pub source: Stats,
    /// Counters of the other sources by their key; null for those that are not open.
    #[serde(flatten)]
    others: BTreeMap<&'static str, Value>,
    /// The counters of each open source.
    #[serde(skip)]
    pub counted: Vec<(&'static Row, Counted)>,
    /// Evidence received from the other sources, and lost.
    #[serde(skip)]
    pub rates: Vec<Rate>,
    /// What each open source has given and lost so far, by its name in the configuration.
    #[serde(skip)]
    pub given: Vec<(&'static str, Rate)>,
    /// Counters of the reverse map, if a source may report frames without their pages.
    pub reverse: Option<reverse::Stats>,
    /// The cost so far of a fault, a sample and a moved page.
    pub overhead: Overhead,
    /// Counters of the mover, if pages are moved.
    pub mover: Option<MoverStats>,
    /// Counters of the demoter, if cold pages are demoted.
    pub demoter: Option<DemoterStats>,
    /// The scopes whose holding counts: those with a floor, a cap or a share.
    pub scopes: Vec<Named<Standing>>,
    /// What was done with the memory of each scope.
    pub ledgers: Vec<Named<ScopeLedger>>,
    /// The brakes of the scopes.
    pub brakes: Vec<Named<Braking>>,
}

impl Deciding {
    /// The current figures of the engine, without those of a machine.
    pub fn of_engine(fixed: &Fixed, engine: &Engine) -> Deciding {
        let scopes = engine.standings().into_iter();
        Deciding {
            counters: engine.counters().clone(),
            gauges: engine.gauges(),
            waiting: engine.waiting(),
            scopes: scopes.map(|standing| fixed.name(standing.scope, standing)).collect(),
            ledgers: engine.ledgers().into_iter().map(|ledger| fixed.name(ledger.scope, ledger)).collect(),
            brakes: engine.brakes().into_iter().map(|braking| fixed.name(braking.scope, braking)).collect(),
            ..Deciding::default()
        }
    }

    /// The current figures of the engine and the machine.
    pub fn new(fixed: &Fixed, engine: &Engine, machine: &LiveMachine) -> Deciding {
        let counted = machine.counted();
        let json = |row: &Row| {
            let open = counted.iter().find(|(open, _)| open.source == row.source);
            open.map_or(Value::Null, |(_, counted)| counted.json.clone())
        };
        let others = ROWS.iter().filter(|row| row.source != Source::HintFault);
        Deciding {
            free_space_promotion: machine.free_space_promotion(),
            source: machine.source_stats().unwrap_or_default(),
            others: others.map(|row| (row.counted_as, json(row))).collect(),
            counted,
            rates: machine.other_rates(),
            given: machine.rates(),
            reverse: machine.reverse_stats(),
            overhead: machine.overhead(engine.counters().pgmigrate_success),
            mover: machine.mover_stats(),
            demoter: machine.demoter_stats(),
            ..Deciding::of_engine(fixed, engine)
        }
    }

    /// Updates the engine's figures.
    pub fn update(&mut self, engine: &Engine) {
        self.counters = engine.counters().clone();
        self.gauges = engine.gauges();
        self.waiting = engine.waiting();
    }

    /// The value of a gauge that is not kept by node.
    pub fn gauge(&self, name: &str) -> u64 {
        self.gauges.iter().find(|gauge| gauge.name == name).map_or(0, |gauge| gauge.value)
    }
}
