//! Fitting a scenario's free parameters to published figures.
//!
//! A scenario's `[fit]` names the parameters, the figures of one column of a table, and that
//! column's manager. Every other arm stays a prediction. The search is Hooke and Jeeves' (1961):
//! each parameter in turn is tried a step up and a step down and the better value is kept; when
//! none helps, the steps are halved. All points are judged with the same seeds, so two points
//! differ by their parameters and not by chance. The search minimises the sum of the squared
//! differences of the means over the seeds, each in units of its tolerance.

use serde::Serialize;

use crate::manager::ManagerName;
use crate::report::{Figure, Report};
use crate::run::{Arm, RunError, mode_for, run_all};
use crate::scenario::{FitSpec, Setup};
use crate::spec::SpecError;

/// A figure of a report: `rejected_percent` (of the hint faults), `top_share_percent`, or one of
/// [`Report::figures`].
pub fn figure(report: &Report, name: &str) -> Option<f64> {
    let counters = &report.counters;
    match name {
        "rejected_percent" => {
            Some(100.0 * counters.rejected_latency as f64 / counters.numa_hint_faults.max(1) as f64)
        }
        "top_share_percent" => report.top_share.map(|share| 100.0 * share),
        _ => report.figures().into_iter().find(|(n, _)| *n == name).and_then(|(_, v)| v).map(Figure::number),
    }
}

/// A point of the search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The parameters, in the order of the specification.
    pub parameters: Vec<f64>,
    /// The means of the figures over the seeds, in the order of the specification.
    pub figures: Vec<f64>,
    /// The minimised value.
    pub badness: f64,
}

/// Why there is no fit.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The scenario cannot be fitted or simulated.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Fits a scenario. `load` creates the scenario with changes as in `--set`; `look` is called with
/// every point, and with whether it is the best so far. The search ends after `rounds` halvings of
/// the steps.
///
/// # Errors
/// The scenario has no `[fit]`, or cannot be simulated.
pub fn fit(
    load: &dyn Fn(&[String]) -> Result<Setup, SpecError>,
    rounds: u32,
    look: &mut dyn FnMut(&FitSpec, &Point, bool),
) -> Result<Point, FitError> {
    let setup = load(&[])?;
    let name = &setup.scenario.name;
    let spec =
        setup.scenario.fit.clone().ok_or_else(|| {
            SpecError::new(format!("scenario {name}"), "has nothing to fit", "give it a [fit]")
        })?;
    let mut best = judge(load, &spec, spec.parameter.iter().map(|p| p.start).collect())?;
    look(&spec, &best, true);
    let mut steps: Vec<f64> = spec.parameter.iter().map(|p| p.step).collect();
    for _ in 0..rounds {
        loop {
            let before = best.badness;
            for (i, parameter) in spec.parameter.iter().enumerate() {
                for direction in [1.0, -1.0] {
                    let mut values = best.parameters.clone();
                    let value = (values[i] + direction * steps[i]).clamp(parameter.low, parameter.high);
                    values[i] = if parameter.whole { value.round() } else { value };
                    if values[i] == best.parameters[i] {
                        continue;
                    }
                    let point = judge(load, &spec, values)?;
                    let better = point.badness < best.badness;
                    look(&spec, &point, better);
                    if better {
                        best = point;
                        break;
                    }
                }
            }
            if best.badness >= before {
                break;
            }
        }
        steps.iter_mut().for_each(|s| *s /= 2.0);
    }
    Ok(best)
}

/// The parameters as changes of the scenario.
pub fn changes(spec: &FitSpec, parameters: &[f64]) -> Vec<String> {
    spec.parameter.iter().zip(parameters).map(|(p, v)| format!("{}={v}", p.key)).collect()
}

fn judge(
    load: &dyn Fn(&[String]) -> Result<Setup, SpecError>,
    spec: &FitSpec,
    parameters: Vec<f64>,
) -> Result<Point, FitError> {
    let setup = load(&changes(spec, &parameters))?;
    let (manager, mode) = (ManagerName::parse(&spec.manager)?, mode_for(&setup));
    let arms: Vec<Arm> = (1..=spec.seeds).map(|seed| Arm { manager, mode, seed }).collect();
    let reports = run_all(&setup, &arms).into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut figures = Vec::new();
    let mut badness = 0.0;
    for target in &spec.target {
        let values: Option<Vec<f64>> = reports.iter().map(|r| figure(r, &target.figure)).collect();
        let values = values.ok_or_else(|| {
            let place = format!("fit.target {}", target.figure);
            SpecError::new(
                place,
                "is no figure, or one that a run has not which was not done within the scenario's limit",
                "raise the limit, or use rejected_percent, top_share_percent or a counter",
            )
        })?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        badness += ((mean - target.value) / target.tolerance).powi(2);
        figures.push(mean);
    }
    Ok(Point { parameters, figures, badness })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Parameter, Target};

    #[test]
    fn finds_the_parameter_that_made_the_figures() {
        let with = |extra: &[String]| {
            let mut changes: Vec<String> = [
                "process.0.footprint=\"64MiB\"",
                "machine.node.0.memory=\"32MiB\"",
                "process.0.pattern.chunk=\"4MiB\"",
                "process.0.pattern.accesses_per_page=20",
            ]
            .map(str::to_owned)
            .into();
            changes.extend_from_slice(extra);
            Setup::preset("chunks-small", &changes)
        };
        let truth = ["process.0.pattern.visits=77".to_owned()];
        let setup = with(&truth).unwrap();
        let arm = |seed| Arm { manager: ManagerName::Numab2, mode: mode_for(&setup), seed };
        let reports = run_all(&setup, &[1, 2].map(arm));
        let value = reports.into_iter().map(|r| r.unwrap().time_s.unwrap()).sum::<f64>() / 2.0;
        let load = |changes: &[String]| {
            let mut setup = with(changes)?;
            let parameter = Parameter {
                key: "process.0.pattern.visits".to_owned(),
                start: 40.0,
                step: 16.0,
                low: 1.0,
                high: 200.0,
                whole: true,
            };
            let target = Target { figure: "time_s".to_owned(), value, tolerance: 0.01 * value };
            setup.scenario.fit = Some(FitSpec {
                manager: "numab2".to_owned(),
                seeds: 2,
                parameter: vec![parameter],
                target: vec![target],
            });
            Ok(setup)
        };
        let found = fit(&load, 6, &mut |_, _, _| {}).unwrap();
        assert_eq!((found.parameters, found.badness), (vec![77.0], 0.0));
    }
}
