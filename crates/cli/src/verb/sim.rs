//! `thermocline sim`: simulates one scenario under one manager.

use std::fmt::Write as _;

use anyhow::Context;
use thermocline_front::load::setup;
use thermocline_front::record::{ENDED, RecordTo, record};
use thermocline_front::simulate::{Asked, of_rule};
use thermocline_sim::fit::{Point, changes as fit_changes};
use thermocline_sim::machine;
use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::operations::OperationTimes;
use thermocline_sim::report::Report;
use thermocline_sim::run::{RunError, run_all};
use thermocline_sim::scenario::{FitSpec, PRESETS, Setup};
use thermocline_sim::stats::summary;

use crate::args::{Mode, Sim};
use crate::daemon::RecordAsked;
use crate::output::{print, tell};
use crate::recorded;

/// Runs the scenario and prints its report.
///
/// # Errors
/// The scenario cannot be simulated (a [`SpecError`](thermocline_sim::spec::SpecError)), or the
/// simulation failed.
pub fn sim(args: &Sim) -> anyhow::Result<()> {
    let out = if args.list {
        list()
    } else if args.fit {
        fit(args)?
    } else {
        let reports = reports(args)?;
        if args.json {
            format!("{}\n", serde_json::to_string_pretty(&reports)?)
        } else {
            text(&reports, named(args).is_none())
        }
    };
    print(out)
}

/// The manager that the command line names.
fn named(args: &Sim) -> Option<String> {
    args.manager.clone().or_else(|| args.rule.as_deref().map(of_rule))
}

fn reports(args: &Sim) -> anyhow::Result<Vec<Report>> {
    let asked = Asked {
        scenario: args.scenario.clone().unwrap_or_default(),
        machine: args.machine.clone(),
        manager: named(args),
        changes: args.changes.clone(),
        seeds: args.seeds,
        seed: args.seed,
        mode: match args.mode {
            Mode::Auto => None,
            Mode::Exact => Some(ModeName::Exact),
            Mode::Event => Some(ModeName::Event),
        },
    };
    let (setup, arms) = asked.ready()?;
    if let Some(folder) = args.record.folder.clone() {
        let how = &args.record.how;
        let to = RecordTo { folder, limits: RecordAsked::limits(how), private: how.private };
        let (report, summary) = record(&setup, arms[0], &to)?;
        tell!("{}", recorded::after(&summary, None));
        if let Some(end) = summary.ended {
            tell!("{ENDED}: {}", end.why);
        }
        return Ok(vec![report]);
    }
    Ok(run_all(&setup, &arms).into_iter().collect::<Result<Vec<Report>, RunError>>()?)
}

/// Fits the scenario, and shows every point on standard error.
fn fit(args: &Sim) -> anyhow::Result<String> {
    let name = args.scenario.as_deref().unwrap_or_default();
    let base = setup(name, args.machine.as_deref(), &args.changes)?;
    let text = toml::to_string(&base.scenario).context("cannot write the scenario down")?;
    let machine = base.machine.spec.clone();
    let load = |changes: &[String]| Setup::parse_on(name, &text, &|_| Ok(machine.clone()), changes);
    tell!("fitting {} on {}", base.scenario.name, machine.name);
    let mut look = |spec: &FitSpec, point: &Point, better: bool| {
        let figures: Vec<String> =
            spec.target.iter().zip(&point.figures).map(|(t, f)| format!("{} {f:.1}", t.figure)).collect();
        let sign = if better { '*' } else { ' ' };
        let parameters = fit_changes(spec, &point.parameters).join(" ");
        tell!("{sign} {:8.3}  {parameters}  {}", point.badness, figures.join("  "));
    };
    let best = thermocline_sim::fit::fit(&load, 2, &mut look)?;
    let changes = base.scenario.fit.map_or(Vec::new(), |spec| fit_changes(&spec, &best.parameters));
    Ok(changes.iter().map(|c| format!("--set {c}\n")).collect())
}

fn list() -> String {
    let mut out = "scenarios\n".to_owned();
    for (name, _) in PRESETS {
        let summary = Setup::preset(name, &[]).map(|s| s.scenario.summary).unwrap_or_default();
        let _ = writeln!(out, "  {name:<24} {summary}");
    }
    let names = |all: Vec<String>| format!("  {}\n", all.join("\n  "));
    out += "machines\n";
    out += &names(machine::PRESETS.iter().map(|(n, _)| (*n).to_owned()).collect());
    out += "managers\n";
    out += &names(ManagerName::all().into_iter().map(ManagerName::text).collect());
    out
}

/// A table of means and spreads. `default`: the manager is the one that the scenario names.
fn text(reports: &[Report], default: bool) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let mode = serde_json::to_value(first.mode).ok().and_then(|m| m.as_str().map(str::to_owned));
    let mut out = format!(
        "{} under {}{}, {} mode, {} seed{} from {}\n",
        first.scenario,
        first.manager,
        if default { " (the scenario's default manager)" } else { "" },
        mode.unwrap_or_default(),
        reports.len(),
        if reports.len() == 1 { "" } else { "s" },
        first.seed,
    );
    if let Some(unfinished) = reports.iter().find(|r| !r.finished) {
        let _ = writeln!(out, "not done within its limit: seed {}", unfinished.seed);
    }
    let mut line = |name: &str, value: &dyn Fn(&Report) -> Option<f64>, digits: usize| {
        let Some(values) = reports.iter().map(value).collect::<Option<Vec<f64>>>() else {
            let _ = writeln!(out, "  {name:<42} {:>18}", "unknown");
            return;
        };
        let found = summary(&values);
        let _ = write!(out, "  {name:<42} {:>18.digits$}", found.mean);
        if reports.len() > 1 {
            let _ = write!(out, "  +- {:.digits$}", found.sd);
        }
        out.push('\n');
    };
    line("time, s", &|r| r.time_s, 3);
    line("slowdown against all memory in the top tier", &Report::slowdown, 3);
    line("overhead of the programs, s", &|r| Some(r.overhead_s), 3);
    line("accesses that the top tier served, %", &|r| Some(r.top_share? * 100.0), 2);
    line("  the best static placement would, %", &|r| Some(r.oracle?.static_top_share * 100.0), 2);
    line("  of that it reached, %", &|r| Some(r.oracle_share()? * 100.0), 2);
    line("  placed anew at each phase, for free, %", &|r| Some(r.oracle?.phased_top_share * 100.0), 2);
    for (i, (name, _)) in first.counters.values().iter().enumerate() {
        if reports.iter().any(|r| r.counters.values()[i].1 > 0) {
            line(name, &|r| Some(r.counters.values()[i].1 as f64), 0);
        }
    }
    for (i, process) in first.processes.iter().enumerate() {
        let mut time = |what: &str, of: fn(&OperationTimes) -> f64, digits: usize| {
            if reports.iter().any(|r| r.processes[i].operations.is_some()) {
                let value = |r: &Report| r.processes[i].operations.as_ref().map(of);
                line(&format!("{}: {what}", process.name), &value, digits);
            }
        };
        time("operations a second", |t| t.per_s, 0);
        time("an operation, mean, us", |t| t.mean_us, 2);
        time("50 of 100 take at most, us", |t| t.p50_us, 2);
        time("99 of 100", |t| t.p99_us, 2);
        time("999 of 1000", |t| t.p99_9_us, 2);
        for (node, figures) in first.nodes.iter().enumerate() {
            let name = format!("{} on node {}, MiB", process.name, figures.node);
            if reports.iter().any(|r| r.processes[i].pages[node] > 0) {
                line(&name, &|r| Some(r.processes[i].pages[node] as f64 / 256.0), 1);
            }
        }
    }
    out
}
