//! Sections of the managers: who decides which pages move.

use serde::{Deserialize, Serialize};

use crate::config::schema::{Any, OrUnset, Violation};
use crate::section;

/// Who decides which pages move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ManagerName {
    /// Our engine.
    Thermocline,
    /// The kernel, by NUMA balancing in tiering mode and reclaim.
    Numab2,
    /// The kernel, by DAMON's schemes (S3).
    Damon,
    /// Nobody; what is hot is shown.
    Observe,
}

impl ManagerName {
    /// Every manager.
    pub const ALL: [ManagerName; 4] =
        [ManagerName::Thermocline, ManagerName::Numab2, ManagerName::Damon, ManagerName::Observe];

    /// The manager's name in the configuration.
    pub const fn text(self) -> &'static str {
        match self {
            ManagerName::Thermocline => "thermocline",
            ManagerName::Numab2 => "numab2",
            ManagerName::Damon => "damon",
            ManagerName::Observe => "observe",
        }
    }

    /// Whether the kernel decides and our engine does not run.
    pub const fn is_of_kernel(self) -> bool {
        matches!(self, ManagerName::Numab2 | ManagerName::Damon)
    }
}

section! {
    /// `[manager]`: who decides which pages move.
    Manager {
        /// "thermocline": our engine. "numab2": the kernel's NUMA balancing and reclaim. "damon":
        /// the kernel's DAMON. "observe": nobody. The kernel's managers know no rules and, but for
        /// damon with scopes by cgroup, no scopes, and set what is in their own section instead of
        /// `[kernel]`.
        name: ManagerName = ManagerName::Thermocline, "", Any("\"thermocline\", \"numab2\", \"damon\" or \"observe\""), "ours", restart;
    }
    sections {
        /// `[manager.numab2]`.
        "numab2" numab2: Numab2;
        /// `[manager.damon]`.
        "damon" damon: Damon;
    }
}

section! {
    /// `[manager.numab2]`: the kernel promotes after hint faults (kernel.numa_balancing = 2). Unset
    /// keys are left alone.
    Numab2 {
        /// Let the kernel make room by demoting cold pages (/sys/kernel/mm/numa/demotion_enabled).
        demotion_enabled: Option<bool> = Some(true), "", Any("true, false, or unset"), "Linux 6.12: false; without it nothing is promoted once the top tier is full", restart;
        /// Memory promoted per second, at most (kernel.numa_balancing_promote_rate_limit_MBps).
        promote_rate_limit_mbps: Option<u32> = None, "MB/s", OrUnset(0..=1_000_000), "Linux 6.12: 65536", restart;
    }
}

section! {
    /// `[manager.damon]`: a kdamond for every node with memory. It promotes from lower tiers what
    /// is accessed (`migrate_hot`), and demotes from upper tiers what is not (`migrate_cold`);
    /// where there are scopes, which must be by cgroup, only their pages, by filters (`memcg`).
    Damon {
        /// Time between two looks at a page of each region.
        sample_ms: u64 = 100, "ms", 1..=10_000, "S3; HMSDK", restart;
        /// Time over which accesses of a region are counted; regions are then merged, split and
        /// acted on.
        aggregation_ms: u64 = 2_000, "ms", 10..=600_000, "S3; HMSDK", restart;
        /// Time between two looks at what memory there is.
        update_ms: u64 = 20_000, "ms", 10..=3_600_000, "S3; HMSDK", restart;
        /// Regions of a node, at least.
        regions_min: u64 = 100, "regions", 3..=1_000_000, "S3; HMSDK", restart;
        /// Regions of a node, at most; no fewer than the least.
        regions_max: u64 = 10_000, "regions", 3..=1_000_000, "S3; HMSDK", restart;
        /// A region is promoted when it was accessed in so many of the samples.
        hot_percent: u64 = 5, "% of the samples", 1..=100, "S3; HMSDK", restart;
        /// A region is demoted when it was not accessed for this long.
        cold_ms: u64 = 30_000, "ms", 0..=3_600_000, "S3; HMSDK", restart;
        /// Only pages that were accessed since the last look are promoted, only others demoted
        /// (filter `young`).
        young: bool = true, "", Any("true or false"), "S3; HMSDK", restart;
        /// CPU time that promotion may take of each quota_ms; 0 for no limit.
        promote_time_ms: u64 = 2_000, "ms", 0..=600_000, "S3; HMSDK", restart;
        /// CPU time that demotion may take of each quota_ms; 0 for no limit.
        demote_time_ms: u64 = 1_000, "ms", 0..=600_000, "S3; HMSDK", restart;
        /// Memory that each node's promotion, and its demotion, may try in each quota_ms; 0 for no
        /// limit.
        quota_mib: u64 = 51_200, "MiB", 0..=1_048_576, "S3; HMSDK", restart;
        /// Time for which quotas are given.
        quota_ms: u64 = 20_000, "ms", 1..=3_600_000, "S3; HMSDK", restart;
        /// Weight of a region's size where a quota lets only some through.
        weight_size_permille: u32 = 0, "1/1000", 0..=1000, "S3; HMSDK", restart;
        /// Weight of how often it was accessed.
        weight_accesses_permille: u32 = 0, "1/1000", 0..=1000, "S3; HMSDK", restart;
        /// Weight of how long it has been so.
        weight_age_permille: u32 = 10, "1/1000", 0..=1000, "S3; HMSDK", restart;
        /// Node of the top tier that hot regions are promoted to (`target_nid`). Unset: the nearest
        /// to each node, and of several the largest.
        target_nid: Option<u32> = None, "node", OrUnset(0..=1023), "S3: DRAM is one node; Linux 6.12 mm/damon/sysfs-schemes.c: target_nid", restart;
        /// Quotas of promotion follow how much of the target node is used, towards this (goal
        /// `node_mem_used_bp`); as in Linux' own sample 9970.
        used_goal_bp: Option<u32> = None, "1/10000 of the node", OrUnset(1..=10_000), "HMSDK has none; Linux 7.2 samples/damon/mtier.c", restart;
        /// Quotas of demotion follow how much of the node is free, towards this (goal
        /// `node_mem_free_bp`); as in Linux' own sample 50.
        free_goal_bp: Option<u32> = None, "1/10000 of the node", OrUnset(1..=10_000), "HMSDK has none; Linux 7.2 samples/damon/mtier.c", restart;
        /// The intervals follow how many of the possible accesses are seen, towards this; as in
        /// Linux' own sample 400.
        access_goal_bp: Option<u32> = None, "1/10000", OrUnset(1..=10_000), "HMSDK has none; Linux 7.2 samples/damon/mtier.c", restart;
        /// Demotion rests while more of the machine's memory is free than this. The three
        /// watermarks are set together or not at all, none above the one before it.
        watermark_high_permille: Option<u32> = None, "1/1000", OrUnset(0..=1000), "HMSDK has none", restart;
        /// Demotion begins below this.
        watermark_mid_permille: Option<u32> = None, "1/1000", OrUnset(0..=1000), "HMSDK has none", restart;
        /// Demotion rests below this too, and leaves what is free to reclaim.
        watermark_low_permille: Option<u32> = None, "1/1000", OrUnset(0..=1000), "HMSDK has none", restart;
        /// kernel.numa_balancing while running: 0, so that nobody else moves pages. Unset: as it
        /// is.
        numa_balancing: Option<u32> = Some(0), "bitmask", OrUnset(0..=3), "ours", restart;
        /// Stop DAMON_STAT while running, which keeps others from DAMON where it runs (newer
        /// kernels start it at boot), and start it again at the end. Otherwise manager damon
        /// refuses to start beside it.
        stop_damon_stat: bool = false, "", Any("true or false"), "ours", restart;
    }
}

impl Damon {
    /// Samples of an aggregation: the most accesses that a region can have.
    pub fn samples(&self) -> u64 {
        (self.aggregation_ms / self.sample_ms.max(1)).max(1)
    }

    /// What single ranges do not tell: keys that must fit together.
    pub(super) fn check_together(&self, path: &str, out: &mut Vec<Violation>) {
        let mut wrong = |key: &str, message: &str| {
            out.push(Violation { key: format!("{path}.{key}"), message: message.to_owned() });
        };
        if self.regions_max < self.regions_min {
            wrong("regions_max", "is below regions_min");
        }
        if self.aggregation_ms < self.sample_ms {
            wrong("aggregation_ms", "is shorter than sample_ms");
        }
        match (self.watermark_high_permille, self.watermark_mid_permille, self.watermark_low_permille) {
            (None, None, None) => {}
            (Some(high), Some(mid), Some(low)) if high >= mid && mid >= low => {}
            (Some(_), Some(_), Some(_)) => {
                wrong("watermark_mid_permille", "the watermarks are not in the order high, mid, low");
            }
            _ => wrong("watermark_mid_permille", "watermarks are set all three or not at all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn violations(change: impl Fn(&mut Damon)) -> Vec<String> {
        let mut config = Config::default();
        change(&mut config.manager.damon);
        config.check().err().map_or_else(Vec::new, |error| error.0.into_iter().map(|v| v.key).collect())
    }

    #[test]
    fn keys_that_do_not_fit_together_are_named() {
        assert!(violations(|_| {}).is_empty());
        assert_eq!(violations(|d| d.regions_max = 99), ["manager.damon.regions_max"]);
        assert_eq!(violations(|d| d.sample_ms = 3000), ["manager.damon.aggregation_ms"]);
        let mid = ["manager.damon.watermark_mid_permille"];
        assert_eq!(violations(|d| d.watermark_low_permille = Some(1)), mid);
        let three = |high, mid, low| {
            violations(|d| {
                d.watermark_high_permille = Some(high);
                d.watermark_mid_permille = Some(mid);
                d.watermark_low_permille = Some(low);
            })
        };
        assert!(three(500, 400, 0).is_empty());
        assert_eq!(three(500, 600, 0), mid);
    }
}
