//! The state of the daemon at one moment, under any manager. `status`, lines and the summary are
//! made from it.

mod engine;
mod explained;
mod explained_scope;
mod finding;
mod fixed;
mod latest;
mod recent;
mod status;

use serde::Serialize;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;
use thermocline_linux::actuator::SettingsStats;
use thermocline_linux::aside;
use thermocline_linux::damon::DamonStats;
use thermocline_linux::finding::Stuck;
use thermocline_linux::kernel_moves::{KernelMoves, Moved, MovedBy};
use thermocline_linux::kswapd::KswapdStats;
use thermocline_linux::machine::cpu_time;
use thermocline_trace::stats::RecordingStats;

pub use engine::Deciding;
pub use explained::{Askable, Explained};
pub use explained_scope::ExplainedScope;
pub use finding::{OpenFinding, timestamp};
pub use fixed::{Fixed, Named, SCHEMA};
pub use latest::Latest;
pub use recent::Recent;
pub use status::Status;

/// The state of the daemon at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// What does not change.
    #[serde(flatten)]
    pub fixed: Fixed,
    /// Time since the start, ns.
    pub uptime_ns: Nanos,
    /// CPU time of the daemon, ns, all threads.
    pub cpu_time_ns: Nanos,
    /// Why nothing was achieved in the last minute, if so.
    pub trouble: Option<String>,
    /// The label that nearly all of it ended with, if known.
    pub trouble_reason: Option<&'static str>,
    /// The findings that are open, the worst first.
    pub findings: Vec<OpenFinding>,
    /// What the engine has decided, and on which evidence. In lines of JSON its figures come before
    /// the kernel's of the same name. `None` if the kernel decides.
    #[serde(flatten)]
    pub engine: Option<Deciding>,
    /// The nodes with memory.
    pub nodes: Vec<NodeState>,
    /// Settings that others have changed.
    pub settings: SettingsStats,
    /// Nodes on which kswapd has given up, and attempts to restart it.
    pub kswapd: KswapdStats,
    /// Scopes whose cgroup does not exist, one sentence each.
    pub no_cgroup: Vec<String>,
    /// System calls given up because a process blocked them. That process is left alone until they
    /// return.
    pub calls_given_up: u64,
    /// What the kernel has moved by itself since the start, without DAMON's moves.
    pub kernel_moves: KernelMoves,
    /// Pages moved by thermocline, the kernel and DAMON since the start.
    pub moved: Moved,
    /// What DAMON's schemes did, if DAMON manages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damon: Option<DamonStats>,
    /// Figures of the recording, if one is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingStats>,
}

/// Figures that exist under every manager.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Time since the start.
    pub uptime: Nanos,
    /// The nodes with memory.
    pub nodes: Vec<NodeState>,
    /// Settings that others have changed.
    pub settings: SettingsStats,
    /// Nodes on which kswapd has given up.
    pub kswapd: KswapdStats,
    /// Scopes whose cgroup does not exist, one sentence each.
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
            findings: Vec::new(),
            nodes: seen.nodes,
            settings: seen.settings,
            kswapd: seen.kswapd,
            no_cgroup: seen.no_cgroup.to_vec(),
            calls_given_up: aside::given_up(),
            kernel_moves: seen.kernel_moves,
            moved: Moved::default(),
            engine: None,
            damon: None,
            recording: None,
        }
    }

    /// A snapshot while the engine decides.
    pub fn of_engine(fixed: &Fixed, seen: Seen<'_>, deciding: Deciding) -> Snapshot {
        Snapshot { engine: Some(deciding), ..Snapshot::new(fixed, seen) }.with_moved()
    }

    /// A snapshot while the kernel decides, with DAMON's schemes or without.
    pub fn of_kernel(fixed: &Fixed, seen: Seen<'_>, damon: Option<DamonStats>) -> Snapshot {
        Snapshot { damon, ..Snapshot::new(fixed, seen) }.with_moved()
    }

    /// Adds why nothing was achieved in the last minute, if so.
    pub fn with_trouble(self, stuck: Option<&Stuck>) -> Snapshot {
        Snapshot {
            trouble: stuck.map(|stuck| stuck.sentence.clone()),
            trouble_reason: stuck.map(|stuck| stuck.reason),
            ..self
        }
    }

    /// Adds the findings that are open.
    pub fn with_findings(self, findings: Vec<OpenFinding>) -> Snapshot {
        Snapshot { findings, ..self }
    }

    /// Adds the figures of the recording.
    pub fn with_recording(self, recording: Option<RecordingStats>) -> Snapshot {
        Snapshot { recording, ..self }
    }

    /// Applies `change` to the engine's figures, after the machine has been closed.
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
    /// A snapshot for tests: two nodes, nothing moved.
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
