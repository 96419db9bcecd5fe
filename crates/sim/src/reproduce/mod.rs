//! Published tables beside the simulator's.
//!
//! `tables.toml` maps each column to an arm of a scenario, sets the tolerances, and says to which
//! figures a parameter of ours was fitted: those predict nothing. Ours is the mean over seeds; a
//! single published run may differ from a mean by the spread.

mod chart;

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

pub use chart::svg;

use crate::fit;
use crate::manager::ManagerName;
use crate::report::Report;
use crate::run::{Arm, RunError, mode_for, run_each};
use crate::scenario::Setup;
use crate::spec::{SpecError, parse};
use crate::stats::{one_more_within, rank_correlation, summary};

/// All tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    table: Vec<Table>,
}

/// A published table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name on the command line.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Runs of each arm, by default.
    pub seeds: u64,
    /// What is run.
    pub arm: Vec<TableArm>,
    /// What is compared.
    pub row: Vec<RowSpec>,
    /// Means over arms that are compared.
    #[serde(default)]
    pub mean: Vec<MeanSpec>,
    /// Orders that are compared.
    #[serde(default)]
    pub order: Vec<OrderSpec>,
}

/// A column: a scenario under a manager.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableArm {
    /// Its name.
    pub name: String,
    /// The scenario.
    pub scenario: String,
    /// The manager.
    pub manager: String,
    /// Changes of the scenario.
    #[serde(default)]
    pub set: Vec<String>,
}

/// A figure of an arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSpec {
    /// The arm.
    pub arm: String,
    /// The figure; see [`figure`].
    pub figure: String,
    /// The published value.
    pub published: f64,
    /// Ours is the change in percent relative to this arm.
    pub against: Option<String>,
    /// Ours is the difference, this arm's figure less the row's arm's.
    pub behind: Option<String>,
    /// A parameter of ours was fitted to it.
    #[serde(default)]
    pub fitted: bool,
    /// Holds if it differs by at most this fraction of the published figure.
    pub within: Option<f64>,
    /// Holds if it differs by at most this much.
    pub by: Option<f64>,
    /// Holds if the published figure may be one more run of ours, at 95 % confidence.
    #[serde(default)]
    pub interval: bool,
}

/// A mean of a figure over several arms.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeanSpec {
    /// The arms.
    pub arms: Vec<String>,
    /// The figure.
    pub figure: String,
    /// Whose mean it is, for people.
    pub of: String,
    /// The geometric mean.
    #[serde(default)]
    pub geometric: bool,
    /// The published value.
    pub published: f64,
    /// Holds if it differs by at most this much.
    pub by: f64,
    /// A parameter of ours was fitted to it.
    #[serde(default)]
    pub fitted: bool,
}

/// A figure of several arms whose order matters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderSpec {
    /// The arms.
    pub arms: Vec<String>,
    /// The figure.
    pub figure: String,
    /// The published values.
    pub published: Vec<f64>,
    /// Holds if the rank correlation is at least this.
    pub at_least: f64,
}

/// A published figure and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The table.
    pub table: String,
    /// Arm and figure.
    pub row: String,
    /// The published value.
    pub published: f64,
    /// Our mean.
    pub ours: f64,
    /// Standard deviation of one run.
    pub sd: f64,
    /// Ours less the published figure.
    pub difference: f64,
    /// Largest difference at which it holds.
    pub tolerance: f64,
    /// Whether it does.
    pub holds: bool,
    /// A parameter of ours was fitted to it, so that it predicts nothing.
    pub fitted: bool,
    /// Runs.
    pub seeds: u64,
}

impl Row {
    /// Digits after the point in its figures.
    pub fn digits(&self) -> usize {
        if self.published.abs().max(self.tolerance) < 1000.0 { 3 } else { 0 }
    }
}

/// The published tables that can be reproduced.
///
/// # Errors
/// The embedded file is damaged.
pub fn tables() -> Result<Vec<Table>, SpecError> {
    Ok(parse::<Tables>("tables", include_str!("tables.toml"))?.table)
}

/// A figure of a run: those of [`fit::figure`]; `gib:PROCESS:NODE`, memory of a process on a node
/// at the end, and `mean_gib:PROCESS:NODE`, its mean; `promoted@SECONDS`, pages promoted until this
/// long after the start of the first process; `per_s:N:WHAT`, N divided by the time; `us_per_fault`
/// and `us_per_migrated`, the programs' overhead by hint faults or migrated pages; `note:NAME`, one
/// of the manager's own.
pub fn figure(report: &Report, name: &str) -> Option<f64> {
    let mut parts = name.split(':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("per_s"), Some(count), Some(_)) => Some(count.parse::<f64>().ok()? / report.time_s?),
        (Some("us_per_fault"), None, _) => us_per(report, report.counters.numa_hint_faults),
        (Some("us_per_migrated"), None, _) => us_per(report, report.counters.numa_pages_migrated),
        (Some("note"), Some(name), None) => {
            report.notes.figures.iter().find(|(n, _)| n == name).map(|(_, value)| *value as f64)
        }
        (Some(kind @ ("gib" | "mean_gib")), Some(process), Some(node)) => {
            let node = report.nodes.iter().position(|n| n.node.to_string() == node)?;
            let of = report.processes.iter().find(|p| p.name == process)?;
            let pages = if kind == "gib" { of.pages[node] as f64 } else { of.mean_pages[node] };
            Some(pages / f64::from(1 << 18))
        }
        _ => match name.strip_prefix("promoted@") {
            Some(seconds) => {
                let seconds: f64 = seconds.parse().ok()?;
                // A run that ended earlier keeps its final value.
                let at = report.course.iter().rfind(|c| c.time_s <= seconds + 0.5)?;
                Some(at.promoted as f64)
            }
            None => fit::figure(report, name),
        },
    }
}

/// The programs' overhead by a count, in us.
fn us_per(report: &Report, count: u64) -> Option<f64> {
    (count > 0).then(|| report.overhead_s * 1e6 / count as f64)
}

/// A figure's name for people, with its unit; the kernel's counters keep theirs.
fn words(figure: &str) -> String {
    let parts: Vec<&str> = figure.split([':', '@']).collect();
    match parts.as_slice() {
        ["time_s"] => "time, s".to_owned(),
        ["rejected_percent"] => "rejected of the faults, %".to_owned(),
        ["overhead_s"] => "overhead, s".to_owned(),
        ["scan_s"] => "scan time, s".to_owned(),
        ["us_per_fault"] => "overhead a fault or sample, us".to_owned(),
        ["us_per_migrated"] => "overhead a migrated page, us".to_owned(),
        ["per_s", _, what] => format!("{what} a second"),
        ["note", name] => (*name).to_owned(),
        ["promoted", seconds] => format!("pages promoted after {seconds} s"),
        ["gib", process, node] => format!("{process} on node {node} at the end, GiB"),
        ["mean_gib", process, node] => format!("{process} on node {node} on average, GiB"),
        _ => figure.to_owned(),
    }
}

/// Runs a table's arms and compares; rows of arms with a stopped run are left out. `done` is called
/// after every run.
///
/// # Errors
/// A scenario cannot be simulated, or a figure is unknown.
pub fn reproduce(
    table: &Table,
    seeds: u64,
    stop: &AtomicBool,
    done: &(dyn Fn(&Report) + Sync),
) -> Result<Vec<Row>, RunError> {
    let mut reports: Vec<(&str, Vec<Report>)> = Vec::new();
    for arm in &table.arm {
        let setup = Setup::preset(&arm.scenario, &arm.set)?;
        let manager = ManagerName::parse(&arm.manager)?;
        let mode = mode_for(&setup);
        let arms: Vec<Arm> = (1..=seeds).map(|seed| Arm { manager, mode, seed }).collect();
        let runs = run_each(&setup, &arms, stop, done)?;
        reports.push((&arm.name, runs.into_iter().collect::<Option<_>>().unwrap_or_default()));
    }
    let values = |arm: &str, name: &str| -> Result<Vec<f64>, RunError> {
        let of = reports.iter().find(|(name, _)| *name == arm).map_or(&[][..], |(_, r)| r.as_slice());
        let all: Option<Vec<f64>> = of.iter().map(|r| figure(r, name)).collect();
        all.ok_or_else(|| SpecError::new(format!("table {}", table.name), name, "is no figure").into())
    };
    let mut rows = Vec::new();
    for spec in &table.row {
        let mut ours = values(&spec.arm, &spec.figure)?;
        let mut name = format!("{}: {}", spec.arm, words(&spec.figure));
        if let Some(against) = &spec.against {
            let other = values(against, &spec.figure)?;
            if other.is_empty() {
                continue;
            }
            ours = ours.iter().zip(other).map(|(a, b)| 100.0 * (a / b - 1.0)).collect();
            name = format!("{} against {against}: {}, %", spec.arm, words(&spec.figure).replace(", s", ""));
        }
        if let Some(ahead) = &spec.behind {
            let other = values(ahead, &spec.figure)?;
            if other.is_empty() {
                continue;
            }
            ours = ours.iter().zip(other).map(|(a, b)| b - a).collect();
            name = format!("{} behind {ahead}: {}", spec.arm, words(&spec.figure));
        }
        if ours.is_empty() {
            continue;
        }
        let found = summary(&ours);
        let tolerance = if spec.interval {
            // The spread of a single run, not of the mean, because a single run was published. With
            // one run of ours it is unknown.
            one_more_within(&ours).unwrap_or(0.0)
        } else {
            spec.by.unwrap_or(spec.within.unwrap_or(0.0) * spec.published.abs())
        };
        let difference = found.mean - spec.published;
        rows.push(Row {
            table: table.name.clone(),
            row: name,
            published: spec.published,
            ours: found.mean,
            sd: found.sd,
            difference,
            tolerance,
            holds: difference.abs() <= tolerance * (1.0 + 1e-9),
            fitted: spec.fitted,
            seeds: ours.len() as u64,
        });
    }
    for spec in &table.mean {
        let all: Result<Vec<_>, _> = spec.arms.iter().map(|arm| values(arm, &spec.figure)).collect();
        let all = all?;
        if all.iter().any(Vec::is_empty) {
            continue;
        }
        let mean = |values: Vec<f64>| match spec.geometric {
            true => summary(&values.into_iter().map(f64::ln).collect::<Vec<f64>>()).mean.exp(),
            false => summary(&values).mean,
        };
        // A mean over the arms for each seed, then over the seeds.
        let seed = |seed: usize| mean(all.iter().map(|arm| arm[seed]).collect());
        let each: Vec<f64> = (0..all[0].len()).map(seed).collect();
        let ours = summary(&each);
        rows.push(Row {
            table: table.name.clone(),
            row: format!("{}: mean {}", spec.of, words(&spec.figure)),
            published: spec.published,
            ours: ours.mean,
            sd: ours.sd,
            difference: ours.mean - spec.published,
            tolerance: spec.by,
            holds: (ours.mean - spec.published).abs() <= spec.by * (1.0 + 1e-9),
            fitted: spec.fitted,
            seeds,
        });
    }
    for spec in &table.order {
        let all: Result<Vec<_>, _> = spec.arms.iter().map(|arm| values(arm, &spec.figure)).collect();
        let all = all?;
        if all.iter().any(Vec::is_empty) {
            continue;
        }
        let means: Vec<f64> = all.iter().map(|ours| summary(ours).mean).collect();
        let ours = rank_correlation(&means, &spec.published);
        rows.push(Row {
            table: table.name.clone(),
            row: format!("{}: rank correlation", words(&spec.figure)),
            published: 1.0,
            ours,
            sd: 0.0,
            difference: ours - 1.0,
            tolerance: 1.0 - spec.at_least,
            holds: ours >= spec.at_least,
            fitted: false,
            seeds,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn every_table_is_sound() {
        for table in tables().unwrap() {
            let arms: Vec<&str> = table.arm.iter().map(|a| a.name.as_str()).collect();
            for arm in &table.arm {
                Setup::preset(&arm.scenario, &arm.set).unwrap_or_else(|e| panic!("{}: {e}", table.name));
                ManagerName::parse(&arm.manager).unwrap();
            }
            for row in &table.row {
                assert!(arms.contains(&row.arm.as_str()), "{}: {}", table.name, row.arm);
                assert!(row.within.is_some() || row.by.is_some() || row.interval, "{}", row.figure);
            }
            for mean in &table.mean {
                assert!(!mean.arms.is_empty() && mean.arms.iter().all(|a| arms.contains(&a.as_str())));
            }
            for order in &table.order {
                assert_eq!(order.arms.len(), order.published.len());
                assert!(order.arms.iter().all(|a| arms.contains(&a.as_str())));
            }
        }
    }

    #[test]
    fn a_small_table_is_run_and_judged() {
        let text = "[[table]]\nname = \"t\"\ntitle = \"t\"\nseeds = 2\n\
            [[table.arm]]\nname = \"a\"\nscenario = \"hotcold\"\nmanager = \"none\"\n\
            set = [\"process.1.pattern.accesses=100000\"]\n\
            [[table.arm]]\nname = \"b\"\nscenario = \"hotcold\"\nmanager = \"none\"\n\
            set = [\"process.1.pattern.accesses=200000\"]\n\
            [[table.row]]\narm = \"a\"\nfigure = \"gib:hotcold:1\"\npublished = 0.64453125\nwithin = 0.0\n\
            [[table.row]]\narm = \"a\"\nfigure = \"time_s\"\npublished = 1.0\nwithin = 0.5\n\
            [[table.row]]\narm = \"a\"\nfigure = \"time_s\"\npublished = 0.0\nby = 0.01\nagainst = \"a\"\n\
            [[table.row]]\narm = \"b\"\nfigure = \"accesses\"\npublished = -1e5\nby = 10.0\nbehind = \"a\"\n\
            [[table.row]]\narm = \"a\"\nfigure = \"gib:hotcold:0\"\npublished = 1.0\nby = 0.1\nfitted = true\n\
            [[table.mean]]\nof = \"both\"\narms = [\"a\", \"b\"]\nfigure = \"gib:hotcold:1\"\n\
            published = 0.64453125\nby = 1e-6\ngeometric = true\n\
            [[table.order]]\nfigure = \"time_s\"\narms = [\"a\", \"b\"]\npublished = [1.0, 2.0]\nat_least = 1.0\n";
        let table = &parse::<Tables>("t", text).unwrap().table[0];
        let rows = reproduce(table, 2, &AtomicBool::new(false), &|_| {}).unwrap();
        assert_eq!(
            rows.iter().map(|r| r.holds).collect::<Vec<_>>(),
            [true, false, true, true, false, true, true]
        );
        assert_eq!(rows.iter().filter(|r| r.fitted).count(), 1);
        assert!(rows[4].fitted);
        let stopped = reproduce(table, 2, &AtomicBool::new(true), &|_| {}).unwrap();
        assert!(stopped.is_empty(), "what was stopped is not told as a result");
        let stop = AtomicBool::new(false);
        let stopped = reproduce(table, 500, &stop, &|_| stop.store(true, Ordering::Relaxed)).unwrap();
        assert!(stopped.is_empty(), "nor what some of its seeds say");
        assert!(svg(&rows).contains("</svg>"));
    }
}
