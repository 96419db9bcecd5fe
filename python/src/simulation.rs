//! Simulations and comparisons.

use std::path::PathBuf;

use anyhow::{anyhow, ensure};
use pyo3::prelude::*;
use serde_json::{Value, json};
use thermocline_front::compare as compared;
use thermocline_front::compare::Comparison;
use thermocline_front::record::{ENDED, RecordTo, record};
use thermocline_front::simulate::{Asked, of_rule};
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::{Figure, Report};
use thermocline_sim::run::run_each;
use thermocline_trace::writer::Limits;

use crate::answer::{answer, told};

/// Most runs of one call, as of the command.
const SEEDS_MAX: u64 = 100_000;
/// Most runs of a manager on a scenario that is compared.
const COMPARED_MAX: u64 = 10_000;

/// Simulates a scenario, and gives its reports.
#[pyfunction]
#[pyo3(signature = (scenario, machine, manager, rule, set, seeds, seed, mode, record, private))]
#[allow(clippy::too_many_arguments, reason = "each is an option of the command")]
pub fn simulate(
    py: Python<'_>,
    scenario: String,
    machine: Option<String>,
    manager: Option<String>,
    rule: Option<String>,
    set: Vec<String>,
    seeds: u64,
    seed: u64,
    mode: &str,
    record: Option<PathBuf>,
    private: bool,
) -> PyResult<String> {
    let mode = named(mode);
    answer(py, |stop| {
        ensure!(manager.is_none() || rule.is_none(), "manager and rule: give one of the two");
        ensure!((1..=SEEDS_MAX).contains(&seeds), "seeds: {seeds} is not in 1..={SEEDS_MAX}");
        ensure!(record.is_none() || seeds == 1, "record: it takes one seed, not {seeds}");
        let manager = manager.or_else(|| rule.as_deref().map(of_rule));
        let (setup, arms) =
            Asked { scenario, machine, manager, changes: set, seeds, seed, mode: mode? }.ready()?;
        let mut notes = Vec::new();
        let reports: Vec<Report> = match record {
            Some(folder) => {
                let to = RecordTo { folder, limits: Limits::default(), private };
                let (report, summary) = self::record(&setup, arms[0], &to)?;
                notes.extend(summary.ended.map(|end| format!("{ENDED}: {}", end.why)));
                vec![report]
            }
            None => run_each(&setup, &arms, stop, &|_| {})?.into_iter().flatten().collect(),
        };
        let reports = reports.iter().map(report).collect::<anyhow::Result<Vec<Value>>>()?;
        Ok(told(Value::Array(reports), notes))
    })
}

/// A mode; nothing is whichever suits the size.
fn named(mode: &str) -> anyhow::Result<Option<ModeName>> {
    match mode {
        "auto" => Ok(None),
        "exact" => Ok(Some(ModeName::Exact)),
        "event" => Ok(Some(ModeName::Event)),
        other => Err(anyhow!("mode: \"{other}\" is none of auto, exact and event")),
    }
}

/// A report with its figures.
fn report(report: &Report) -> anyhow::Result<Value> {
    let figure = |figure| match figure {
        Figure::Flag(flag) => json!(flag),
        Figure::Count(count) => json!(count),
        Figure::Real(real) => json!(real),
    };
    let figures =
        report.figures().into_iter().map(|(name, of)| (name.to_owned(), of.map_or(Value::Null, figure)));
    let figures: serde_json::Map<String, Value> = figures.collect();
    let mut value = serde_json::to_value(report)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("figures".to_owned(), Value::Object(figures));
    }
    Ok(value)
}

/// Compares managers on scenarios.
#[pyfunction]
#[pyo3(signature = (scenarios, manager, machine, set, seeds))]
pub fn compare(
    py: Python<'_>,
    scenarios: Vec<String>,
    manager: Vec<String>,
    machine: Option<String>,
    set: Vec<String>,
    seeds: u64,
) -> PyResult<String> {
    answer(py, |stop| {
        ensure!(!scenarios.is_empty(), "scenarios: there is none");
        ensure!((1..=COMPARED_MAX).contains(&seeds), "seeds: {seeds} is not in 1..={COMPARED_MAX}");
        let asked = compared::Asked { scenarios, managers: manager, machine, changes: set, seeds };
        let comparison = Comparison::new(&asked)?;
        let lines = comparison.run(stop, &|| {})?.concat();
        Ok(told(serde_json::to_value(&lines)?, comparison.notes))
    })
}
