//! The section of the source that reads DAMON.

use serde::{Deserialize, Serialize};

use crate::config::schema::{Any, OrUnset, Violation};
use crate::config::{Enabled, RuleName, SourceKeys, Taken};
use crate::section;

/// Which addresses DAMON watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamonAddresses {
    /// Frames, of every node.
    Physical,
    /// Those of processes.
    Virtual,
}

section! {
    /// `[source.damon]`: access rates of regions of memory, watched by kdamonds of ours that move
    /// nothing. Rules adaptive and regions take them.
    DamonSource {
        /// Use this source.
        enabled: bool = false, "", Any("true or false"), "ours", restart;
        /// "physical": frames, by a kdamond for each node; whose they are, the reverse map finds
        /// out. "virtual": addresses of processes in scope, by a kdamond for each, the largest
        /// first.
        addresses: DamonAddresses = DamonAddresses::Physical, "", Any("\"physical\" or \"virtual\""), "ours; S3 has physical", restart;
        /// Processes that are watched at once, where addresses are virtual. A process that is twice
        /// as large as the smallest of them takes its place.
        processes_max: u64 = 16, "processes", 1..=256, "ours", restart;
        /// Processes with less memory than this are not watched, where addresses are virtual.
        process_min_mib: u64 = 16, "MiB", 0..=1_048_576, "ours", restart;
        /// Time between two looks at a page of each region. A page that is accessed more often than
        /// that cannot be told from one that is accessed at each look.
        sample_ms: u64 = 5, "ms", 1..=10_000, "Linux 6.12 mm/damon/sysfs.c; HMSDK: 100", restart;
        /// Lengths that this time has in turns: sample_ms, and each of the others four times the
        /// one before. With three or more of them a recording tells how many pages are how hot,
        /// although pages of a region are not told apart. Addresses have to be virtual.
        sample_lengths: u64 = 1, "lengths", 1..=7, "ours", restart;
        /// Time over which accesses of a region are counted; regions are then told, merged and
        /// split.
        aggregation_ms: u64 = 100, "ms", 10..=600_000, "Linux 6.12 mm/damon/sysfs.c; HMSDK: 2000", restart;
        /// Time between two looks at what memory there is.
        update_ms: u64 = 1_000, "ms", 10..=3_600_000, "Linux 6.12 mm/damon/sysfs.c; HMSDK: 20000", restart;
        /// Regions of a node, or of a process, at least.
        regions_min: u64 = 10, "regions", 3..=100_000, "Linux 6.12 mm/damon/sysfs.c; HMSDK: 100", restart;
        /// Regions of a node, or of a process, at most; no fewer than the least. Each costs the
        /// kernel one look every sample_ms.
        regions_max: u64 = 1_000, "regions", 3..=100_000, "Linux 6.12 mm/damon/sysfs.c; HMSDK: 10000", restart;
        /// The intervals follow how many of the possible accesses are seen, towards this; as in
        /// Linux' own sample 400.
        access_goal_bp: Option<u32> = None, "1/10000", OrUnset(1..=10_000), "Linux 6.12 has none; Linux 7.2 samples/damon/mtier.c", restart;
        /// Pages of regions that are looked up and told in a second, at most, the hottest first.
        pages_per_s: u32 = 131_072, "pages/s", 256..=1_000_000_000, "ours: 512 MiB, twice the default rate limit", restart;
        /// Node of the top tier near which pages of hot regions go, since DAMON does not see who
        /// accesses them. Unset: as engine.target_nid.
        target_nid: Option<u32> = None, "node", OrUnset(0..=1023), "Linux 6.12 mm/damon/sysfs-schemes.c: target_nid", restart;
        /// How much the word of this source counts beside that of others: how many times as well
        /// one knows a page by it as without it, in variances of the logarithm of the time between
        /// accesses.
        weight: u8 = 3, "", 1..=100, "ours: pages are taken to differ from their region by a factor of 10";
        /// Stop DAMON_STAT while running, which keeps others from DAMON where it runs (newer
        /// kernels start it at boot), and start it again at the end. Otherwise this source cannot
        /// be used beside it.
        stop_damon_stat: bool = false, "", Any("true or false"), "ours", restart;
    }
}

impl DamonSource {
    /// Samples of an aggregation: the most accesses that a region can have.
    pub fn samples(&self) -> u64 {
        (self.aggregation_ms / self.sample_ms.max(1)).max(1)
    }

    /// The same keys with the intervals of a turn, if they take turns: an aggregation has eight
    /// samples, or two if eight take longer than `aggregation_ms`.
    ///
    /// Linux merges neighbouring regions whose counts differ by a tenth of the samples or less, and
    /// rounds their mean down, so that what is seldom accessed seems idle. With fewer than ten
    /// samples it merges what is equal (6.12 mm/damon/core.c, damon_merge_regions_of).
    pub fn in_turn(&self, turn: u64) -> DamonSource {
        if self.sample_lengths <= 1 {
            return self.clone();
        }
        let sample_ms = self.sample_ms << (2 * (turn % self.sample_lengths));
        let aggregation_ms = self.aggregation_ms.min(8 * sample_ms).max(2 * sample_ms);
        DamonSource { sample_ms, aggregation_ms, ..self.clone() }
    }
}

impl SourceKeys for DamonSource {
    fn enabled(&self) -> Enabled {
        self.enabled.into()
    }

    fn weight(&self) -> u8 {
        self.weight
    }

    fn taken(&self) -> Option<Taken> {
        Some(("DAMON's regions", RuleName::takes_regions))
    }

    fn check_together(&self, path: &str, out: &mut Vec<Violation>) {
        let mut wrong = |key: &str, message: &str| {
            out.push(Violation { key: format!("{path}.{key}"), message: message.to_owned() });
        };
        if self.regions_max < self.regions_min {
            wrong("regions_max", "is below regions_min");
        }
        if self.aggregation_ms < self.sample_ms {
            wrong("aggregation_ms", "is shorter than sample_ms");
        }
        if self.sample_lengths > 1 && self.addresses == DamonAddresses::Physical {
            wrong("sample_lengths", "needs addresses = \"virtual\": the intervals of nodes do not change");
        }
        if self.sample_lengths > 1 && self.access_goal_bp.is_some() {
            wrong("sample_lengths", "and access_goal_bp both change sample_ms: leave one of them out");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn keys_that_do_not_fit_together_are_named() {
        let violations = |change: fn(&mut DamonSource)| {
            let mut config = Config::default();
            change(&mut config.source.damon);
            config.check().err().map_or_else(Vec::new, |e| e.0.into_iter().map(|v| v.key).collect::<Vec<_>>())
        };
        assert!(violations(|d| d.enabled = true).is_empty());
        assert_eq!(violations(|d| d.regions_max = 9), ["source.damon.regions_max"]);
        assert_eq!(violations(|d| d.sample_ms = 101), ["source.damon.aggregation_ms"]);
        assert_eq!(violations(|d| d.pages_per_s = 1), ["source.damon.pages_per_s"]);
        assert_eq!(violations(|d| d.sample_lengths = 2), ["source.damon.sample_lengths"]);
        let both = |d: &mut DamonSource| {
            (d.sample_lengths, d.addresses, d.access_goal_bp) = (2, DamonAddresses::Virtual, Some(400));
        };
        assert_eq!(violations(both), ["source.damon.sample_lengths"]);
    }

    #[test]
    fn lengths_take_turns() {
        let keys = DamonSource { sample_lengths: 5, aggregation_ms: 1000, ..DamonSource::default() };
        let turn = |turn| (keys.in_turn(turn).sample_ms, keys.in_turn(turn).aggregation_ms);
        let turns = [(5, 40), (20, 160), (80, 640), (320, 1000), (1280, 2560), (5, 40)];
        assert_eq!([0, 1, 2, 3, 4, 5].map(turn), turns);
        assert!((0..5).all(|turn| keys.in_turn(turn).samples() < 10), "Linux rounds down");
        let one = DamonSource { sample_lengths: 1, ..keys };
        assert_eq!(one.in_turn(3), one);
    }
}
