//! A run's figures as a row.

use std::collections::HashMap;

use super::plan::{Column, Kind, Value};
use crate::counters::Counters;
use crate::report::{Figure, NodeReport, ProcessReport, Report};
use crate::scenario::Setup;

/// The values of [`super::Plan::figures`], in their order.
pub type Row = Vec<Option<Value>>;

/// The columns that a setup's rows fill.
pub(super) fn columns(setup: &Setup) -> Vec<Column> {
    figures(&blank(setup))
        .into_iter()
        .map(|(name, figure)| {
            let kind = match figure {
                Some(Figure::Flag(_)) => Kind::Flag,
                Some(Figure::Count(_)) => Kind::Whole,
                Some(Figure::Real(_)) | None => Kind::Real,
            };
            Column { name, kind }
        })
        .collect()
}

/// A report's row; `columns` maps each figure to its position.
pub(super) fn row(report: &Report, columns: &HashMap<&str, usize>) -> Row {
    let mut row = vec![None; columns.len()];
    for (name, figure) in figures(report) {
        let value = figure.and_then(|figure| match figure {
            Figure::Flag(flag) => Some(Value::Flag(flag)),
            Figure::Count(count) => i64::try_from(count).ok().map(Value::Whole),
            // The notes of a sweep in progress are text, which has no such numbers.
            Figure::Real(real) => real.is_finite().then_some(Value::Real(real)),
        });
        if let Some(at) = columns.get(name.as_str()) {
            row[*at] = value;
        }
    }
    row
}

/// All figures: those of every report, then by node, then by name of process. Processes of the same
/// name are combined.
fn figures(report: &Report) -> Vec<(String, Option<Figure>)> {
    let mut all: Vec<(String, Option<Figure>)> =
        report.figures().into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
    for node in &report.nodes {
        let count = |count| Some(Figure::Count(count));
        all.push((format!("node_{}_used_pages", node.node), count(node.used_pages)));
        all.push((format!("node_{}_accesses", node.node), count(node.accesses)));
    }
    for (i, name) in report.processes.iter().map(|p| p.name.as_str()).enumerate() {
        if report.processes[..i].iter().any(|p| p.name == name) {
            continue;
        }
        let of: Vec<&ProcessReport> = report.processes.iter().filter(|p| p.name == name).collect();
        let times: Option<Vec<f64>> = of.iter().map(|p| p.time_s).collect();
        let last = times.map(|t| Figure::Real(t.into_iter().fold(0.0, f64::max)));
        all.push((format!("process_{name}_time_s"), last));
        let passes = of.iter().map(|p| p.scan_passes).sum();
        all.push((format!("process_{name}_scan_passes"), Some(Figure::Count(passes))));
        for (i, node) in report.nodes.iter().enumerate() {
            let pages = of.iter().map(|p| p.pages[i]).sum();
            all.push((format!("process_{name}_node_{}_pages", node.node), Some(Figure::Count(pages))));
            let mean = of.iter().map(|p| p.mean_pages[i]).sum();
            all.push((format!("process_{name}_node_{}_mean_pages", node.node), Some(Figure::Real(mean))));
        }
    }
    all
}

/// An empty report, for the names of its figures.
fn blank(setup: &Setup) -> Report {
    let nodes: Vec<NodeReport> = setup
        .machine
        .nodes
        .iter()
        .map(|n| NodeReport { node: n.id.0, tier: n.tier.0, used_pages: 0, accesses: 0 })
        .collect();
    let processes = setup
        .each_process()
        .map(|p| ProcessReport {
            name: p.name.clone(),
            pages: vec![0; nodes.len()],
            mean_pages: vec![0.0; nodes.len()],
            time_s: None,
            operations: None,
            scan_passes: 0,
            scan_period_ms: 0,
        })
        .collect();
    Report {
        scenario: String::new(),
        manager: String::new(),
        mode: crate::mode::ModeName::Event,
        seed: 0,
        time_s: None,
        finished: false,
        populate_s: 0.0,
        top_share: None,
        counters: Counters::default(),
        nodes,
        processes,
        overhead_s: 0.0,
        scan_s: 0.0,
        aside_s: 0.0,
        programs_s: 0.0,
        oracle: None,
        course: Vec::new(),
        notes: Default::default(),
    }
}
