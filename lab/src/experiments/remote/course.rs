//! What is asked of the guest and what it hands back.

use std::fmt;

use anyhow::anyhow;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thermocline_core::units::NodeId;

use crate::experiments::score::manager::Manager;

/// The name of the [`Course`] in the shared folder.
pub(crate) const COURSE: &str = "course.json";

/// Where the memory lies at first.
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

    /// What can be known of accesses to it.
    pub(crate) fn evidence(self) -> &'static [Evidence] {
        match self {
            Far::Cxl => &[Evidence::Samples, Evidence::Hintfaults, Evidence::Kernel],
            Far::Dram => &[Evidence::Samples, Evidence::Kernel],
        }
    }
}

/// By what pages are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Evidence {
    /// Our daemon by samples alone.
    Samples,
    /// Our daemon by hint faults alone, as it comes.
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

/// What the guest is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Where the memory lies at first.
    pub(crate) from: Far,
    /// By what pages are found.
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

/// Settings of a daemon that sees nothing but the lab's samples, and may take the time to read them
/// that the emulator makes it take.
const SAMPLES_ALONE: &str = "source.hintfault.enabled=false+source.hwsample.enabled=true+source.hwsample.sampler=\"lab-rings\"\
     +source.hwsample.cpu_budget_permille=200+reverse.cpu_permille=200+kernel.numa_balancing=0";

impl Plan {
    /// Our daemon, where it is one; else the kernel balances as [`Plan::balancing`] says.
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

    /// `kernel.numa_balancing` where the kernel does it: 1 balances nodes of DRAM, 2 promotes.
    pub(crate) fn balancing(&self) -> &'static str {
        match self.from {
            Far::Cxl => "2",
            Far::Dram => "1",
        }
    }
}

/// Everything until a moment.
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
    /// Those that were evidence: misses of the program on memory that is not at home yet.
    pub(crate) useful: u64,
}

/// What came of one plan.
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

    /// When so much of the memory (a share from 0 to 1) was at home first, s.
    pub(crate) fn home_at_s(&self, share: f64) -> Option<f64> {
        self.moments.iter().find(|m| m.home_pages as f64 >= share * m.pages as f64).map(|m| m.at_s)
    }
}
