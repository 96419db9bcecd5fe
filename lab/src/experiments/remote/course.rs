//! The plan for the guest and its results.

use std::fmt;

use anyhow::anyhow;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thermocline_core::units::NodeId;

use crate::experiments::score::manager::Manager;

/// The name of the [`Course`] in the shared folder.
pub(crate) const COURSE: &str = "course.json";

/// The initial place of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Far {
    /// On a lower tier: it is promoted.
    Cxl,
    /// On a DRAM node without processors: it is balanced.
    Dram,
}

impl Far {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Far::Cxl => "cxl",
            Far::Dram => "dram",
        }
    }

    /// The node, of the lab's default machine.
    pub(crate) fn node(self) -> NodeId {
        match self {
            Far::Cxl => NodeId(2),
            Far::Dram => NodeId(1),
        }
    }

    /// The kinds of evidence for it.
    pub(crate) fn evidence(self) -> &'static [Evidence] {
        match self {
            Far::Cxl => &[Evidence::Samples, Evidence::Hintfaults, Evidence::Kernel],
            Far::Dram => &[Evidence::Samples, Evidence::Kernel],
        }
    }
}

/// The kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Evidence {
    /// Our daemon by samples alone.
    Samples,
    /// Our daemon by hint faults alone, in its default configuration.
    Hintfaults,
    /// The kernel by its hint faults, without us.
    Kernel,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Samples => "samples",
            Evidence::Hintfaults => "hintfaults",
            Evidence::Kernel => "kernel",
        })
    }
}

/// The plan for the guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The initial place of the memory.
    pub(crate) from: Far,
    /// The kind of evidence.
    pub(crate) by: Evidence,
    /// Memory of the program, MiB.
    pub(crate) mib: u32,
    /// Seconds to watch.
    pub(crate) seconds: u64,
    /// About every Nth access is tagged.
    pub(crate) sample_every: u64,
    /// Seed of the accesses.
    pub(crate) seed: u64,
}

/// Settings of a daemon with the lab's samples as its only source, and a budget that suffices for
/// reading them under emulation.
const SAMPLES_ALONE: &str = "source.hintfault.enabled=false+source.hwsample.enabled=true+source.hwsample.sampler=\"lab-rings\"\
     +source.hwsample.cpu_budget_permille=200+reverse.cpu_permille=200+kernel.numa_balancing=0";

impl Plan {
    /// Our daemon, if it is used; else the kernel balances by [`Plan::balancing`].
    pub(crate) fn manager(&self) -> anyhow::Result<Option<Manager>> {
        let text = match (self.by, self.from) {
            (Evidence::Kernel, _) => return Ok(None),
            (Evidence::Hintfaults, _) => "thermocline".to_owned(),
            (Evidence::Samples, Far::Cxl) => format!("thermocline+{SAMPLES_ALONE}"),
            (Evidence::Samples, Far::Dram) => {
                format!("thermocline+{SAMPLES_ALONE}+rule.balance.enabled=true")
            }
        };
        text.parse().map(Some).map_err(|error: String| anyhow!(error))
    }

    /// `kernel.numa_balancing` if the kernel balances: 1 balances nodes of DRAM, 2 promotes.
    pub(crate) fn balancing(&self) -> &'static str {
        match self.from {
            Far::Cxl => "2",
            Far::Dram => "1",
        }
    }
}

/// All totals at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// Since the manager started, s.
    pub(crate) at_s: f64,
    /// Base pages of the program that are on the processors' node.
    pub(crate) home_pages: u64,
    /// All base pages of the program.
    pub(crate) pages: u64,
    /// Accesses of the program.
    pub(crate) accesses: u64,
    /// Hint faults (vmstat `numa_hint_faults`).
    pub(crate) hint_faults: u64,
    /// Samples that the daemon has read.
    pub(crate) samples: u64,
    /// Useful samples: misses of the program on memory that is not at home yet.
    pub(crate) useful: u64,
}

/// The result of one plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Course {
    /// The plan.
    pub(crate) plan: Plan,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// CPU time of our daemon, s.
    pub(crate) daemon_cpu_s: f64,
    /// Each second.
    pub(crate) moments: Vec<Moment>,
}

impl Course {
    /// The last moment.
    pub(crate) fn last(&self) -> Moment {
        self.moments.last().copied().unwrap_or_default()
    }

    /// When this share (0 to 1) of the memory was at home for the first time, s.
    pub(crate) fn home_at_s(&self, share: f64) -> Option<f64> {
        self.moments.iter().find(|m| m.home_pages as f64 >= share * m.pages as f64).map(|m| m.at_s)
    }
}
