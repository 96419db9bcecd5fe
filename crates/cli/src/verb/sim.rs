//! `thermocline sim`: simulates one scenario under one manager.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use thermocline_linux::regular;
use thermocline_sim::fit::{Point, changes as fit_changes};
use thermocline_sim::machine::{self, Doctor, MachineSpec};
use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, RunError, mode_for, run_all};
use thermocline_sim::scenario::{FitSpec, PRESETS, Setup};
use thermocline_sim::spec::{self, SPEC_BYTES_MAX, SpecError};
use thermocline_sim::stats::summary;

use crate::args::{Mode, Sim};
use crate::foreign;
use crate::output::{print, tell};

/// Runs the scenario and prints its report.
///
/// # Errors
/// The scenario cannot be simulated (a [`SpecError`]), or the simulation failed.
pub fn sim(args: &Sim) -> anyhow::Result<()> {
    let out = if args.list {
        list()
    } else if args.fit {
        fit(args)?
    } else {
        let name = args.scenario.as_deref().unwrap_or_default();
        let setup = setup(name, args.machine.as_deref(), &args.changes)?;
        let reports = reports(args, &setup)?;
        if args.json { format!("{}\n", serde_json::to_string_pretty(&reports)?) } else { text(&reports) }
    };
    print(out)
}

/// Builds a scenario, given by name or by file, with the changes. If `machine`, a name or a file,
/// is given, the scenario runs on it.
///
/// # Errors
/// There is no such scenario or machine, or it cannot be simulated.
pub fn setup(name: &str, machine: Option<&str>, changes: &[String]) -> anyhow::Result<Setup> {
    let machine = machine.map(self::machine).transpose()?;
    let place = if is_file(name) { name.to_owned() } else { format!("scenario {name}") };
    let text = scenario_text(name, Path::new(name))?;
    ours(&place, &text, Setup::parse_on(&place, &text, machine, changes))
}

/// Returns `read`. If that is an error and the text is another program's file, the error names the
/// program.
///
/// # Errors
/// `read` is an error.
pub fn ours<T>(place: &str, text: &str, read: Result<T, SpecError>) -> anyhow::Result<T> {
    let error = |error| match foreign::named(text) {
        Some(what) => {
            let remedy = "`thermocline sim --list` names scenarios and machines; of another program's settings, \
                          `thermocline config check FILE` says what comes nearest";
            SpecError::new(place, format!("is {what}"), remedy)
        }
        None => error,
    };
    Ok(read.map_err(error)?)
}

/// The TOML of a scenario. If `name` is a file name, that of the file at `path`.
///
/// # Errors
/// There is no such scenario.
pub fn scenario_text(name: &str, path: &Path) -> anyhow::Result<String> {
    if is_file(name) { read(path) } else { Ok(Setup::text(name)?.to_owned()) }
}

fn is_file(name: &str) -> bool {
    name.ends_with(".toml")
}

/// The machine with that name, or in that file.
fn machine(name: &str) -> anyhow::Result<MachineSpec> {
    if name.ends_with(".json") {
        let text = read(Path::new(name))?;
        let doctor = serde_json::from_str(&text).map_err(|e| {
            let remedy = "give what `thermocline doctor --json` has printed";
            SpecError::new(name, format!("is no report of the doctor: {e}"), remedy)
        });
        return Ok(ours::<Doctor>(name, &text, doctor)?.machine()?);
    }
    if name.ends_with(".toml") {
        let text = read(Path::new(name))?;
        return ours(name, &text, spec::parse(name, &text));
    }
    Ok(machine::preset(name)?)
}

/// The text of a specification, unless it is too long for one.
///
/// # Errors
/// It cannot be read, or is too long.
pub fn read(path: &Path) -> anyhow::Result<String> {
    let place = path.display().to_string();
    let unread = |error: std::io::Error| {
        let remedy = "give the path of a file that is there and can be read";
        SpecError::new(&place, format!("cannot be read: {error}"), remedy)
    };
    let bytes = regular::read_at_most(path, SPEC_BYTES_MAX as u64).map_err(unread)?;
    if bytes.len() > SPEC_BYTES_MAX {
        let remedy = format!("stay below {SPEC_BYTES_MAX} bytes");
        return Err(SpecError::new(place, "is too long for a specification", remedy).into());
    }
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|error| unread(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))?)
}

fn reports(args: &Sim, setup: &Setup) -> anyhow::Result<Vec<Report>> {
    let manager = match (&args.manager, &args.rule) {
        (Some(name), _) => ManagerName::parse(name)?,
        (None, Some(rule)) => ManagerName::parse(&format!("thermocline:{rule}"))?,
        (None, None) => setup.manager,
    };
    let mode = match args.mode {
        Mode::Auto => mode_for(setup),
        Mode::Exact => ModeName::Exact,
        Mode::Event => ModeName::Event,
    };
    let arms: Vec<Arm> =
        (args.seed..).take(args.seeds as usize).map(|seed| Arm { manager, mode, seed }).collect();
    Ok(run_all(setup, &arms).into_iter().collect::<Result<Vec<Report>, RunError>>()?)
}

/// Fits the scenario, and shows every point on standard error.
fn fit(args: &Sim) -> anyhow::Result<String> {
    let name = args.scenario.as_deref().unwrap_or_default();
    let base = setup(name, args.machine.as_deref(), &args.changes)?;
    let text = toml::to_string(&base.scenario).context("cannot write the scenario down")?;
    let machine = base.machine.spec.clone();
    let load = |changes: &[String]| Setup::parse_on(name, &text, Some(machine.clone()), changes);
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

/// A table of means and spreads.
fn text(reports: &[Report]) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let mode = serde_json::to_value(first.mode).ok().and_then(|m| m.as_str().map(str::to_owned));
    let mut out = format!(
        "{} under {}, {} mode, {} seed{} from {}\n",
        first.scenario,
        first.manager,
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
    line("overhead of faults, samples and scans, s", &|r| Some(r.overhead_s), 3);
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
        for (node, figures) in first.nodes.iter().enumerate() {
            let name = format!("{} on node {}, MiB", process.name, figures.node);
            if reports.iter().any(|r| r.processes[i].pages[node] > 0) {
                line(&name, &|r| Some(r.processes[i].pages[node] as f64 / 256.0), 1);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_programs_are_named_wherever_one_of_ours_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let memtierd = "policy:\n  name: age\n  config: |\n    intervalms: 1000\n";
        let damo = "{ \"kdamonds\": [] }";
        let etmem = "[project]\nname=db\n[task]\nname=t\n";
        for (text, what) in [(memtierd, "memtierd"), (damo, "damo"), (etmem, "etmem")] {
            for ending in ["toml", "json"] {
                let path = dir.path().join(format!("theirs.{ending}"));
                std::fs::write(&path, text).unwrap();
                let path = path.to_str().unwrap();
                let error = setup("hotcold", Some(path), &[]).unwrap_err().to_string();
                assert!(error.starts_with(path) && error.contains(what), "{error}");
            }
            let scenario = dir.path().join("theirs.toml");
            let error = setup(scenario.to_str().unwrap(), None, &[]).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("config check"), "{error}");
        }
    }
}
