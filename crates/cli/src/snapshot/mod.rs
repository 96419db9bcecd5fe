//! The daemon at one moment, whoever manages: `status`, lines and the summary are made from it.

mod engine;
mod explained;
mod fixed;
mod latest;
mod status;

use serde::Serialize;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;
use thermocline_linux::actuator::SettingsStats;
use thermocline_linux::aside;
use thermocline_linux::damon::DamonStats;
use thermocline_linux::kernel_moves::{KernelMoves, Moved, MovedBy};
use thermocline_linux::kswapd::KswapdStats;
use thermocline_linux::machine::cpu_time;

pub use engine::Deciding;
pub use explained::Explained;
#[cfg(test)]
pub use fixed::SCHEMA;
pub use fixed::{Fixed, Named};
pub use latest::Latest;
pub use status::Status;

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
    /// The label of what all of it ended as, where that is known.
    pub trouble_reason: Option<&'static str>,
    /// What the engine has decided, and by what evidence; none where the kernel decides.
    #[serde(flatten)]
    pub engine: Option<Deciding>,
    /// The nodes with memory.
    pub nodes: Vec<NodeState>,
    /// Settings that others have changed.
    pub settings: SettingsStats,
    /// Where kswapd has given up, and what came of bringing it back.
    pub kswapd: KswapdStats,
    /// Scopes whose cgroup is not there, a sentence each.
    pub no_cgroup: Vec<String>,
    /// Calls given up because a process kept them waiting; the process is set aside until they
    /// return.
    pub calls_given_up: u64,
    /// What the kernel has moved by itself since the start; what DAMON has moved is not in it.
    pub kernel_moves: KernelMoves,
    /// Who has moved what since the start.
    pub moved: Moved,
    /// What DAMON's schemes did, where DAMON manages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damon: Option<DamonStats>,
}

/// Why a minute's work came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What all of it ended as: a label of refusals or outcomes, `out_of_scope` or `no_evidence`.
    pub reason: &'static str,
    /// The same with the remedy.
    pub sentence: String,
}

/// What is looked at under every manager.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Time since the start.
    pub uptime: Nanos,
    /// The nodes with memory.
    pub nodes: Vec<NodeState>,
    /// Settings that others have changed.
    pub settings: SettingsStats,
    /// Where kswapd has given up.
    pub kswapd: KswapdStats,
    /// Scopes whose cgroup is not there, a sentence each.
    pub no_cgroup: &'a [String],
    /// What the kernel has moved by itself.
    pub kernel_moves: KernelMoves,
}

impl Snapshot {
    fn new(fixed: &Fixed, seen: Seen<'_>) -> Snapshot {
        Snapshot {
            fixed: fixed.clone(),
            uptime_ns: seen.uptime,
            cpu_time_ns: cpu_time(),
            trouble: None,
            trouble_reason: None,
            nodes: seen.nodes,
            settings: seen.settings,
            kswapd: seen.kswapd,
            no_cgroup: seen.no_cgroup.to_vec(),
            calls_given_up: aside::given_up(),
            kernel_moves: seen.kernel_moves,
            moved: Moved::default(),
            engine: None,
            damon: None,
        }
    }

    /// Where the engine decides.
    pub fn of_engine(fixed: &Fixed, seen: Seen<'_>, deciding: Deciding) -> Snapshot {
        Snapshot { engine: Some(deciding), ..Snapshot::new(fixed, seen) }.with_moved()
    }

    /// Where the kernel decides, by DAMON's schemes or without.
    pub fn of_kernel(fixed: &Fixed, seen: Seen<'_>, damon: Option<DamonStats>) -> Snapshot {
        Snapshot { damon, ..Snapshot::new(fixed, seen) }.with_moved()
    }

    /// The same with why the last minute's work came to nothing, where it did.
    pub fn with_trouble(self, trouble: Option<&Trouble>) -> Snapshot {
        Snapshot {
            trouble: trouble.map(|trouble| trouble.sentence.clone()),
            trouble_reason: trouble.map(|trouble| trouble.reason),
            ..self
        }
    }

    /// The same after `change`, when the machine is closed already.
    pub fn with_engine(mut self, change: impl FnOnce(&mut Deciding)) -> Snapshot {
        if let Some(engine) = &mut self.engine {
            change(engine);
        }
        self.with_moved()
    }

    fn with_moved(mut self) -> Snapshot {
        use thermocline_linux::damon::Action;

        let ours = self.engine.as_ref().map(|engine| &engine.counters);
        let damon = |action| self.damon.as_ref().map_or(0, |damon| damon.moved(action));
        let by = |thermocline: Option<u64>, kernel, damon| MovedBy {
            thermocline: thermocline.unwrap_or(0),
            kernel,
            damon,
        };
        self.moved = Moved {
            promoted: by(
                ours.map(|c| c.pgpromote_success),
                self.kernel_moves.pgpromote_success,
                damon(Action::MigrateHot),
            ),
            demoted: by(
                ours.map(|c| c.pgdemote + c.demotion_done),
                self.kernel_moves.demoted(),
                damon(Action::MigrateCold),
            ),
        };
        self
    }
}

#[cfg(test)]
impl Snapshot {
    /// What a daemon of tests shows: two nodes, nothing moved.
    pub fn for_tests() -> Snapshot {
        use thermocline_core::config::Config;
        use thermocline_core::topology::Topology;

        let fixed = Fixed::new("run", &Config::default(), &Topology::default());
        let seen = Seen {
            uptime: Nanos::from_s(4),
            nodes: Vec::new(),
            settings: SettingsStats::default(),
            kswapd: KswapdStats::default(),
            no_cgroup: &[],
            kernel_moves: KernelMoves::default(),
        };
        Snapshot::of_engine(&fixed, seen, Deciding::default())
    }
}
