//! One answer of the daemon, typed. Figures that are declared as statistics are found by their
//! declarations, so that nothing of them is written down here a second time.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use thermocline_core::admission::{Braking, Standing};
use thermocline_core::counters::Counters;
use thermocline_core::engine::ScopeLedger;
use thermocline_core::statistics::Statistic;
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, ScopeId, TierId, VirtPage};
use thermocline_linux::kernel_moves::{KernelMoves, Moved, MovedBy};
use thermocline_linux::kswapd::KswapdStats;

use crate::snapshot::{Named, SCHEMA};

/// The place of the engine's counters in `status --json`.
pub const COUNTERS: &str = "counters";

/// The figures of `status --json` that the screen shows.
#[derive(Clone, Debug, Deserialize)]
pub struct Reading {
    /// Version of the daemon.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// The verb that it runs as.
    pub mode: String,
    /// Who decides which pages move.
    pub manager: String,
    /// The rule, if the engine decides.
    pub rule: Option<String>,
    /// Time since the manager began.
    pub uptime_ns: Nanos,
    /// CPU time of the daemon, all threads, if known.
    pub cpu_time_ns: Option<Nanos>,
    /// Why nothing was achieved in the last minute, if so.
    pub trouble: Option<String>,
    /// The open findings, the worst first.
    pub findings: Vec<Finding>,
    topology: Tiers,
    /// The nodes with memory.
    pub nodes: Vec<NodeState>,
    /// Where kswapd has given up.
    pub kswapd: KswapdStats,
    /// Pages moved since the start, by what moved them.
    #[serde(deserialize_with = "flows")]
    pub moved: Flows,
    /// What the kernel has moved by itself, if known.
    pub kernel_moves: Option<KernelMoves>,
    /// Gauges of the engine and its rule.
    #[serde(default)]
    pub gauges: Vec<Gauge>,
    /// The scopes with a floor, a cap or a share, and all as soon as one has a share.
    #[serde(default)]
    pub scopes: Vec<Named<Standing>>,
    /// What was done with the memory of each scope.
    #[serde(default)]
    pub ledgers: Vec<Named<Ledger>>,
    /// The brakes of the scopes.
    #[serde(default)]
    pub brakes: Vec<Named<Braking>>,
    /// For how long the daemon's loop has not run, if that is too long.
    pub loop_late_ms: Option<u64>,
    /// The declared statistics that the answer has.
    #[serde(skip)]
    pub figures: Figures,
    /// Where the figures are from.
    #[serde(skip)]
    pub origin: Origin,
}

/// Where figures are from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A running daemon, which has all.
    #[default]
    Daemon,
    /// An engine that decided again on a recording: it has what an engine knows.
    Replay,
    /// The rows of a recording alone.
    Rows,
}

/// Base pages promoted and demoted, by what moved them: thermocline, the kernel, DAMON; `None`
/// where that is not known.
pub type Flows = [[Option<u64>; 3]; 2];

fn flows<'de, D: Deserializer<'de>>(from: D) -> Result<Flows, D::Error> {
    let by = |moved: MovedBy| [moved.thermocline, moved.kernel, moved.damon].map(Some);
    Moved::deserialize(from).map(|moved| [by(moved.promoted), by(moved.demoted)])
}

/// An open finding.
#[derive(Clone, Debug, Deserialize)]
pub struct Finding {
    /// How bad it is, in one word.
    pub severity: String,
    /// Its name.
    pub id: String,
    /// What was found.
    pub cause: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Tiers {
    nodes: Vec<TierOf>,
}

#[derive(Clone, Debug, Deserialize)]
struct TierOf {
    id: NodeId,
    tier: TierId,
}

/// What was done with the memory of a scope since the start, in base pages.
#[derive(Clone, Debug, Deserialize)]
pub struct Ledger {
    /// The scope.
    pub scope: ScopeId,
    /// Promoted.
    pub promoted: u64,
    /// Demoted.
    pub demoted: u64,
    /// Promoted, and soon accessed on a lower tier again.
    pub came_back: u64,
    /// Demoted because others lacked some of their share.
    pub evicted: u64,
}

impl From<ScopeLedger> for Ledger {
    fn from(ledger: ScopeLedger) -> Ledger {
        let ScopeLedger { scope, promoted, demoted, came_back, evicted, .. } = ledger;
        Ledger { scope, promoted, demoted, came_back, evicted }
    }
}

/// A current value.
#[derive(Clone, Debug, Deserialize)]
pub struct Gauge {
    /// Name with unit.
    pub name: String,
    /// The node it belongs to, where it is kept per node.
    pub node: Option<NodeId>,
    /// The value.
    pub value: u64,
}

/// What names a value: place in `status --json`, name, and value of the label, if it is split.
pub type Key = (&'static str, &'static str, Option<String>);

/// Values of declared statistics.
pub type Figures = BTreeMap<Key, u64>;

/// Every statistic that is declared, with its place in `status --json`.
pub fn declared() -> Vec<(&'static str, Statistic)> {
    let engine = Counters::statistics().into_iter().map(|statistic| (COUNTERS, statistic));
    let live = thermocline_linux::statistics::all();
    let live = live.into_iter().flat_map(|(place, list)| list.into_iter().map(move |s| (place, s)));
    engine.chain(live).collect()
}

impl Reading {
    /// Reads the answer to a `status` request; `None` if the daemon has just started.
    ///
    /// # Errors
    /// The answer has another layout than this version knows.
    pub fn of(answer: &Value) -> anyhow::Result<Option<Reading>> {
        if answer.is_null() {
            return Ok(None);
        }
        if answer["schema"] != SCHEMA {
            bail!(
                "the daemon is thermocline {}, whose figures have schema {}; this command is {} and reads schema \
                 {SCHEMA}: restart the daemon, or use the command of its version",
                answer["version"].as_str().unwrap_or("of an unknown version"),
                answer["schema"],
                env!("CARGO_PKG_VERSION"),
            );
        }
        let mut reading = Reading::deserialize(answer)
            .context("the daemon's figures cannot be read by this version; restart the daemon")?;
        reading.figures = figures(answer);
        Ok(Some(reading))
    }

    /// A reading of a recorded machine, of which nothing is known yet.
    pub fn of_recording(topology: &Topology) -> Reading {
        let tier = |node: &Node| TierOf { id: node.id, tier: node.tier };
        Reading {
            version: String::new(),
            pid: 0,
            mode: String::new(),
            manager: String::new(),
            rule: None,
            uptime_ns: Nanos(0),
            cpu_time_ns: None,
            trouble: None,
            findings: Vec::new(),
            topology: Tiers { nodes: topology.nodes.iter().map(tier).collect() },
            nodes: Vec::new(),
            kswapd: KswapdStats::default(),
            moved: Flows::default(),
            kernel_moves: None,
            gauges: Vec::new(),
            scopes: Vec::new(),
            ledgers: Vec::new(),
            brakes: Vec::new(),
            loop_late_ms: None,
            figures: Figures::new(),
            origin: Origin::Rows,
        }
    }

    /// The tier of a node, if known.
    pub fn tier(&self, node: NodeId) -> Option<TierId> {
        self.topology.nodes.iter().find(|found| found.id == node).map(|found| found.tier)
    }

    /// A gauge, of a node or of none.
    pub fn gauge(&self, name: &str, node: Option<NodeId>) -> Option<u64> {
        self.gauges.iter().find(|gauge| gauge.name == name && gauge.node == node).map(|gauge| gauge.value)
    }
}

/// The values of the declared statistics in an answer.
pub fn figures(answer: &Value) -> Figures {
    let mut out = Figures::new();
    for (place, statistic) in declared() {
        let value = place.split('.').fold(answer, |at, part| &at[part]);
        match &value[statistic.name] {
            Value::Object(split) => out.extend(split.iter().filter_map(|(label, value)| {
                Some(((place, statistic.name, Some(label.clone())), value.as_u64()?))
            })),
            Value::Bool(so) => drop(out.insert((place, statistic.name, None), u64::from(*so))),
            other => out.extend(other.as_u64().map(|value| ((place, statistic.name, None), value))),
        }
    }
    out
}

/// A decision as the daemon tells it; words are those of the journal.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Entry {
    /// When, in the engine's time.
    pub time: Nanos,
    /// The event.
    pub what: String,
    /// Why it was refused or held.
    pub reason: Option<String>,
    /// What held it last, before it expired.
    pub held: Option<String>,
    /// How its move ended.
    pub outcome: Option<String>,
    /// The page.
    pub page: VirtPage,
    /// Base pages.
    pub pages: u32,
    /// The direction.
    pub direction: String,
    /// The node on which it was seen.
    pub from: NodeId,
    /// The target, once chosen.
    pub to: Option<NodeId>,
    /// The combined score of all sources.
    pub score: u16,
    /// Why the rule proposed it.
    pub why: String,
}

impl Entry {
    /// The word that says most about why it ended so.
    pub fn cause(&self) -> &str {
        let words = [&self.reason, &self.outcome, &self.held];
        words.into_iter().flatten().next().map_or("", String::as_str)
    }

    /// The address of the page.
    pub fn address(&self) -> u64 {
        self.page.address()
    }
}

/// The answer to a request for decisions.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Decided {
    /// The number to ask from next time.
    pub next: u64,
    /// The decisions, oldest first.
    pub decisions: Vec<Entry>,
}
