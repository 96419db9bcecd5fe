//! Sections of the rules: which one decides, and the keys of each.

use serde::{Deserialize, Serialize};

use crate::config::schema::Any;
use crate::section;

/// The rule that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleName {
    /// Ours: pages whose waits stand out.
    Adaptive,
    /// Mainline's hint-fault latency.
    Latency,
    /// Accesses within a window, as pghot counts them (S4).
    Frequency,
}

impl RuleName {
    /// Every rule.
    pub const ALL: [RuleName; 3] = [RuleName::Adaptive, RuleName::Latency, RuleName::Frequency];
}

section! {
    /// `[rule]`: which rule decides.
    Rule {
        /// The rule.
        name: RuleName = RuleName::Adaptive, "", Any("\"adaptive\", \"latency\" or \"frequency\""), "ours";
    }
    sections {
        /// `[rule.adaptive]`.
        "adaptive" adaptive: Adaptive;
        /// `[rule.latency]`.
        "latency" latency: Latency;
        /// `[rule.frequency]`.
        "frequency" frequency: Frequency;
    }
}

section! {
    /// `[rule.adaptive]`: pages whose waits stand out from those of the pages they compete with.
    Adaptive {
        /// Hint faults in a row, each sooner after its scan than the cut, that make a page hot. Fewer find hot pages a scan pass earlier and move more cold ones.
        confirmations: u8 = 3, "faults", 1..=255, "ours";
        /// The cut lets at most this share of the cold class's faults through.
        cold_percent: u8 = 20, "%", 1..=90, "ours";
        /// A page that waits longer than this for its fault is never hot.
        cut_max_ms: u64 = 60_000, "ms", 1..=3_600_000, "ours";
        /// Time after which a fault weighs half.
        half_life_s: u64 = 30, "s", 1..=3600, "ours";
        /// Faults that must be known before anything is proposed.
        faults_min: u32 = 200, "faults", 10..=1_000_000, "ours";
        /// How long hot and cold may look alike before nothing counts as standing out any more.
        settle_s: u64 = 60, "s", 1..=86_400, "ours";
        /// While nothing stands out, fill free memory of the target with the more often accessed pages.
        fill: bool = true, "", Any("true or false"), "ours";
        /// Pages that fill wait less than this for their fault.
        fill_below_ms: u64 = 1000, "ms", 1..=600_000, "Linux 6.12 kernel/sched/fair.c: what mainline calls hot";
    }
}

section! {
    /// `[rule.latency]`: mainline's hint-fault latency with its threshold feedback.
    Latency {
        /// A page is hot when it faults sooner than this after the scan; the feedback moves it between an eighth and twice the value.
        hot_threshold_ms: u64 = 1000, "ms", 8..=600_000, "Linux 6.12 kernel/sched/fair.c: sysctl_numa_balancing_hot_threshold";
        /// Raise the threshold when fewer pages are hot than the rate limit lets through, lower it when more are.
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
        /// An access later than this after the last one starts the count again.
        freq_window_ms: u64 = 3000, "ms", 10..=600_000, "S4: vm.pghot_promote_freq_window_ms";
    }
}
