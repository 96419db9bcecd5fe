//! Sections of the rules: which one decides, and the keys of each.

use serde::{Deserialize, Serialize};

use crate::config::schema::{Any, OrUnset};
use crate::section;

/// The rule that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleName {
    /// Ours: pages whose waits stand out.
    Adaptive,
    /// Mainline's hint-fault latency.
    Latency,
    /// Hint-fault latency counted in faults (S0).
    FaultCount,
    /// The time between two hardware samples of a page (S1).
    InterArrival,
    /// Accesses within a window, as pghot counts them (S4).
    Frequency,
    /// DAMON's regions by their hot score (S3).
    Regions,
}

impl RuleName {
    /// Every rule.
    pub const ALL: [RuleName; 6] = [
        RuleName::Adaptive,
        RuleName::Latency,
        RuleName::FaultCount,
        RuleName::InterArrival,
        RuleName::Frequency,
        RuleName::Regions,
    ];

    /// The rule's name in the configuration.
    pub const fn text(self) -> &'static str {
        match self {
            RuleName::Adaptive => "adaptive",
            RuleName::Latency => "latency",
            RuleName::FaultCount => "fault-count",
            RuleName::InterArrival => "inter-arrival",
            RuleName::Frequency => "frequency",
            RuleName::Regions => "regions",
        }
    }

    /// Whether it makes anything of regions; the others look at accesses alone.
    pub const fn takes_regions(self) -> bool {
        matches!(self, RuleName::Adaptive | RuleName::Regions)
    }

    /// Whether it proposes nothing without hardware samples.
    pub const fn needs_samples(self) -> bool {
        matches!(self, RuleName::InterArrival)
    }

    /// Whether it proposes nothing without DAMON's regions.
    pub const fn needs_regions(self) -> bool {
        matches!(self, RuleName::Regions)
    }

    /// Whether it makes anything of what a memory device counts.
    pub const fn takes_counts(self) -> bool {
        matches!(self, RuleName::Adaptive | RuleName::Frequency)
    }
}

/// Which windows the wrapper `speculative` keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Windows {
    /// One a mapping, as S2 published it.
    Published,
    /// Several a mapping, each with a direction.
    Streams,
}

section! {
    /// `[rule]`: which rule decides.
    Rule {
        /// The rule.
        name: RuleName = RuleName::Adaptive, "", Any("\"adaptive\", \"latency\", \"fault-count\", \"inter-arrival\", \"frequency\" or \"regions\""), "ours";
    }
    sections {
        /// `[rule.adaptive]`.
        "adaptive" adaptive: Adaptive;
        /// `[rule.latency]`.
        "latency" latency: Latency;
        /// `[rule.fault-count]`.
        "fault-count" fault_count: FaultCount;
        /// `[rule.inter-arrival]`.
        "inter-arrival" inter_arrival: InterArrival;
        /// `[rule.frequency]`.
        "frequency" frequency: Frequency;
        /// `[rule.regions]`.
        "regions" regions: Regions;
        /// `[rule.speculative]`.
        "speculative" speculative: Speculative;
        /// `[rule.balance]`.
        "balance" balance: Balance;
    }
}

section! {
    /// `[rule.adaptive]`: pages that are early at every scan.
    Adaptive {
        /// Hint faults in a row, each sooner after its scan than the cut, that make a page hot.
        /// Fewer find hot pages a scan pass earlier and move more cold ones.
        confirmations: u8 = 3, "faults", 1..=255, "ours";
        /// Where the faults of a page are at least this far apart, one confirmation fewer is
        /// enough.
        slow_pass_ms: u64 = 5000, "ms", 100..=600_000, "ours";
        /// A page that waits this long for its fault is neither hot nor worth free memory: accessed
        /// once a minute, it needs about an hour to earn its move of 10 us at 150 ns a miss.
        cut_max_ms: u64 = 60_000, "ms", 1..=3_600_000, "ours";
        /// Sampled pages that must be known before anything is proposed.
        pages_min: u32 = 100, "pages", 10..=4096, "ours";
        /// How long after pages last stood out the cut stays, and free memory is left for others
        /// that may.
        settle_s: u64 = 10, "s", 1..=86_400, "ours";
        /// While nothing stands out clearly, fill free memory of the target with the more often
        /// accessed pages; where there is room for all that lower tiers hold, with whatever is
        /// accessed.
        fill: bool = true, "", Any("true or false"), "ours";
        /// Where the top tier is full, also propose what is hot with less certainty, and the more
        /// often accessed pages while nothing stands out: they go up only in exchange for pages
        /// that are colder by far.
        exchange: bool = true, "", Any("true or false"), "ours";
    }
}

section! {
    /// `[rule.latency]`: mainline's hint-fault latency with its threshold feedback.
    Latency {
        /// A page is hot when it faults sooner than this after the scan; the feedback moves it
        /// between an eighth and twice the value.
        hot_threshold_ms: u64 = 1000, "ms", 8..=600_000, "Linux 6.12 kernel/sched/fair.c: sysctl_numa_balancing_hot_threshold";
        /// Raise the threshold when fewer pages are hot than the rate limit lets through, lower it
        /// when more are.
        feedback: bool = true, "", Any("true or false"), "Linux 6.12 kernel/sched/fair.c: numa_promotion_adjust_threshold";
        /// Time between two adjustments of the threshold.
        adjust_period_ms: u64 = 60_000, "ms", 1000..=3_600_000, "Linux 6.12 kernel/sched/fair.c: scan_period_max_ms";
    }
}

section! {
    /// `[rule.frequency]`: accesses that follow each other within a window.
    Frequency {
        /// Accesses that make a page hot; 1 suits hint faults, which come once per scan pass.
        freq_threshold: u8 = 2, "accesses", 1..=255, "S4: pghot_freq_threshold";
        /// An access later than this after the last one starts the count again. Unset: 3000, or
        /// 5000 with records of layout pghot-word.
        freq_window_ms: Option<u64> = None, "ms", OrUnset(10..=600_000), "S4: vm.pghot_promote_freq_window_ms, by mode";
    }
}

section! {
    /// `[rule.regions]`: DAMON's regions by their hot score. Rule adaptive judges regions by these
    /// keys too.
    Regions {
        /// A region is hot when it was accessed in so many of the checks, and its score is among
        /// those that the top tier has room for.
        hot_percent: u32 = 5, "% of the checks", 1..=100, "S3; HMSDK";
        /// A region is hot when it has been as it is for this long.
        age_min_ms: u64 = 0, "ms", 0..=3_600_000, "S3; HMSDK";
        /// Weight in the score of how often a region was accessed.
        weight_accesses_permille: u32 = 100, "1/1000", 0..=1000, "Linux 7.2 samples/damon/mtier.c";
        /// Weight in the score of how long it has been so.
        weight_age_permille: u32 = 100, "1/1000", 0..=1000, "Linux 7.2 samples/damon/mtier.c";
    }
}

section! {
    /// `[rule.fault-count]`: hint-fault latency counted in hint faults of the process.
    FaultCount {
        /// A page is hot when fewer hint faults of its process than this came between scan and
        /// fault.
        fault_count_threshold: u32 = 1_000_000, "faults", 1..=u32::MAX, "S0, patch 1: fault_count_threshold";
        /// Stamp a page again at each scan that finds it still marked. It takes the place of
        /// source.hintfault.restamp.
        restamp: bool = true, "", Any("true or false"), "S0, patch 2";
    }
}

section! {
    /// `[rule.inter-arrival]`: two hardware samples of a page soon after one another.
    InterArrival {
        /// A page is hot when two samples of it are less than this apart; the feedback moves it
        /// between an eighth and twice the value.
        hot_threshold_ms: u64 = 1000, "ms", 8..=600_000, "Linux 6.12 kernel/sched/fair.c: sysctl_numa_balancing_hot_threshold";
        /// Raise the threshold when fewer pages are hot than the rate limit lets through, lower it
        /// when more are.
        feedback: bool = true, "", Any("true or false"), "Linux 6.12 kernel/sched/fair.c: numa_promotion_adjust_threshold";
        /// Time between two adjustments of the threshold.
        adjust_period_ms: u64 = 60_000, "ms", 1000..=3_600_000, "Linux 6.12 kernel/sched/fair.c: scan_period_max_ms";
    }
}

section! {
    /// `[rule.speculative]`: beside a hot page of a stream, propose the pages that come next. It
    /// wraps any rule.
    Speculative {
        /// Switch it on.
        enabled: bool = false, "", Any("true or false"), "ours";
        /// Windows of a mapping: "streams" keeps several, also for descending streams; "published"
        /// keeps one.
        windows: Windows = Windows::Streams, "", Any("\"streams\" or \"published\""), "ours; S2 has one";
        /// Streams that are followed in one mapping.
        streams: u8 = 8, "streams", 1..=64, "ours";
        /// A stream without a fault for this long gives way to any other.
        stream_ms: u64 = 1000, "ms", 1..=600_000, "ours";
        /// Mappings that are followed, rounded up to a power of two.
        mappings: u32 = 1024, "mappings", 1..=1_048_576, "ours";
    }
}

section! {
    /// `[rule.balance]`: move pages of the top tier to the node that accesses them, by hardware
    /// samples. It wraps any rule.
    Balance {
        /// Switch it on. It needs source.hwsample and engine.record = "word", which keeps the
        /// accessing node of pages of the top tier too.
        enabled: bool = false, "", Any("true or false"), "S1, its first half (kernel.numa_balancing = 1)", restart;
    }
}
