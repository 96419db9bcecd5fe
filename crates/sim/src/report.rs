//! The report of a run.

use serde::Serialize;

use crate::counters::{Counters, Course};
use crate::manager::Notes;
use crate::mode::ModeName;
use crate::operations::OperationTimes;
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
    /// Mean of the same from the start of the threads.
    pub mean_pages: Vec<f64>,
    /// Time from the start of the threads to its last one's end in seconds; `None` if it did not
    /// finish.
    pub time_s: Option<f64>,
    /// The times of its operations, where it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<OperationTimes>,
    /// Scan passes over its memory.
    pub scan_passes: u64,
    /// Scan period of its first thread at the end, in ms.
    pub scan_period_ms: u64,
}

/// The report of a run; equal for equal inputs, to the bit.
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
    /// Time from the start of the threads until the processes that count were done, in seconds; the
    /// score of most tables. `None` if they did not finish.
    pub time_s: Option<f64>,
    /// Whether they finished before the scenario's limit.
    pub finished: bool,
    /// Time to allocate memory before that, in seconds.
    pub populate_s: f64,
    /// Share of the accesses that the top tier served; `None` without accesses.
    pub top_share: Option<f64>,
    /// The counters.
    pub counters: Counters,
    /// The nodes.
    pub nodes: Vec<NodeReport>,
    /// The processes.
    pub processes: Vec<ProcessReport>,
    /// CPU time that programs spent on faults, samples, scans and accessed bits, in seconds.
    pub overhead_s: f64,
    /// The part of it that scans took, in seconds.
    pub scan_s: f64,
    /// CPU time of kernel threads and of the daemon, in seconds: looking at memory, deciding,
    /// moving.
    pub aside_s: f64,
    /// CPU time of the programs, in seconds.
    pub programs_s: f64,
    /// Bounds of the best placements; `None` if the processes that count did not finish or accessed
    /// nothing, because their further accesses are unknown.
    pub oracle: Option<Oracle>,
    /// The progress over time, if the scenario asks for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<Course>,
    /// The manager's additional results.
    pub notes: Notes,
}

/// A figure of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// True or false.
    Flag(bool),
    /// A count.
    Count(u64),
    /// A quantity.
    Real(f64),
}

impl Figure {
    /// As a number; true is 1.
    pub fn number(self) -> f64 {
        match self {
            Figure::Flag(flag) => f64::from(u8::from(flag)),
            Figure::Count(count) => count as f64,
            Figure::Real(value) => value,
        }
    }
}

impl Report {
    /// The figures that every report has, by name: names ending in `_s` are in seconds, in `_share`
    /// fractions of 1, in `_pages` base pages; then the counters, under their own names. `None`
    /// stands for a figure that is unknown because the run did not finish or had no accesses.
    pub fn figures(&self) -> Vec<(&'static str, Option<Figure>)> {
        use Figure::{Count, Flag, Real};
        let of_oracle = |figure: fn(&Oracle) -> f64| self.oracle.as_ref().map(|o| Real(figure(o)));
        let figures = vec![
            ("finished", Some(Flag(self.finished))),
            ("time_s", self.time_s.map(Real)),
            ("slowdown", self.slowdown().map(Real)),
            ("slowdown_all", self.slowdown_with_all_costs().map(Real)),
            ("populate_s", Some(Real(self.populate_s))),
            ("overhead_s", Some(Real(self.overhead_s))),
            ("scan_s", Some(Real(self.scan_s))),
            ("aside_s", Some(Real(self.aside_s))),
            ("programs_s", Some(Real(self.programs_s))),
            ("top_share", self.top_share.map(Real)),
            ("oracle_share", self.oracle_share().map(Real)),
            ("static_top_share", of_oracle(|o| o.static_top_share)),
            ("phased_top_share", of_oracle(|o| o.phased_top_share)),
            ("static_time_s", of_oracle(|o| o.static_time_s)),
            ("all_top_time_s", of_oracle(|o| o.all_top_time_s)),
            ("all_low_time_s", of_oracle(|o| o.all_low_time_s)),
            ("promoted_pages", Some(Count(self.counters.promoted()))),
            ("demoted_pages", Some(Count(self.counters.demoted()))),
        ];
        let counters = self.counters.values().into_iter().map(|(name, count)| (name, Some(Count(count))));
        figures.into_iter().chain(counters).collect()
    }

    /// The top tier's share of the accesses, relative to that of the best static placement; `None`
    /// if there is no such placement.
    pub fn oracle_share(&self) -> Option<f64> {
        let best = self.oracle.as_ref()?.static_top_share;
        (best > 0.0).then(|| Some(self.top_share? / best))?
    }

    /// Time relative to that with all memory in the top tier; `None` if the run did not finish,
    /// because the time of the rest is unknown, or if it had no accesses.
    pub fn slowdown(&self) -> Option<f64> {
        let least = self.oracle.as_ref()?.all_top_time_s;
        (least > 0.0).then(|| Some(self.time_s? / least))?
    }

    /// The same with the CPU time of kernel threads and of the daemon: a second of theirs is a
    /// second that programs cannot have. As if it were spread evenly over the programs' CPUs.
    pub fn slowdown_with_all_costs(&self) -> Option<f64> {
        let of_programs = (self.programs_s > 0.0).then_some(self.programs_s)?;
        Some(self.slowdown()? * (1.0 + self.aside_s / of_programs))
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::Nanos;

    use super::*;
    use crate::manager::ManagerName;
    use crate::run::{Arm, run};
    use crate::scenario::Setup;

    fn unknown(change: fn(&mut Setup)) -> Vec<&'static str> {
        let changes = ["process.0.footprint=\"64MiB\"", "process.0.pattern.chunk=\"4MiB\""];
        let mut setup = Setup::preset("chunks-small", &changes.map(str::to_owned)).unwrap();
        setup.scenario.limit.0 = Nanos::from_ms(50);
        change(&mut setup);
        let report = run(&setup, Arm { manager: ManagerName::None, mode: ModeName::Event, seed: 1 }).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["time_s"].is_null(), report.time_s.is_none());
        assert_eq!(json["oracle"].is_null(), report.oracle.is_none());
        report.figures().into_iter().filter(|(_, figure)| figure.is_none()).map(|(name, _)| name).collect()
    }

    #[test]
    fn work_aside_counts_as_if_the_programs_cpus_did_it() {
        let setup = Setup::preset("chunks-small", &["process.0.footprint=\"64MiB\"".to_owned()]).unwrap();
        let arm = Arm { manager: ManagerName::None, mode: ModeName::Event, seed: 1 };
        let mut report = run(&setup, arm).unwrap();
        let slowdown = report.slowdown().unwrap();
        assert_eq!((report.aside_s, report.slowdown_with_all_costs()), (0.0, Some(slowdown)));
        // A tenth of what the program ran for.
        report.aside_s = report.programs_s / 10.0;
        assert!((report.slowdown_with_all_costs().unwrap() / slowdown - 1.1).abs() < 1e-12);
        // One thread that never sleeps.
        assert!((report.programs_s - report.time_s.unwrap()).abs() < 1e-6);
    }

    #[test]
    fn what_a_run_cannot_tell_is_unknown() {
        let of_the_end = [
            "time_s",
            "slowdown",
            "slowdown_all",
            "oracle_share",
            "static_top_share",
            "phased_top_share",
            "static_time_s",
            "all_top_time_s",
            "all_low_time_s",
        ];
        assert_eq!(unknown(|_| {}), of_the_end, "not done");
        let empty = unknown(|setup| setup.scenario.process[0].background = true);
        assert!(of_the_end[1..].iter().all(|name| empty.contains(name)), "nothing to do: {empty:?}");
    }
}
