//! The data that the guest passes to the host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thermocline_core::units::NodeId;
use thermocline_lab::truth::Counts;

/// The name of the [`Recording`] in the shared folder.
pub(crate) const RECORDING: &str = "recording.json";
/// The page dump of the last window.
pub(crate) const PAGES: &str = "pages";

pub(crate) use crate::experiments::within::ByNode;

/// The plan of the demo.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Keys in Redis.
    pub(crate) keys: u32,
    /// Bytes of a value.
    pub(crate) value_bytes: usize,
    /// Exponent of the popularity.
    pub(crate) zipf: f64,
    /// Seconds of load before Thermocline starts.
    pub(crate) before_s: u64,
    /// Seconds of load with it.
    pub(crate) with_s: u64,
    /// Length of the window at the end of the first part, s.
    pub(crate) before_window_s: u64,
    /// Length of the window at the end, s.
    pub(crate) window_s: u64,
}

/// One second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Since the load started, s.
    pub(crate) at_s: f64,
    /// Whether Thermocline runs.
    pub(crate) with: bool,
    /// Redis's base pages by node, from numa_maps.
    pub(crate) pages: ByNode,
    /// Redis's cache misses by node in this second.
    pub(crate) misses: ByNode,
    /// Reads that Redis answered, per second.
    pub(crate) ops_per_s: f64,
    /// Hint faults per second.
    pub(crate) hint_faults_per_s: f64,
    /// Base pages promoted so far.
    pub(crate) promoted_pages: u64,
    /// Candidates refused so far, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
}

/// Free memory and the part that must stay free, in base pages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Room {
    /// Free before Thermocline started.
    pub(crate) free_pages: u64,
    /// The high watermark.
    pub(crate) high_pages: u64,
}

/// All observations in the guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recording {
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The plan.
    pub(crate) plan: Plan,
    /// The slow node; all others are DRAM.
    pub(crate) slow: NodeId,
    /// The addresses whose misses are counted: Redis's large mappings.
    pub(crate) range: (u64, u64),
    /// DRAM by node before Thermocline started.
    pub(crate) room: BTreeMap<NodeId, Room>,
    /// Redis's pages before Thermocline started.
    pub(crate) pages_before: ByNode,
    /// Redis's pages after it ended.
    pub(crate) pages_after: ByNode,
    /// Misses of the last window before.
    pub(crate) misses_before: Counts,
    /// Misses of the last window with Thermocline.
    pub(crate) misses_after: Counts,
    /// When Thermocline started, since the load started, s.
    pub(crate) started_at_s: f64,
    /// The daemon's last snapshot.
    pub(crate) daemon: Value,
    /// The kernel's own promotions meanwhile (vmstat pgpromote_success).
    pub(crate) kernel_promotions: u64,
    /// Reads that Redis answered under load, and those that failed or were wrong.
    pub(crate) load: Answers,
    /// The same for the verification of every key afterwards.
    pub(crate) verified: Answers,
    /// Each second.
    pub(crate) samples: Vec<Sample>,
}

/// Counts of Redis's answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answers {
    /// Right answers.
    pub(crate) right: u64,
    /// Wrong or missing values.
    pub(crate) wrong: u64,
    /// Failed commands and connections.
    pub(crate) errors: u64,
}
