//! Several managers side by side, with means and spreads.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde::Serialize;
use thermocline_core::units::PAGES_PER_MIB;

use super::behind::{self, Behind};
use super::columns;
use super::manager::Manager;
use super::row::Row;

/// A figure of a row.
struct Figure {
    name: &'static str,
    of: fn(&Row) -> Option<f64>,
    head: &'static str,
    /// Factor and decimals of the table.
    shown: (f64, usize),
}

/// The compared figures, in the order of the table's columns. A figure that is missing in any run
/// of a manager is unknown for it.
const FIGURES: [Figure; 8] = [
    Figure { name: "dram_share", of: |r| Some(r.dram_share), head: "DRAM %", shown: (100.0, 1) },
    Figure { name: "oracle_share", of: |r| r.oracle_share, head: "of oracle %", shown: (100.0, 1) },
    Figure { name: "slowdown", of: |r| Some(r.slowdown), head: "slowdown", shown: (1.0, 3) },
    Figure { name: "felt_slowdown", of: |r| r.felt_slowdown, head: "felt slowdown", shown: (1.0, 3) },
    Figure { name: "promoted", of: |r| Some(r.promoted as f64), head: "promoted", shown: (1.0, 0) },
    Figure { name: "demoted", of: |r| Some(r.demoted as f64), head: "demoted", shown: (1.0, 0) },
    Figure { name: "ping_pong", of: |r| Some(r.ping_pong as f64), head: "ping-ponged", shown: (1.0, 0) },
    Figure { name: "daemon_cpu", of: |r| Some(r.daemon_cpu), head: "daemon CPU s", shown: (1.0, 1) },
];

/// A manager's runs. The figures are means; `sd` has their standard deviations.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    manager: String,
    rule: Option<String>,
    source: Option<String>,
    #[serde(flatten)]
    mean: BTreeMap<&'static str, f64>,
    label: Manager,
    repeats: usize,
    sd: BTreeMap<&'static str, Option<f64>>,
    /// `None` for the best one.
    behind: Option<Behind>,
    runs: Vec<Row>,
}

/// Refuses rows of different programs, kernels, starts or lengths: means over them would be
/// meaningless.
///
/// # Errors
/// Names the difference.
pub(crate) fn alike(rows: &[Row]) -> anyhow::Result<()> {
    let conditions = |row: &Row| {
        format!(
            "{} on Linux {}, {} at first, {} {} to warm up, {}, {}",
            row.workload.name(),
            row.kernel,
            row.start.name(),
            row.warmup_ops,
            row.workload.ops(),
            match &row.felt {
                Some(felt) => format!("CXL felt {} times as slow as DRAM", felt.asked.ratio),
                None => "no latency felt".to_owned(),
            },
            row.model_text()
        )
    };
    let Some((first, rest)) = rows.split_first() else { return Ok(()) };
    for row in rest {
        ensure!(
            conditions(row) == conditions(first),
            "these runs cannot be compared: {} and {}; take rows of one kind, or run them again alike",
            conditions(first),
            conditions(row)
        );
    }
    Ok(())
}

/// What the runs have in common, and the spread of the emulator's pace.
pub(crate) fn heading(rows: &[Row]) -> String {
    let Some(row) = rows.first() else { return String::new() };
    let mean = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
    let extreme = |pick: fn(f64, f64) -> f64| rows.iter().map(|row| row.dilation).reduce(pick).unwrap_or(0.0);
    format!(
        "{}, {:.0} MiB, DRAM for {:.0} % of it, {} at first; Linux {}; {} {} to warm up, {:.0} measured;\n\
         modelled: {}; {:.1} to {:.1} guest seconds for each modelled one\n",
        row.workload.name(),
        mean(|row| row.footprint_pages as f64) / PAGES_PER_MIB as f64,
        100.0 * mean(|row| row.capacity_pages as f64 / row.footprint_pages.max(1) as f64),
        row.start.name(),
        row.kernel,
        row.warmup_ops,
        row.workload.ops(),
        mean(|row| row.ops as f64),
        row.model_text(),
        extreme(f64::min),
        extreme(f64::max),
    )
}

/// A summary for each manager, in the order in which they first occur.
pub(crate) fn summaries(rows: Vec<Row>) -> Vec<Summary> {
    let mut groups: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[0].label == row.label) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let shares = |runs: &Vec<Row>| {
        let shares: Option<Vec<f64>> = runs.iter().map(|row| row.oracle_share).collect();
        (runs[0].label.to_string(), shares.unwrap_or_default())
    };
    let behind = behind::behind(&groups.iter().map(shares).collect::<Vec<_>>());
    groups
        .into_iter()
        .zip(behind)
        .map(|(runs, behind)| {
            let statistics = FIGURES.iter().filter_map(|figure| {
                let values: Vec<f64> = runs.iter().map(figure.of).collect::<Option<_>>()?;
                Some((figure.name, mean_and_sd(&values)))
            });
            let (mut mean, mut sd) = (BTreeMap::new(), BTreeMap::new());
            for (name, (of_mean, of_sd)) in statistics {
                mean.insert(name, of_mean);
                sd.insert(name, of_sd);
            }
            Summary {
                manager: runs[0].manager.clone(),
                rule: runs[0].rule.clone(),
                source: runs[0].source.clone(),
                mean,
                label: runs[0].label.clone(),
                repeats: runs.len(),
                sd,
                behind,
                runs,
            }
        })
        .collect()
}

/// The mean, and the standard deviation of a sample of at least two. Without values both are
/// undefined.
fn mean_and_sd(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
}

/// How far each manager is behind the best.
pub(crate) fn ranking(summaries: &[Summary]) -> String {
    let of = |summary: &Summary| (summary.label.to_string(), summary.behind.clone());
    behind::text(&summaries.iter().map(of).collect::<Vec<_>>())
}

/// The table, means with standard deviations.
pub(crate) fn table(summaries: &[Summary]) -> String {
    let any_has = |figure: &&Figure| summaries.iter().any(|summary| summary.mean.contains_key(figure.name));
    let figures: Vec<&Figure> = FIGURES.iter().filter(any_has).collect();
    let mut lines = vec![vec!["manager".to_owned(), "repeats".to_owned()]];
    lines[0].extend(figures.iter().map(|figure| figure.head.to_owned()));
    for summary in summaries {
        let mut line = vec![summary.label.to_string(), summary.repeats.to_string()];
        for figure in &figures {
            let (factor, decimals) = figure.shown;
            let mean = summary.mean.get(figure.name).map(|mean| mean * factor);
            line.push(match (mean, summary.sd.get(figure.name).copied().flatten()) {
                (Some(mean), Some(sd)) => format!("{mean:.decimals$} ± {:.decimals$}", sd * factor),
                (Some(mean), None) => format!("{mean:.decimals$}"),
                (None, _) => "-".to_owned(),
            });
        }
        lines.push(line);
    }
    columns(&lines)
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn means_and_deviations_by_hand() {
        assert_eq!(mean_and_sd(&[2.0]), (2.0, None));
        assert_eq!(mean_and_sd(&[1.0, 3.0]), (2.0, Some(2f64.sqrt())));
        assert_eq!(mean_and_sd(&[2.0, 4.0, 6.0]), (4.0, Some(2.0)));
    }

    #[test]
    fn only_runs_that_are_alike_are_compared() {
        let rows = [row("none", 0.1), row("numab2", 0.2)];
        alike(&rows).unwrap();
        let text = heading(&rows);
        assert!(
            text.starts_with("redis, 0 MiB, DRAM for 50 % of it, first-touch at first; Linux 6.12;"),
            "{text}"
        );
        let longer = Row { warmup_ops: 11, ..row("numab2", 0.2) };
        let error = alike(&[row("none", 0.1), longer]).unwrap_err().to_string();
        assert!(error.contains("10 reads") && error.contains("11 reads"), "{error}");
        assert_eq!(heading(&[]), "");
    }

    #[test]
    fn runs_are_put_together_by_manager_and_the_json_is_a_list_of_them() {
        let rows = vec![
            row("none", 0.1),
            row("thermocline", 0.5),
            row("thermocline+kernel.demotion_enabled=true", 0.9),
            row("none", 0.3),
            row("thermocline", 0.7),
        ];
        let summaries = summaries(rows);
        let json = serde_json::to_value(&summaries).unwrap();
        let json = json.as_array().unwrap();
        assert_eq!(json.len(), 3);
        for summary in json {
            for key in [
                "manager",
                "rule",
                "source",
                "dram_share",
                "oracle_share",
                "slowdown",
                "promoted",
                "demoted",
                "ping_pong",
                "daemon_cpu",
            ] {
                assert!(summary.get(key).is_some(), "{key} is absent");
            }
        }
        let close =
            |value: &serde_json::Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1e-9;
        assert!(close(&json[0]["dram_share"], 0.2) && close(&json[1]["dram_share"], 0.6));
        assert!(close(&json[0]["sd"]["dram_share"], 0.02f64.sqrt()));
        assert_eq!((&json[0]["manager"], &json[0]["rule"]), (&"none".into(), &serde_json::Value::Null));
        assert_eq!((&json[2]["repeats"], &json[2]["rule"]), (&1.into(), &"adaptive".into()));
        assert_eq!(json[1]["runs"].as_array().unwrap().len(), 2);

        let table = table(&summaries);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("none") && lines[1].contains("20.0 ± 14.1"), "{table}");
        assert!(lines[3].contains(" 90.0  "), "one run has no spread: {table}");
        assert!(!table.contains("felt"), "a figure that no run has: {table}");
    }

    #[test]
    fn a_share_that_a_run_does_not_have_is_unknown_and_behind_nobody() {
        let unknown = Row { oracle_share: None, ..row("none", 0.2) };
        let summaries = summaries(vec![row("none", 0.1), unknown, row("numab2", 0.5)]);
        let json = serde_json::to_value(&summaries).unwrap();
        assert!(json[0].get("oracle_share").is_none() && json[0]["behind"].is_null(), "{json}");
        assert!(json[1]["oracle_share"].is_f64() && json[1]["behind"].is_null(), "{json}");
        let table = table(&summaries);
        assert!(table.lines().nth(1).unwrap().split_whitespace().any(|cell| cell == "-"), "{table}");
        assert_eq!(ranking(&summaries), "");
    }
}
