//! A sweep's runs as curves over the first parameter that has several values.

use std::collections::{BTreeMap, HashSet};

use thermocline_sim::picture::{Curve, Panel, Sweep};
use thermocline_sim::spec::SpecError;
use thermocline_sim::stats::{Summary, summary};
use thermocline_sim::sweep::{Plan, Row, Value};

/// More panels than this nobody looks at.
const PANELS_MAX: usize = 48;
/// More points of a curve than this cannot be told apart.
const VALUES_MAX: usize = 200;

/// Checks before anything is run that the sweep can be drawn.
///
/// # Errors
/// No parameter has several values, or the picture would be too large.
pub fn check(plan: &Plan) -> Result<(), SpecError> {
    let Some(along) = along(plan) else {
        let remedy = "give a parameter several values, or draw managers with `thermocline compare --svg`";
        return Err(SpecError::new("--svg", "no parameter has several values to draw curves over", remedy));
    };
    let values = distinct(plan.configurations.iter().map(|c| shown(&c.values[along]))).len();
    if values > VALUES_MAX {
        let message = format!("{} has {values} values, too many for a curve", plan.parameters[along].name);
        return Err(SpecError::new("--svg", message, format!("sweep at most {VALUES_MAX}")));
    }
    let panels = titles(plan, along).len();
    if panels > PANELS_MAX {
        let message = format!("{panels} panels are too many for a picture");
        let remedy = format!("sweep fewer other parameters: at most {PANELS_MAX} combinations");
        return Err(SpecError::new("--svg", message, remedy));
    }
    Ok(())
}

/// The picture of all runs; `None` if no parameter has several values.
pub fn sweep(plan: &Plan, rows: &BTreeMap<u64, Row>) -> Option<Sweep> {
    let along = along(plan)?;
    let values = distinct(plan.configurations.iter().map(|c| shown(&c.values[along])));
    let column = |name: &str| plan.figures.iter().position(|c| c.name == name);
    // The figure of every run of a configuration, if all have it.
    let figures = |configuration: usize, name: &str| -> Option<Vec<f64>> {
        let (column, first) = (column(name)?, configuration as u64 * plan.seeds);
        let figure = |run| match rows.get(&run)?.get(column)? {
            Some(Value::Real(real)) => Some(*real),
            _ => None,
        };
        (first..first + plan.seeds).map(figure).collect()
    };
    let figure = |configuration: usize, name: &str| -> Option<Summary> {
        Some(summary(&figures(configuration, name)?))
    };
    let panel = |title: &String| {
        let of = |i: &usize| panel_title(plan, along, *i) == *title;
        let all: Vec<usize> = (0..plan.configurations.len()).filter(of).collect();
        // The configuration of a manager with a value.
        let find = |manager: Option<&str>, value: &String| {
            all.iter().copied().filter(|i| shown(&plan.configurations[*i].values[along]) == *value).find(
                |i| {
                    manager.map_or(figure(*i, "static_time_s").is_some(), |m| {
                        plan.configurations[*i].manager == m
                    })
                },
            )
        };
        let curve = |manager: &String| {
            let points =
                |name: &str| values.iter().map(|v| figure(find(Some(manager), v)?, name)).collect::<Vec<_>>();
            Curve { name: manager.clone(), slowdown: points("slowdown"), share: points("oracle_share") }
        };
        let best = |value: &String| {
            let of = find(None, value)?;
            let least = figure(of, "all_top_time_s").filter(|least| least.mean > 0.0)?;
            Some(figure(of, "static_time_s")?.mean / least.mean)
        };
        let managers = distinct(all.iter().map(|i| plan.configurations[*i].manager.clone()));
        Panel {
            title: title.clone(),
            curves: managers.iter().map(curve).collect(),
            best: values.iter().map(best).collect(),
        }
    };
    Some(Sweep {
        parameter: plan.parameters[along].name.clone(),
        panels: titles(plan, along).iter().map(panel).collect(),
        seeds: plan.seeds,
        values,
    })
}

/// The first parameter with several values.
fn along(plan: &Plan) -> Option<usize> {
    (0..plan.parameters.len()).find(|p| several(plan, *p))
}

fn several(plan: &Plan, parameter: usize) -> bool {
    let first = plan.configurations.first().map(|c| &c.values[parameter]);
    plan.configurations.iter().any(|c| Some(&c.values[parameter]) != first)
}

/// The panels, in order.
fn titles(plan: &Plan, along: usize) -> Vec<String> {
    distinct((0..plan.configurations.len()).map(|i| panel_title(plan, along, i)))
}

/// The scenario of a configuration, and its values of the other parameters that have several.
fn panel_title(plan: &Plan, along: usize, configuration: usize) -> String {
    let of = &plan.configurations[configuration];
    let others = (0..plan.parameters.len()).filter(|p| *p != along && several(plan, *p));
    others.fold(of.scenario.clone(), |title, p| {
        format!("{title}, {} = {}", plan.parameters[p].name, shown(&of.values[p]))
    })
}

fn shown(value: &Value) -> String {
    match value {
        Value::Flag(v) => v.to_string(),
        Value::Whole(v) => v.to_string(),
        Value::Real(v) => v.to_string(),
        Value::Text(v) => v.to_string(),
    }
}

/// Each text once, in order.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}
