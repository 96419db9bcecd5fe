//! What a run tells.

use serde::Serialize;

use crate::counters::Counters;
use crate::manager::Notes;
use crate::mode::ModeName;
use crate::oracle::Oracle;

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
    /// The same on average from the start of the threads.
    pub mean_pages: Vec<f64>,
    /// Time from the start of the threads to its last one's end in seconds; none where it was not done.
    pub time_s: Option<f64>,
    /// Scan passes over its memory.
    pub scan_passes: u64,
    /// Scan period of its first thread at the end, in ms.
    pub scan_period_ms: u64,
}

/// How far things are at some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Course {
    /// Time from the start of the first process, its allocation of memory included, in seconds.
    pub time_s: f64,
    /// Pages that anybody has promoted so far.
    pub promoted: u64,
    /// Pages that anybody has demoted so far.
    pub demoted: u64,
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
    /// CPU time that the programs have paid for faults, samples and scans, in seconds.
    pub overhead_s: f64,
    /// What the best placements could have done.
    pub oracle: Oracle,
    /// How things went, where the scenario asks for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<Course>,
    /// What the manager has to say.
    pub notes: Notes,
}

/// A figure of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// Whether something is so.
    Flag(bool),
    /// How many.
    Count(u64),
    /// How much.
    Real(f64),
}

impl Figure {
    /// As a number; what is so is 1.
    pub fn number(self) -> f64 {
        match self {
            Figure::Flag(flag) => f64::from(u8::from(flag)),
            Figure::Count(count) => count as f64,
            Figure::Real(value) => value,
        }
    }
}

impl Report {
    /// The figures that every report has, by name: what ends in `_s` is in seconds, in `_share` a part of 1, in `_pages` base pages;
    /// then the counters, under their own names. None stands for what a run that was not done cannot tell.
    pub fn figures(&self) -> Vec<(&'static str, Option<Figure>)> {
        use Figure::{Count, Flag, Real};
        let oracle = &self.oracle;
        let known = vec![
            ("finished", Flag(self.finished)),
            ("time_s", Real(self.time_s)),
            ("populate_s", Real(self.populate_s)),
            ("overhead_s", Real(self.overhead_s)),
            ("top_share", Real(self.top_share)),
            ("oracle_share", Real(self.oracle_share())),
            ("static_top_share", Real(oracle.static_top_share)),
            ("phased_top_share", Real(oracle.phased_top_share)),
            ("static_time_s", Real(oracle.static_time_s)),
            ("all_top_time_s", Real(oracle.all_top_time_s)),
            ("all_low_time_s", Real(oracle.all_low_time_s)),
            ("promoted_pages", Count(self.counters.promoted())),
            ("demoted_pages", Count(self.counters.demoted())),
        ];
        let counters = self.counters.values().into_iter().map(|(name, count)| (name, Count(count)));
        let known = known.into_iter().chain(counters).map(|(name, figure)| (name, Some(figure)));
        let mut figures: Vec<(&'static str, Option<Figure>)> = known.collect();
        figures.insert(2, ("slowdown", self.slowdown().map(Real)));
        figures
    }

    /// Share of the accesses that the top tier served, of what the best static placement would have let it serve.
    pub fn oracle_share(&self) -> f64 {
        if self.oracle.static_top_share > 0.0 { self.top_share / self.oracle.static_top_share } else { 1.0 }
    }

    /// Time against that with all memory in the top tier; none where the run was not done, since nobody knows how long the rest
    /// would have taken, or where nothing was to be done.
    pub fn slowdown(&self) -> Option<f64> {
        let known = self.finished && self.oracle.all_top_time_s > 0.0;
        known.then(|| self.time_s / self.oracle.all_top_time_s)
    }
}
