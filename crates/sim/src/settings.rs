//! Settings of the kernel and of the devices.

use serde::{Deserialize, Serialize};
use thermocline_core::pace::ScanPace;
use thermocline_core::published::{fault_count, threshold};

use crate::spec::{SpecError, require};

/// Bit of `pghot_enabled_sources`: hint faults (S4, v6).
pub(crate) const PGHOT_HINT_FAULTS: u8 = 1;
/// Bit of `pghot_enabled_sources`: hardware hints (S4, v6).
pub(crate) const PGHOT_HWHINTS: u8 = 2;

/// The kernel's settings, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelSettings {
    /// `/sys/kernel/mm/numa/demotion_enabled`.
    pub demotion_enabled: bool,
    /// debugfs `sched/numa_balancing/scan_delay_ms`.
    pub scan_delay_ms: u64,
    /// debugfs `sched/numa_balancing/scan_period_min_ms`.
    pub scan_period_min_ms: u64,
    /// debugfs `sched/numa_balancing/scan_period_max_ms`.
    pub scan_period_max_ms: u64,
    /// debugfs `sched/numa_balancing/scan_size_mb`.
    pub scan_size_mb: u64,
    /// debugfs `sched/numa_balancing/hot_threshold_ms`.
    pub hot_threshold_ms: u64,
    /// `kernel.numa_balancing_promote_rate_limit_MBps`.
    pub promote_rate_limit_mbps: u64,
    /// S0's debugfs `sched/numa_balancing/fault_count_threshold`.
    pub fault_count_threshold: u32,
    /// S0, patch 2: a scan stamps pages again that it finds marked.
    pub restamp: bool,
    /// Scans mark pages of the top tier too: `numa_balancing` = 1.
    pub scan_all: bool,
    /// S4's `freq_threshold`: accesses that make a record ready; 1 to 3, with precise records to 7.
    pub pghot_freq_threshold: u8,
    /// S4's `freq_window_ms`: accesses further apart restart the count; where it is absent 3000,
    /// with precise records 5000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pghot_freq_window_ms: Option<u64>,
    /// S4's `target_nid`: the node that all pages go to where records are not precise; -1 for the
    /// nearest node of the top tier.
    pub pghot_target_nid: i32,
    /// S4's `kmigrated_sleep_ms`: time between two runs of kmigrated.
    pub pghot_sleep_ms: u64,
    /// S4's `enabled_sources`: 0 none, 1 hint faults, 2 hardware hints, 3
    /// both.
    pub pghot_enabled_sources: u8,
    /// Device counters: time of an epoch.
    pub chmu_epoch_ms: u64,
    /// Device counters: one access in this many is counted.
    pub chmu_downsampling: u32,
    /// Device counters: counted accesses in an epoch that make a page hot.
    pub chmu_threshold: u32,
    /// Device counters: counters that a device has.
    pub chmu_counters: u64,
    /// Device counters: pages that its list holds.
    pub chmu_list: u64,
    /// Share of virtual to marked memory that one scan may pass over (Linux 6.12 `task_numa_work`:
    /// 8).
    pub scan_virtual_factor: u64,
}

impl Default for KernelSettings {
    fn default() -> KernelSettings {
        KernelSettings {
            demotion_enabled: true,
            scan_delay_ms: 1000,
            scan_period_min_ms: 1000,
            scan_period_max_ms: 60_000,
            scan_size_mb: 256,
            hot_threshold_ms: 1000,
            promote_rate_limit_mbps: threshold::RATE_LIMIT_MBPS,
            fault_count_threshold: fault_count::THRESHOLD,
            restamp: false,
            scan_all: false,
            pghot_freq_threshold: 2,
            pghot_freq_window_ms: None,
            pghot_target_nid: 0,
            pghot_sleep_ms: 100,
            pghot_enabled_sources: PGHOT_HINT_FAULTS,
            chmu_epoch_ms: 1000,
            chmu_downsampling: 8192,
            chmu_threshold: 2,
            chmu_counters: 1 << 20,
            chmu_list: 1 << 16,
            scan_virtual_factor: 8,
        }
    }
}

impl KernelSettings {
    /// Sets the pace of the kernel's scans; with `renews`, also the periods and the promotion limit
    /// of a renewal.
    pub(crate) fn follow(&mut self, pace: ScanPace, renews: bool) {
        self.scan_size_mb = pace.step_mb.into();
        if renews {
            let set = |key: &mut u64, ms: Option<u32>| *key = ms.map_or(*key, u64::from);
            set(&mut self.scan_period_min_ms, pace.period_min_ms);
            set(&mut self.scan_period_max_ms, pace.period_max_ms);
            self.promote_rate_limit_mbps = pace.renewing.into();
        }
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let within = |key: &str, value: u64, range: std::ops::RangeInclusive<u64>| {
            let remedy = format!("give {} to {}", range.start(), range.end());
            require(range.contains(&value), &format!("kernel.{key}"), "is out of range", &remedy)
        };
        within("scan_delay_ms", self.scan_delay_ms, 0..=600_000)?;
        within("scan_period_min_ms", self.scan_period_min_ms, 1..=3_600_000)?;
        within("scan_period_max_ms", self.scan_period_max_ms, self.scan_period_min_ms..=3_600_000)?;
        within("scan_size_mb", self.scan_size_mb, 1..=65_536)?;
        within("hot_threshold_ms", self.hot_threshold_ms, 8..=3_600_000)?;
        within("promote_rate_limit_mbps", self.promote_rate_limit_mbps, 0..=1_000_000)?;
        within("pghot_freq_threshold", u64::from(self.pghot_freq_threshold), 1..=7)?;
        within("pghot_freq_window_ms", self.pghot_freq_window_ms.unwrap_or(1000), 1000..=16_383)?;
        within("pghot_sleep_ms", self.pghot_sleep_ms, 50..=1000)?;
        within("pghot_enabled_sources", u64::from(self.pghot_enabled_sources), 0..=3)?;
        within("chmu_epoch_ms", self.chmu_epoch_ms, 1..=3_600_000)?;
        within("chmu_downsampling", u64::from(self.chmu_downsampling), 1..=32_768)?;
        within("chmu_threshold", u64::from(self.chmu_threshold), 1..=u64::from(u32::MAX))?;
        within("chmu_counters", self.chmu_counters, 1..=1 << 26)?;
        within("chmu_list", self.chmu_list, 1..=1 << 26)?;
        within("scan_virtual_factor", self.scan_virtual_factor, 1..=1024)
    }
}
