//! The live line.

use std::collections::BTreeMap;

use thermocline_core::units::{NodeId, PAGES_PER_MIB};

use super::record::{ByNode, Sample};

/// The demo's initial state.
pub(crate) fn heading(pages: &ByNode, free: &ByNode, slow: NodeId) -> String {
    let (dram, cxl) = tiers(pages, slow);
    let by_node: Vec<String> =
        free.iter().map(|(node, pages)| format!("node {}: {:.0} MiB", node.0, mib(*pages))).collect();
    format!(
        "Redis has {:.0} MiB, {:.0} of them in DRAM; free DRAM {:.0} MiB ({})",
        mib(dram + cxl),
        mib(dram),
        mib(free.values().sum()),
        by_node.join(", ")
    )
}

/// Formats samples, showing refusals since the sample before.
pub(crate) struct Live {
    slow: NodeId,
    refused: BTreeMap<String, u64>,
    promoted: u64,
    with: bool,
}

impl Live {
    /// Creates the state before the first sample.
    pub(crate) fn new(slow: NodeId) -> Live {
        Live { slow, refused: BTreeMap::new(), promoted: 0, with: false }
    }

    /// The line of a sample, after a line that says when Thermocline starts.
    pub(crate) fn line(&mut self, sample: &Sample) -> String {
        let (dram, cxl) = tiers(&sample.pages, self.slow);
        let (fast, slow) = tiers(&sample.misses, self.slow);
        let mut line = String::new();
        if sample.with && !self.with {
            line.push_str("--- thermocline starts ---\n");
            self.with = true;
        }
        line.push_str(&format!(
            "{:>4.0} s  DRAM {:>6.1} MiB  CXL {:>6.1} MiB  misses served by DRAM {:>5.1} %  CXL {:>5.1} %  \
             {:>6.0} hint faults/s  {:>6} promoted  {:>6.0} ops/s",
            sample.at_s,
            mib(dram),
            mib(cxl),
            percent(fast, fast + slow),
            percent(slow, fast + slow),
            sample.hint_faults_per_s,
            sample.promoted_pages.saturating_sub(self.promoted),
            sample.ops_per_s,
        ));
        let refused: Vec<String> = sample
            .refused
            .iter()
            .map(|(reason, &count)| {
                (reason, count - self.refused.get(reason).copied().unwrap_or(0).min(count))
            })
            .filter(|&(_, count)| count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        if !refused.is_empty() {
            line.push_str(&format!("  refused: {}", refused.join(", ")));
        }
        self.refused.clone_from(&sample.refused);
        self.promoted = sample.promoted_pages;
        line
    }
}

/// The sum over all DRAM nodes, and the slow node's.
pub(crate) fn tiers(by_node: &ByNode, slow: NodeId) -> (u64, u64) {
    let below = by_node.get(&slow).copied().unwrap_or(0);
    (by_node.values().sum::<u64>() - below, below)
}

/// MiB of base pages.
pub(crate) fn mib(pages: u64) -> f64 {
    pages as f64 / PAGES_PER_MIB as f64
}

/// Percent; 0 if the whole is 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
