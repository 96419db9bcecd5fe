//! What a run tells.

use serde::Serialize;

use crate::counters::Counters;
use crate::manager::Notes;
use crate::mode::ModeName;

/// A node at the end of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReport {
    /// Its number.
    pub node: u16,
    /// Its tier.
    pub tier: u8,
    /// Pages in use.
    pub used_pages: u64,
    /// Accesses that its pages have had.
    pub accesses: u64,
}

/// A process at the end of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessReport {
    /// Its name.
    pub name: String,
    /// Its pages on each node, in the order of [`Report::nodes`].
    pub pages: Vec<u64>,
    /// Time from the start of the threads to its last one's end in seconds; none where it was not done.
    pub time_s: Option<f64>,
    /// Scan passes over its memory.
    pub scan_passes: u64,
    /// Scan period of its first thread at the end, in ms.
    pub scan_period_ms: u64,
}

/// What a run tells; equal for equal inputs, to the bit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// The manager.
    pub manager: String,
    /// The mode.
    pub mode: ModeName,
    /// The seed.
    pub seed: u64,
    /// Time from the start of the threads until the processes that count were done, in seconds; the score of most tables.
    pub time_s: f64,
    /// Whether they were done, or the scenario's limit came first.
    pub finished: bool,
    /// Time to allocate memory before that, in seconds.
    pub populate_s: f64,
    /// Share of the accesses that the top tier served.
    pub top_share: f64,
    /// What was counted.
    pub counters: Counters,
    /// The nodes.
    pub nodes: Vec<NodeReport>,
    /// The processes.
    pub processes: Vec<ProcessReport>,
    /// What the manager has to say.
    pub notes: Notes,
}
