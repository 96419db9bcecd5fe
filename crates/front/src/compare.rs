//! Comparisons of managers on scenarios.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use thermocline_sim::effect;
use thermocline_sim::manager::ManagerName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, RunError, mode_for, run_each};
use thermocline_sim::scenario::Setup;
use thermocline_sim::spec::SpecError;
use thermocline_sim::stats::{Summary, holm, pair_test, summary};

use crate::load::{keys, overridden, setup};

/// What is compared.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Presets' names, TOML files, or recordings' folders.
    pub scenarios: Vec<String>,
    /// The managers; the others are compared with the first. All if none is named.
    pub managers: Vec<String>,
    /// The machine in the place of the scenarios'.
    pub machine: Option<String>,
    /// Values of every scenario: `key=value`.
    pub changes: Vec<String>,
    /// Runs of each.
    pub seeds: u64,
}

/// A comparison that can be run.
#[derive(Debug)]
pub struct Comparison {
    setups: Vec<Setup>,
    managers: Vec<ManagerName>,
    seeds: u64,
    /// What has no effect under some of the managers, in sentences.
    pub notes: Vec<String>,
}

/// Figures by the names of [`Report::figures`]; `None` if any run lacks the figure.
pub type Figures = BTreeMap<&'static str, Option<Summary>>;

/// What the runs of a manager on a scenario came to.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The scenario.
    pub scenario: String,
    /// The manager.
    pub manager: String,
    /// Its runs.
    pub seeds: usize,
    /// Runs that ended at the scenario's time limit.
    pub unfinished: usize,
    /// What its runs came to.
    pub figures: Figures,
    /// The p-value of the difference in time from the first manager. `None` if any run of this
    /// manager or of the first has no time.
    pub p: Option<f64>,
    /// The same, corrected for the number of managers compared.
    pub p_holm: Option<f64>,
}

impl Comparison {
    /// Checks what is asked for.
    ///
    /// # Errors
    /// A scenario cannot be simulated.
    pub fn new(asked: &Asked) -> Result<Comparison, SpecError> {
        let managers = match asked.managers.as_slice() {
            [] => ManagerName::all(),
            names => names.iter().map(|n| ManagerName::parse(n)).collect::<Result<_, _>>()?,
        };
        let setups = asked
            .scenarios
            .iter()
            .map(|name| setup(name, asked.machine.as_deref(), &asked.changes))
            .collect::<Result<Vec<Setup>, SpecError>>()?;
        let mut comparison = Comparison { setups, managers, seeds: asked.seeds, notes: Vec::new() };
        overridden(&asked.changes, "manager", "a list of managers")?;
        for setup in &comparison.setups {
            let keys = keys(&asked.changes);
            effect::check(setup, &comparison.managers, &keys)?;
            for key in keys {
                comparison.notes.extend(without_effect(setup, &comparison.managers, key)?);
            }
        }
        Ok(comparison)
    }

    /// How many runs it has.
    pub fn runs(&self) -> u64 {
        (self.setups.len() * self.managers.len()) as u64 * self.seeds
    }

    /// Runs every manager on every scenario until `stop` is set, with `done` after each run. For
    /// each scenario, a line for each manager all of whose runs are done.
    ///
    /// # Errors
    /// The simulation failed.
    pub fn run(&self, stop: &AtomicBool, done: &(dyn Fn() + Sync)) -> Result<Vec<Vec<Line>>, RunError> {
        let mut scenarios = Vec::new();
        for setup in &self.setups {
            let arms: Vec<Arm> = self
                .managers
                .iter()
                .flat_map(|m| (1..=self.seeds).map(|seed| Arm { manager: *m, mode: mode_for(setup), seed }))
                .collect();
            let reports = run_each(setup, &arms, stop, &|_| done())?;
            scenarios.push(lines(&reports, self.seeds as usize));
        }
        Ok(scenarios)
    }
}

/// Says under which of the managers a change makes no difference.
fn without_effect(setup: &Setup, managers: &[ManagerName], key: &str) -> Result<Option<String>, SpecError> {
    let mut without = Vec::new();
    for manager in managers {
        without.extend(effect::ignored(setup, *manager, key)?.map(|_| manager.text()));
    }
    let name = &setup.scenario.name;
    Ok((!without.is_empty()).then(|| format!("{name}: {key} has no effect under {}", without.join(", "))))
}

/// A line for each manager all of whose runs are done.
fn lines(reports: &[Option<Report>], seeds: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut first: Option<Option<Vec<f64>>> = None;
    for chunk in reports.chunks(seeds) {
        // An incomplete sample must not be compared with a complete one.
        let Some(done) = chunk.iter().map(Option::as_ref).collect::<Option<Vec<&Report>>>() else { continue };
        let times: Option<Vec<f64>> = done.iter().map(|r| r.time_s).collect();
        let mut values: BTreeMap<&'static str, Option<Vec<f64>>> = BTreeMap::new();
        for (name, figure) in done.iter().flat_map(|r| r.figures()) {
            let all = values.entry(name).or_insert_with(|| Some(Vec::new()));
            match (all.as_mut(), figure) {
                (Some(all), Some(figure)) => all.push(figure.number()),
                _ => *all = None,
            }
        }
        lines.push(Line {
            scenario: done[0].scenario.clone(),
            manager: done[0].manager.clone(),
            seeds: done.len(),
            unfinished: done.iter().filter(|r| !r.finished).count(),
            figures: values.into_iter().map(|(name, values)| (name, values.map(|v| summary(&v)))).collect(),
            p: match &first {
                Some(first) => first.as_ref().zip(times.as_ref()).map(|(a, b)| pair_test(a, b)),
                // The first manager does not differ from itself.
                None => times.as_ref().map(|_| 1.0),
            },
            p_holm: None,
        });
        first.get_or_insert(times);
    }
    if let Some(line) = lines.first_mut() {
        line.p_holm = line.p;
    }
    // The first manager is not compared with itself, and lines without a p-value are left out.
    let mut compared: Vec<&mut Line> = lines.iter_mut().skip(1).filter(|l| l.p.is_some()).collect();
    let adjusted = holm(&compared.iter().filter_map(|l| l.p).collect::<Vec<f64>>());
    compared.iter_mut().zip(adjusted).for_each(|(line, p)| line.p_holm = Some(p));
    lines
}

/// The figures of the best static placement, from the first manager whose runs are all done: they
/// follow from the programs' accesses, which are the same under each.
pub fn best(lines: &[Line]) -> Option<Figures> {
    let one = |line: &Line| {
        let figure = |name: &str| line.figures.get(name).copied().flatten();
        let (time, share) = (figure("static_time_s")?, figure("static_top_share")?);
        let least = figure("all_top_time_s").filter(|least| least.mean > 0.0)?.mean;
        let slowdown = Summary { mean: time.mean / least, sd: time.sd / least };
        let whole = Summary { mean: 1.0, sd: 0.0 };
        let figures =
            [("time_s", time), ("slowdown", slowdown), ("top_share", share), ("oracle_share", whole)];
        Some(figures.into_iter().map(|(name, figure)| (name, Some(figure))).collect())
    };
    lines.iter().find_map(one)
}
