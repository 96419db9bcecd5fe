//! Sections of the rules: which one decides, and the keys of each.

use serde::{Deserialize, Serialize};

use crate::config::schema::Any;
use crate::section;

/// The rule that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleName {
    /// Mainline's hint-fault latency.
    Latency,
    /// Accesses within a window, as pghot counts them (S4).
    Frequency,
}

impl RuleName {
    /// Every rule.
    pub const ALL: [RuleName; 2] = [RuleName::Latency, RuleName::Frequency];
}

section! {
    /// `[rule]`: which rule decides.
    Rule {
        /// The rule.
        name: RuleName = RuleName::Latency, "", Any("\"latency\" or \"frequency\""), "ours";
    }
    sections {
        /// `[rule.latency]`.
        "latency" latency: Latency;
        /// `[rule.frequency]`.
        "frequency" frequency: Frequency;
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
