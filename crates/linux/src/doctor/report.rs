//! The doctor's report. Its JSON is a stable interface: keys are added, never renamed or removed,
//! within a [`SCHEMA`] number.

use serde::Serialize;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Pid;

use crate::actuator::Change;
use crate::away::Away;
use crate::doctor::kernel::KernelInfo;
use crate::finding::{Blind, Confined, Finding};
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
    /// Programs most of whose memory is on another DRAM node than their threads run on.
    pub away: Vec<Away>,
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
