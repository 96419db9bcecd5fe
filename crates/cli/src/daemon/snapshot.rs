//! The daemon at one moment: what `status` shows and every line is made from.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use thermocline_core::admission::{Braking, Standing};
use thermocline_core::config::{Config, ManagerName, RuleName, Scope};
use thermocline_core::counters::Counters;
use thermocline_core::engine::Engine;
use thermocline_core::rule::Gauge;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, ScopeId};
use thermocline_linux::actuator::SettingsStats;
use thermocline_linux::demoter::DemoterStats;
use thermocline_linux::kernel_moves::{KernelMoves, Moved, MovedBy};
use thermocline_linux::kswapd::KswapdStats;
use thermocline_linux::machine::{LiveMachine, Overhead, cpu_time};
use thermocline_linux::mover::MoverStats;
use thermocline_linux::reverse;
use thermocline_linux::source::Rate;
use thermocline_linux::source::hintfault::Stats;

use super::Mode;

/// Which places and meanings the figures have: another number where a reader of the former could
/// take one for something else, or miss it.
pub const SCHEMA: u64 = 1;

/// What does not change while running.
#[derive(Clone, Debug, Serialize)]
pub struct Fixed {
    /// See [`SCHEMA`].
    pub schema: u64,
    /// Version of the program.
    pub version: &'static str,
    /// The daemon's process.
    pub pid: u32,
    /// The verb.
    pub mode: &'static str,
    /// Who decides which pages move.
    pub manager: ManagerName,
    /// The rule; none where the kernel decides.
    pub rule: Option<RuleName>,
    /// The machine.
    pub topology: Topology,
    /// The configured scopes.
    #[serde(skip)]
    scopes: Vec<Scope>,
}

/// How a scope stands, with its name.
#[derive(Clone, Debug, Serialize)]
pub struct Named<T> {
    /// The scope's name, or its cgroup where it has none.
    pub name: String,
    /// How it stands.
    #[serde(flatten)]
    pub standing: T,
}

impl Fixed {
    /// What is known at the start.
    pub fn new(mode: Mode, config: &Config, topology: &Topology) -> Fixed {
        Fixed {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            mode: mode.name(),
            manager: config.manager.name,
            rule: (!config.manager.name.is_of_kernel()).then_some(config.rule.name),
            topology: topology.clone(),
            scopes: config.scope.clone(),
        }
    }

    /// Names the scope that `standing` is of.
    pub fn name<T>(&self, scope: ScopeId, standing: T) -> Named<T> {
        let Some(place) = usize::from(scope.0).checked_sub(1) else {
            return Named { name: "default".to_owned(), standing };
        };
        let given = self.scopes.get(place).map(|s| (s.name.as_str(), s.cgroup.as_deref()));
        let name = match given {
            Some(("", Some(cgroup))) => cgroup.to_owned(),
            Some(("", None)) | None => format!("[{place}]"),
            Some((name, _)) => name.to_owned(),
        };
        Named { name, standing }
    }
}

/// The daemon at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// What does not change.
    #[serde(flatten)]
    pub fixed: Fixed,
    /// Time since the start, ns.
    pub uptime_ns: Nanos,
    /// CPU time of the daemon, ns, all threads.
    pub cpu_time_ns: Nanos,
    /// Why the last minute's work came to nothing, where it did.
    pub trouble: Option<String>,
    /// Counters of the engine.
    pub counters: Counters,
    /// Gauges of the engine and its rule.
    pub gauges: Vec<Gauge>,
    /// The nodes with memory.
    pub nodes: Vec<NodeState>,
    /// Nodes on which the kernel promotes every page at its first fault.
    pub free_space_promotion: Vec<NodeId>,
    /// Counters of the hint-fault source; all zero where it is switched off.
    pub source: Stats,
    /// Counters of the other sources by their key; null of those that are not open.
    #[serde(flatten)]
    pub sources: BTreeMap<&'static str, Value>,
    /// What came from the other sources, and was lost.
    #[serde(skip)]
    pub rates: Vec<Rate>,
    /// Counters of the reverse map, where a source may leave open whose pages it tells of.
    pub reverse: Option<reverse::Stats>,
    /// What a fault, a sample and a moved page cost so far.
    pub overhead: Overhead,
    /// Counters of the mover, where pages move.
    pub mover: Option<MoverStats>,
    /// Counters of the demoter, where cold pages are demoted.
    pub demoter: Option<DemoterStats>,
    /// The scopes with a floor or a cap.
    pub scopes: Vec<Named<Standing>>,
    /// How the scopes are braked.
    pub brakes: Vec<Named<Braking>>,
    /// Settings that others have changed.
    pub settings: SettingsStats,
    /// Where kswapd has given up, and what came of bringing it back.
    pub kswapd: KswapdStats,
    /// Scopes whose cgroup is not there, a sentence each.
    pub no_cgroup: Vec<String>,
    /// Calls given up because a process kept them waiting; the process is set aside until they
    /// return.
    pub calls_given_up: u64,
    /// What the kernel has moved by itself since the start.
    pub kernel_moves: KernelMoves,
    /// Who has moved what since the start.
    pub moved: Moved,
}

impl Snapshot {
    /// The daemon now.
    pub fn take(fixed: &Fixed, engine: &Engine, machine: &mut LiveMachine, uptime: Nanos) -> Snapshot {
        let nodes = machine.node_states().map(<[NodeState]>::to_vec).unwrap_or_default();
        Snapshot {
            fixed: fixed.clone(),
            uptime_ns: uptime,
            cpu_time_ns: cpu_time(),
            trouble: None,
            counters: engine.counters().clone(),
            gauges: engine.gauges(),
            nodes,
            free_space_promotion: machine.free_space_promotion(),
            source: machine.source_stats().unwrap_or_default(),
            sources: machine.other_stats(),
            rates: machine.other_rates(),
            reverse: machine.reverse_stats(),
            overhead: machine.overhead(engine.counters().pgmigrate_success),
            mover: machine.mover_stats(),
            demoter: machine.demoter_stats(),
            scopes: engine
                .standings()
                .into_iter()
                .map(|standing| fixed.name(standing.scope, standing))
                .collect(),
            brakes: engine.brakes().into_iter().map(|braking| fixed.name(braking.scope, braking)).collect(),
            settings: SettingsStats::default(),
            kswapd: KswapdStats::default(),
            no_cgroup: Vec::new(),
            calls_given_up: thermocline_linux::aside::given_up(),
            kernel_moves: machine.kernel_moves(),
            moved: Moved::default(),
        }
        .with_moved()
    }

    /// The same with how the settings stand.
    pub fn with_settings(self, settings: SettingsStats) -> Snapshot {
        Snapshot { settings, ..self }
    }

    /// The same with where kswapd has given up.
    pub fn with_kswapd(self, kswapd: KswapdStats) -> Snapshot {
        Snapshot { kswapd, ..self }
    }

    /// The same with the scopes whose cgroup is not there.
    pub fn with_no_cgroup(self, sentences: &[String]) -> Snapshot {
        Snapshot { no_cgroup: sentences.to_vec(), ..self }
    }

    /// The same with why the last minute's work came to nothing, where it did.
    pub fn with_trouble(self, trouble: Option<&str>) -> Snapshot {
        Snapshot { trouble: trouble.map(str::to_owned), ..self }
    }

    fn with_moved(mut self) -> Snapshot {
        let (ours, kernel) = (&self.counters, &self.kernel_moves);
        let by = |thermocline, kernel| MovedBy { thermocline, kernel, damon: 0 };
        self.moved = Moved {
            promoted: by(ours.pgpromote_success, kernel.pgpromote_success),
            demoted: by(ours.pgdemote + ours.demotion_done, kernel.demoted()),
        };
        self
    }

    /// The same with the engine's figures of now, when the machine is closed already.
    pub fn with_engine(mut self, engine: &Engine) -> Snapshot {
        self.counters = engine.counters().clone();
        self.gauges = engine.gauges();
        self.with_moved()
    }
}
