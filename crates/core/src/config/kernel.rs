//! Sections of the live machine: what is set in the kernel, the hint-fault source, the daemon's
//! files.

use serde::{Deserialize, Serialize};

use crate::config::names::{AbsolutePath, GroupName, SocketPath};
use crate::config::schema::{Any, OrUnset, PowerOfTwo};
use crate::config::{Enabled, SourceKeys};
use crate::section;

/// What is done where somebody else changes a setting of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenChanged {
    /// It is left so.
    StandAside,
    /// It is set again, some times a minute at most.
    SetAgain,
}

section! {
    /// `[kernel]`: what is set in the kernel while thermocline manages or observes, and put back
    /// afterwards. Unset keys are left alone.
    Kernel {
        /// kernel.numa_balancing while running: 2 makes the kernel scan lower tiers.
        numa_balancing: Option<u32> = Some(2), "bitmask", OrUnset(0..=3), "Linux 6.12 include/linux/sched/sysctl.h", restart;
        /// kernel.numa_balancing_promote_rate_limit_MBps while running: 0 stops the kernel's own
        /// promotion while hint faults go on, but for some seconds at a time in which it is 1,
        /// where tasks are scanned more seldom than scan_period_min_ms asks for, so that they take
        /// that up.
        numa_balancing_promote_rate_limit_mbps: Option<u32> = Some(0), "MB/s", OrUnset(0..=1_000_000), "ours", restart;
        /// Least memory that one scan marks (debugfs sched/numa_balancing/scan_size_mb). Small
        /// steps keep the faults of a scan from slowing the program so much that waits no longer
        /// tell hot pages from cold ones. Where `payoff.budget_percent` is spent, it marks less.
        scan_size_mb: Option<u32> = Some(2), "MB", OrUnset(1..=65536), "ours, measured in the lab; Linux 6.12: 256", restart;
        /// Largest step: a scan marks a 256th of what lower tiers hold, or a 1250th of the
        /// machine's memory, or as much as it takes to pass over that in ten seconds given how
        /// often the kernel is seen to scan, up to this. Unset: scan_size_mb whatever there is.
        scan_size_max_mb: Option<u32> = Some(256), "MB", OrUnset(1..=65536), "Linux 6.12: scan_size_mb", restart;
        /// Shortest time to scan a whole task (debugfs sched/numa_balancing/scan_period_min_ms).
        scan_period_min_ms: Option<u32> = Some(5000), "ms", OrUnset(100..=600_000), "ours, measured in the lab; Linux 6.12: 1000", restart;
        /// Longest time to scan a whole task (debugfs sched/numa_balancing/scan_period_max_ms):
        /// what a task that recomputes its period uses.
        scan_period_max_ms: Option<u32> = Some(5000), "ms", OrUnset(100..=3_600_000), "ours, measured in the lab; Linux 6.12: 60000", restart;
        /// Age at which a task is first scanned (debugfs sched/numa_balancing/scan_delay_ms).
        scan_delay_ms: Option<u32> = None, "ms", OrUnset(0..=600_000), "Linux 6.12: 1000", restart;
        /// Let the kernel make room by demoting cold pages (/sys/kernel/mm/numa/demotion_enabled).
        demotion_enabled: Option<bool> = None, "", Any("true, false, or unset"), "Linux 6.12: false", restart;
        /// vm.min_unmapped_ratio while running: a node with no more page cache than that which
        /// nobody has mapped is not reclaimed from, neither on request nor by zone_reclaim_mode,
        /// unless min_slab_ratio lets it. Unset: 0 where demotion.way is by the node, and left
        /// alone elsewhere.
        min_unmapped_ratio: Option<u32> = None, "% of a node", OrUnset(0..=100), "Linux 6.12: 1", restart;
        /// vm.min_slab_ratio while running: a node that min_unmapped_ratio would spare is reclaimed
        /// from all the same where more than this of it is slab that can be reclaimed. Unset: 0
        /// where demotion.way is by the node, and left alone elsewhere.
        min_slab_ratio: Option<u32> = None, "% of a node", OrUnset(0..=100), "Linux 6.12: 5", restart;
        /// What is done where somebody else (an operator, sysctl --system, tuned) changes one of
        /// the kernel settings while thermocline runs, under any manager: "stand-aside" tells it
        /// and leaves the setting so, also at the end; "set-again" tells it and sets the setting
        /// again, at most three times a minute, and puts back the other's value at the end.
        when_changed: WhenChanged = WhenChanged::StandAside, "", Any("\"stand-aside\" or \"set-again\""), "ours: whoever sets a value later has the say";
    }
}

/// Steps of a pass over what lower tiers hold; with more, each would mark less than what it costs
/// to take one is worth.
const STEPS_MAX: f64 = 256.0;
/// Steps of a pass over a program as large as the machine: of 5 s, one in each of the kernel's
/// ticks of 4 ms.
const TICKS: f64 = 1250.0;

impl Kernel {
    /// How many MB a scan is to mark, within the bounds of the step, on a machine of `machine_mb`
    /// whose lower tiers hold `lower_mb`, if no program has it wait for longer than its period
    /// tells. `None` where the step is left alone.
    pub fn step_mb(&self, lower_mb: f64, machine_mb: f64) -> Option<u32> {
        let least = self.scan_size_mb?;
        let step_mb = (lower_mb / STEPS_MAX).max(machine_mb / TICKS).ceil() as u32;
        Some(step_mb.clamp(least, self.scan_size_max_mb.unwrap_or(least).max(least)))
    }

    /// Nothing is set, everything is left alone.
    pub const fn untouched() -> Kernel {
        Kernel {
            numa_balancing: None,
            numa_balancing_promote_rate_limit_mbps: None,
            scan_size_mb: None,
            scan_size_max_mb: None,
            scan_period_min_ms: None,
            scan_period_max_ms: None,
            scan_delay_ms: None,
            demotion_enabled: None,
            min_unmapped_ratio: None,
            min_slab_ratio: None,
            when_changed: WhenChanged::StandAside,
        }
    }
}

section! {
    /// `[source.hintfault]`: hint faults seen through BPF.
    HintFault {
        /// Use this source.
        enabled: bool = true, "", Any("true or false"), "ours", restart;
        /// Size of the ring between kernel and daemon; a power of two.
        ring_kib: u32 = 4096, "KiB", PowerOfTwo(64..=1_048_576), "ours", restart;
        /// The stamp of a page is the latest scan that covers it, instead of the first after its
        /// last fault.
        restamp: bool = false, "", Any("true or false"), "S0, patch 2", restart;
        /// How much the word of this source counts beside that of others: how many times as well
        /// one knows a page by it as without it, in variances of the logarithm of the time between
        /// accesses.
        weight: u8 = 10, "", 1..=100, "ours: 1.6, of the time to one access, to 16, a factor of 55, of pages at large";
        /// Processes whose scans are remembered.
        processes: u32 = 4096, "processes", 16..=1048576, "ours", restart;
        /// Memory for the scans that are remembered.
        history_mib: u32 = 256, "MiB", 1..=65536, "ours", restart;
    }
}

section! {
    /// `[daemon]`: where the daemon keeps its files.
    Daemon {
        /// Unix socket for `status` and `explain`.
        socket: String = "/run/thermocline/thermocline.sock".to_owned(), "path", SocketPath, "ours", restart;
        /// Folder of the lock and of the log of kernel settings to restore.
        state_dir: String = "/run/thermocline".to_owned(), "path", AbsolutePath, "ours", restart;
        /// Group that may ask for status; unset: root alone.
        socket_group: Option<String> = None, "", GroupName, "ours", restart;
        /// Time between two lines of `run` and `observe`.
        report_ms: u64 = 1000, "ms", 100..=3600000, "ours";
    }
}

impl SourceKeys for HintFault {
    fn enabled(&self) -> Enabled {
        self.enabled.into()
    }

    fn weight(&self) -> u8 {
        self.weight
    }
}
