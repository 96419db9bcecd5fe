//! A source's row: its description before it is opened.

use serde::Serialize;
use thermocline_core::config::{Config, Source};
use thermocline_core::statistics::Statistic;

use super::hintfault::layout::AttachPoint;
use crate::actuator::Plan;
use crate::root::Root;
use crate::topology::Discovered;

/// A source of evidence.
#[derive(Debug)]
pub struct Row {
    /// Its identity in the configuration.
    pub source: Source,
    /// What it reads, in words that follow "no".
    pub what: &'static str,
    /// The beginning of an error that prevents opening it.
    pub cannot: &'static str,
    /// The key of its counters in `status --json`.
    pub counted_as: &'static str,
    /// Whether it sees memory of the top tier too, and so that of machines with one tier.
    pub sees_top_tier: bool,
    /// Checks whether the machine has it.
    pub probe: fn(&mut Facts<'_>) -> Probed,
    /// The kernel settings that it needs; an error says why it cannot be opened.
    pub plan: fn(&Root, &Config, &Discovered) -> Result<Plan, String>,
    /// Opens it.
    #[cfg(feature = "bpf")]
    pub open: fn(&mut super::Opening<'_>) -> super::Opened,
    /// The declarations of its statistics, each list with its place in `status --json`.
    pub statistics: fn() -> Vec<(&'static str, Vec<Statistic>)>,
}

/// The plan of a source that sets nothing.
pub fn no_plan(_root: &Root, _config: &Config, _found: &Discovered) -> Result<Plan, String> {
    Ok(Plan::default())
}

/// Facts about the machine for the probes of sources.
#[derive(Debug)]
pub struct Facts<'a> {
    /// Where the kernel's files are.
    pub root: &'a Root,
    /// What is configured.
    pub config: &'a Config,
    /// Its nodes and tiers, where they could be found.
    pub topology: Option<&'a Discovered>,
    /// The kernel's release, as printed by `uname -r`.
    pub release: Option<&'a str>,
    /// kernel.numa_balancing; `None` if the kernel has none.
    pub numa_balancing: Option<u32>,
    /// The attach points that the kernel has for BPF programs, or why they cannot be queried.
    pub attach_points: Result<Vec<AttachPoint>, String>,
    /// What keeps BPF programs from being loaded.
    pub no_bpf: Option<String>,
    /// This process may sample all CPUs.
    pub may_sample: bool,
    /// This process can see the frame numbers of pages.
    pub sees_frames: bool,
    /// What keeps the kernel's settings from being set as configured.
    pub no_settings: Option<String>,
    /// The existing kdamonds belong to a thermocline that runs, or was killed.
    pub our_kdamonds: bool,
    /// The first source before this one that can be used.
    pub usable: Option<&'static str>,
    /// Files that could not be read, and why.
    pub failures: Vec<String>,
}

/// The result of probing a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probed {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Whether it can be used.
    pub status: SourceStatus,
    /// What it would see, or why it cannot be used.
    pub detail: String,
    /// What it attaches to in this kernel, where that was looked at.
    pub attach_points: Vec<AttachPoint>,
}

impl Probed {
    /// For a source that attaches to nothing.
    pub fn new(source: Source, status: SourceStatus, detail: impl Into<String>) -> Probed {
        Probed { name: source.key(), status, detail: detail.into(), attach_points: Vec::new() }
    }
}

/// Whether a source can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceStatus {
    /// It can.
    Usable,
    /// A folder stands for the machine and does not show it.
    Unknown,
    /// The machine offers it; it is switched off, or this version of thermocline does not read it.
    NotRead,
    /// The machine, the kernel or this process's permissions do not allow it.
    Unavailable,
}

impl SourceStatus {
    /// Whether it is known to be unusable at present.
    pub const fn is_refused(self) -> bool {
        matches!(self, SourceStatus::Unavailable | SourceStatus::NotRead)
    }
}
