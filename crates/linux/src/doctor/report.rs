//! The doctor's report. Its JSON is a stable interface: keys are added, never renamed or removed,
//! within a [`SCHEMA`] number.

use serde::Serialize;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{NodeId, Pid};

use crate::actuator::Change;
use crate::doctor::kernel::KernelInfo;
use crate::source::Probed;
use crate::topology::Discovered;

/// Number of the JSON's schema.
pub const SCHEMA: u32 = 1;

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Whether thermocline can work here.
    pub verdict: Verdict,
    /// The running kernel and its settings.
    pub kernel: KernelInfo,
    /// Nodes and tiers; `None` if they could not be read.
    pub topology: Option<Discovered>,
    /// Free pages and watermarks of the nodes with memory.
    pub nodes: Vec<NodeState>,
    /// Where evidence can come from.
    pub sources: Vec<Probed>,
    /// The managers, and whether they can work here.
    pub managers: Vec<Manager>,
    /// What this process may do.
    pub permissions: Vec<Permission>,
    /// What `run` would change in the kernel.
    pub changes: Vec<Change>,
    /// Other movers and watchers of pages.
    pub others: Vec<Other>,
    /// Memory that hint faults cannot see.
    pub blind: Blind,
    /// Programs whose cpusets leave out the whole top tier.
    pub confined: Vec<Confined>,
    /// What needs attention, the worst first.
    pub findings: Vec<Finding>,
}

/// Whether thermocline can work here, as things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It can. Exit status 0.
    Usable,
    /// It can, with the problems that are listed. Exit status 1.
    Problems,
    /// It cannot; the findings say what would change that. Exit status 2.
    Unusable,
}

impl Verdict {
    /// The exit status of `thermocline doctor`.
    pub const fn exit_status(self) -> u8 {
        match self {
            Verdict::Usable => 0,
            Verdict::Problems => 1,
            Verdict::Unusable => 2,
        }
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// All is well.
    Ok,
    /// Worth knowing.
    Note,
    /// Thermocline works, less well or less safely than it could.
    Problem,
    /// Thermocline cannot work.
    Blocker,
}

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable name, as in `topology.one_tier`.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The fact, and its consequence.
    pub cause: String,
    /// What would change it, the easiest first.
    pub remedies: Vec<Remedy>,
}

/// What would change a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// What to do.
    pub what: String,
    /// The command that does it, where one does.
    pub command: Option<String>,
}

/// The precondition of a remedy. Every remedy has one, and a remedy that cannot work on this
/// machine is not printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground(bool);

impl Ground {
    /// It depends only on us: our configuration, our command, or the place where we are started.
    pub(super) const OURS: Ground = Ground(true);

    /// Its requirement on the machine was checked, with this result.
    pub(super) const fn seen(so: bool) -> Ground {
        Ground(so)
    }
}

/// A manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Manager {
    /// Its name in `manager.name` of the configuration.
    pub name: &'static str,
    /// Whether the configuration chooses it.
    pub chosen: bool,
    /// Whether it can work here, as things stand.
    pub usable: bool,
    /// What it would do, or why it cannot.
    pub detail: String,
}

/// Something that this process may or may not do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Permission {
    /// The capability or access.
    pub name: &'static str,
    /// Whether this process has it; `None` if a folder stands for the machine and does not show it.
    pub held: Option<bool>,
    /// What it is needed for.
    pub needed_for: &'static str,
}

/// Another mover or watcher of pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    /// Its name.
    pub name: String,
    /// The process, if it is one.
    pub pid: Option<Pid>,
    /// Whether it moves pages; otherwise it only watches.
    pub moves: bool,
    /// What it does.
    pub detail: String,
}

/// Memory that hint faults cannot see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Blind {
    /// By process, the largest first; at most [`crate::doctor::BLIND_PROCESSES_MAX`].
    pub processes: Vec<BlindProcess>,
    /// All processes together.
    pub total: BlindSum,
    /// Pool of huge pages by node, in use or not.
    pub hugetlb_pool_mib: Vec<(NodeId, u64)>,
    /// Processes whose mappings were read.
    pub looked_at: usize,
    /// Processes that were left out because of the time limit.
    pub not_looked_at: usize,
    /// Processes that did not answer in time, because their mmap lock is held, and their names.
    pub stuck: Vec<(Pid, String)>,
    /// Processes whose mappings this process may not read.
    pub unreadable: usize,
}

/// A program whose cpuset leaves out the whole top tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confined {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// Its cgroup, where it has one of version 2.
    pub cgroup: Option<String>,
}

/// An amount of memory that hint faults cannot see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlindSum {
    /// On all nodes.
    pub kib: u64,
    /// On nodes below the kernel's top tier, where it could have been promoted.
    pub lower_tier_kib: u64,
}

/// Memory of one process that hint faults cannot see, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlindProcess {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// The memory policy (`bind`, `prefer`, `interleave`, ...) or `hugetlb`.
    pub reason: String,
    /// The amount.
    #[serde(flatten)]
    pub sum: BlindSum,
}

impl Finding {
    /// A finding without remedies yet.
    pub(super) fn new(id: &'static str, severity: Severity, cause: impl Into<String>) -> Finding {
        Finding { id, severity, cause: cause.into(), remedies: Vec::new() }
    }

    /// Adds a remedy in words, where its ground holds.
    pub(super) fn fix(mut self, ground: Ground, what: impl Into<String>) -> Finding {
        if ground.0 {
            self.remedies.push(Remedy { what: what.into(), command: None });
        }
        self
    }

    /// Adds a remedy that a command carries out, where its ground holds.
    pub(super) fn run(
        mut self,
        ground: Ground,
        what: impl Into<String>,
        command: impl Into<String>,
    ) -> Finding {
        if ground.0 {
            self.remedies.push(Remedy { what: what.into(), command: Some(command.into()) });
        }
        self
    }
}
