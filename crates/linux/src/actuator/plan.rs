//! What a configuration changes in the kernel, found and reported before it is done.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use thermocline_core::config::Kernel;

use crate::actuator::{chosen, same_value};
use crate::root::{KernelFileError, Root, list_optional, read_optional};

/// One setting that will be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The kernel's name for it.
    pub name: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The value now.
    pub from: String,
    /// The value while running.
    pub to: String,
    /// The reason.
    pub why: &'static str,
    /// The command that undoes it by hand.
    pub undo: String,
}

/// What a configuration changes in this kernel, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The changes; settings that have their value already are not among them.
    pub changes: Vec<Change>,
    /// Settings that already have their value, and that value, which should stay while running.
    #[serde(skip)]
    pub kept: Vec<(PathBuf, String)>,
    /// Settings that are left as they are because this kernel keeps them out of reach. Thermocline
    /// works without them, at the kernel's own pace.
    pub skipped: Vec<Skipped>,
}

/// A requested setting that helps but is not required, and that cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The kernel's name for it.
    pub name: &'static str,
    /// The value asked for.
    pub to: String,
    /// Why it cannot be set, and what would change that.
    pub why: String,
}

impl Plan {
    /// Whether there is nothing to report: all settings have their values.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.skipped.is_empty()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {} ({}); undo: {}", self.name, self.from, self.to, self.why, self.undo)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: left as it is instead of {}: {}", self.name, self.to, self.why)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self.changes.iter().map(ToString::to_string);
        let lines: Vec<String> = changes.chain(self.skipped.iter().map(ToString::to_string)).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// A setting of `[kernel]` and where the kernel keeps it.
struct Knob {
    name: &'static str,
    place: Place,
    why: fn(&Kernel) -> &'static str,
    value: fn(&Kernel) -> Option<String>,
}

#[derive(PartialEq, Eq)]
enum Place {
    /// Below proc/sys/kernel.
    Sysctl,
    /// Below proc/sys/vm.
    Vm,
    /// Below debugfs sched/numa_balancing; until Linux 5.13 a sysctl with the prefix
    /// `numa_balancing_`.
    SchedDebug,
    /// Below sys/kernel/mm/numa.
    MmNuma,
}

/// In order of writing. The promote rate limit is set before the mode that would promote without
/// it, and the mode is last: scans begin with their size and period already set.
const KNOBS: [Knob; 9] = [
    Knob {
        name: "numa_balancing_promote_rate_limit_MBps",
        place: Place::Sysctl,
        why: |k| match k.numa_balancing_promote_rate_limit_mbps {
            Some(0) => "so that the kernel leaves promotion to thermocline",
            _ => "most that the kernel promotes, as configured",
        },
        value: |k| k.numa_balancing_promote_rate_limit_mbps.map(|v| v.to_string()),
    },
    Knob {
        name: "scan_size_mb",
        place: Place::SchedDebug,
        why: |_| "least memory that one scan marks, as configured",
        value: |k| k.scan_size_mb.map(|v| v.to_string()),
    },
    Knob {
        name: "scan_period_min_ms",
        place: Place::SchedDebug,
        why: |_| "shortest time to scan a task, as configured",
        value: |k| k.scan_period_min_ms.map(|v| v.to_string()),
    },
    Knob {
        name: "scan_period_max_ms",
        place: Place::SchedDebug,
        why: |_| "longest time to scan a task, as configured",
        value: |k| k.scan_period_max_ms.map(|v| v.to_string()),
    },
    Knob {
        name: "scan_delay_ms",
        place: Place::SchedDebug,
        why: |_| "age at which a task is first scanned, as configured",
        value: |k| k.scan_delay_ms.map(|v| v.to_string()),
    },
    Knob {
        name: "demotion_enabled",
        place: Place::MmNuma,
        why: |_| "so that reclaim in the top tier demotes cold pages instead of swapping or dropping them",
        value: |k| k.demotion_enabled.map(|v| v.to_string()),
    },
    Knob {
        name: "min_unmapped_ratio",
        place: Place::Vm,
        why: |_| "so that nodes with hardly any page cache are reclaimed from too",
        value: |k| k.min_unmapped_ratio.map(|v| v.to_string()),
    },
    Knob {
        name: "min_slab_ratio",
        place: Place::Vm,
        why: |_| "so that nodes are reclaimed from too whose page cache is all mapped",
        value: |k| k.min_slab_ratio.map(|v| v.to_string()),
    },
    Knob {
        name: "numa_balancing",
        place: Place::Sysctl,
        why: |k| match k.numa_balancing {
            Some(0) => "so that the kernel moves no pages after hint faults",
            _ => "so that the kernel marks pages of lower tiers and their accesses become hint faults",
        },
        value: |k| k.numa_balancing.map(|v| v.to_string()),
    },
];

/// What `kernel` changes on the machine at `root`. Nothing is written.
///
/// # Errors
/// A setting that is needed is not offered by this kernel, or cannot be read. The scan settings
/// only pace the kernel: if they are out of reach, they are skipped.
pub fn plan(root: &Root, kernel: &Kernel) -> Result<Plan, KernelFileError> {
    let mut plan = Plan::default();
    for knob in &KNOBS {
        let Some(to) = (knob.value)(kernel) else { continue };
        let (path, from) = match find(root, knob) {
            Ok(found) => found,
            Err(why) if knob.place == Place::SchedDebug => {
                plan.skipped.push(Skipped { name: knob.name, to, why: why.to_string() });
                continue;
            }
            Err(why) => return Err(why),
        };
        if same_value(&from, &to) {
            plan.kept.push((path, to));
            continue;
        }
        let from = chosen(&from).to_owned();
        let undo = format!("echo {from} > {}", path.display());
        plan.changes.push(Change { name: knob.name, path, from, to, why: (knob.why)(kernel), undo });
    }
    Ok(plan)
}

/// The knob's files, by kernel version.
fn places(root: &Root, knob: &Knob) -> Vec<PathBuf> {
    let sysctl = root.proc.join("sys/kernel");
    match knob.place {
        Place::Sysctl => vec![sysctl.join(knob.name)],
        Place::Vm => vec![root.proc.join("sys/vm").join(knob.name)],
        Place::MmNuma => vec![root.sys.join("kernel/mm/numa").join(knob.name)],
        Place::SchedDebug => vec![
            root.debugfs().join("sched/numa_balancing").join(knob.name),
            sysctl.join(format!("numa_balancing_{}", knob.name)),
        ],
    }
}

/// The files of all knobs.
pub(super) fn all_places(root: &Root) -> impl Iterator<Item = PathBuf> + '_ {
    KNOBS.iter().flat_map(|knob| places(root, knob))
}

/// The knob's file on this kernel and its value.
fn find(root: &Root, knob: &Knob) -> Result<(PathBuf, String), KernelFileError> {
    let paths = places(root, knob);
    for path in &paths {
        if let Some(text) = read_optional(path)? {
            return Ok((path.clone(), text));
        }
    }
    let remedy = match knob.place {
        Place::Sysctl => {
            "boot a kernel of 6.1 or later with CONFIG_NUMA_BALANCING, or unset the key in [kernel]"
        }
        Place::Vm => "boot a kernel with CONFIG_NUMA, or unset the key in [kernel]",
        Place::MmNuma => "boot a kernel of 5.15 or later with CONFIG_MIGRATION, or unset the key in [kernel]",
        Place::SchedDebug if list_optional(&root.debugfs())?.is_none_or(|names| names.is_empty()) => {
            "debugfs is not mounted: mount -t debugfs none /sys/kernel/debug"
        }
        Place::SchedDebug => {
            "boot a kernel with CONFIG_NUMA_BALANCING and CONFIG_SCHED_DEBUG, or unset the key in [kernel]"
        }
    };
    Err(KernelFileError::not_supported(knob.name, &paths[0], remedy))
}
