//! `thermocline compare`: managers and rules side by side.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context;
use serde::Serialize;
use thermocline_sim::manager::ManagerName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, mode_for, run_each};
use thermocline_sim::scenario::Setup;
use thermocline_sim::stats::{Summary, pair_test, summary};

use crate::args::Compare;
use crate::progress::Progress;

/// A manager's line.
#[derive(Debug, Serialize)]
struct Line {
    scenario: String,
    manager: String,
    seeds: usize,
    unfinished: usize,
    figures: Vec<(&'static str, Summary)>,
    /// Whether its time differs from the first manager's by more than chance: the probability that it does not.
    p: f64,
}

/// Heading, digits, figure.
type Column = (&'static str, usize, fn(&Report) -> f64);

const COLUMNS: [Column; 10] = [
    ("time s", 2, |r| r.time_s),
    ("slowdown", 3, Report::slowdown),
    ("oracle %", 1, |r| 100.0 * r.oracle_share()),
    ("faults", 0, |r| r.counters.numa_hint_faults as f64),
    ("promoted", 0, |r| r.counters.promoted() as f64),
    ("demoted", 0, |r| r.counters.demoted() as f64),
    ("direct", 0, |r| r.counters.pgdemote_direct as f64),
    ("to and fro", 0, |r| r.counters.promoted_again as f64),
    ("overhead s", 2, |r| r.overhead_s),
    ("DRAM %", 1, |r| 100.0 * r.top_share),
];

/// Runs every manager on every scenario and prints a table each.
///
/// # Errors
/// A scenario cannot be simulated, or the simulation failed.
pub fn compare(args: &Compare) -> anyhow::Result<()> {
    let managers = match args.manager.as_slice() {
        [] => ManagerName::all(),
        names => names.iter().map(|n| ManagerName::parse(n)).collect::<Result<_, _>>()?,
    };
    let setups = args
        .scenarios
        .iter()
        .map(|name| super::sim::setup(name, None, &args.changes))
        .collect::<anyhow::Result<Vec<Setup>>>()?;
    let progress = Progress::new((setups.len() * managers.len()) as u64 * args.seeds)?;
    let mut lines = Vec::new();
    for setup in &setups {
        let arms: Vec<Arm> = managers
            .iter()
            .flat_map(|m| (1..=args.seeds).map(|seed| Arm { manager: *m, mode: mode_for(setup), seed }))
            .collect();
        let reports = run_each(setup, &arms, &progress.stop, &|_| progress.one())?;
        let mut first: Option<Vec<f64>> = None;
        for chunk in reports.chunks(args.seeds as usize) {
            let done: Vec<&Report> = chunk.iter().flatten().collect();
            // Half a sample would be compared with a whole one.
            if done.len() < chunk.len() {
                continue;
            }
            let times: Vec<f64> = done.iter().map(|r| r.time_s).collect();
            let figure = |(name, _, of): &Column| {
                let values: Vec<f64> = done.iter().map(|r| of(r)).collect();
                (*name, summary(&values))
            };
            let p = first.as_ref().map_or(1.0, |first| pair_test(first, &times));
            lines.push(Line {
                scenario: done[0].scenario.clone(),
                manager: done[0].manager.clone(),
                seeds: done.len(),
                unfinished: done.iter().filter(|r| !r.finished).count(),
                figures: COLUMNS.iter().map(figure).collect(),
                p,
            });
            first.get_or_insert(times);
        }
    }
    drop(progress);
    let out = if args.json { format!("{}\n", serde_json::to_string_pretty(&lines)?) } else { text(&lines) };
    std::io::stdout().write_all(out.as_bytes()).context("cannot print")
}

fn text(lines: &[Line]) -> String {
    let mut out = String::new();
    let mut scenario = "";
    for line in lines {
        if line.scenario != scenario {
            scenario = &line.scenario;
            let _ =
                write!(out, "{scenario}, mean and standard deviation of {} seeds\n{:<26}", line.seeds, "");
            for (name, _) in &line.figures {
                let _ = write!(out, " {name:>17}");
            }
            let _ = writeln!(out, " {:>7}", "p");
        }
        let _ = write!(out, "{:<26}", line.manager);
        for ((_, digits, _), (_, s)) in COLUMNS.iter().zip(&line.figures) {
            let spread = if line.seeds > 1 { format!("+-{:.*}", digits, s.sd) } else { String::new() };
            let _ = write!(out, " {:>17}", format!("{:.*}{spread}", digits, s.mean));
        }
        let late = if line.unfinished > 0 { " not done within its limit" } else { "" };
        let _ = writeln!(out, " {:>7.4}{late}", line.p);
    }
    out += "slowdown: against all memory in DRAM. oracle: accesses served by DRAM, of what the best static placement would serve.\n\
            to and fro: promotions of pages that had been demoted. p: whether the time differs from the first line's by chance.\n";
    out
}
