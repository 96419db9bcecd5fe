//! The runs beside each other, as in S3: managers in the rows, ballast in the columns.

use anyhow::ensure;
use thermocline_core::config::Config;
use thermocline_core::units::PAGES_PER_MIB;
use thermocline_lab::programs::keys::Distribution;
use thermocline_lab::truth::Model;

use super::cell::{Cell, Who};
use crate::experiments::score::columns;
use crate::experiments::score::manager::Manager;
use crate::experiments::score::plan::Moved;

/// How the figures of a row are put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Geomean,
    Mean,
}

/// A separate table.
struct Figure {
    title: &'static str,
    of: fn(&Cell) -> Option<f64>,
    over: Over,
    decimals: usize,
}

const FIGURES: [Figure; 4] = [
    Figure {
        title: "Felt slowdown against all in DRAM, after warm-up",
        of: |cell| cell.row.felt_slowdown,
        over: Over::Geomean,
        decimals: 3,
    },
    Figure {
        title: "The same of all reads since the manager started",
        of: Cell::felt_from_start,
        over: Over::Geomean,
        decimals: 3,
    },
    Figure {
        title: "Modelled slowdown against all in DRAM, after warm-up",
        of: |cell| Some(cell.row.slowdown),
        over: Over::Geomean,
        decimals: 3,
    },
    Figure {
        title: "Redis on CXL at the end, MiB",
        of: |cell| Some(cell.redis_on_cxl_mib()),
        over: Over::Mean,
        decimals: 0,
    },
];

/// Refuses runs of different modelled machines, and of machines other than the one to be modelled
/// now: means over them would be meaningless.
///
/// # Errors
/// Says what differs.
pub(crate) fn alike(cells: &[Cell], asked: Option<&Model>) -> anyhow::Result<()> {
    let models = distinct(cells.iter().map(|cell| cell.row.model_text()).chain(asked.map(Model::to_string)));
    ensure!(
        models.len() <= 1,
        "these runs are modelled otherwise and cannot be put together: {}; give all the same --cpi-ns, --latency and --bandwidth",
        models.join("; ")
    );
    Ok(())
}

/// All tables of all loads.
pub(crate) fn text(cells: &[Cell]) -> String {
    let mut out = String::new();
    for load in [Distribution::Zipfian, Distribution::Latest] {
        let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.load == load).collect();
        if cells.is_empty() {
            continue;
        }
        out.push_str(&heading(load, &cells));
        for figure in &FIGURES {
            if cells.iter().any(|cell| (figure.of)(cell).is_some()) {
                out.push_str(&format!("\n{}\n{}", figure.title, table(figure, &cells)));
            }
        }
        out.push_str(&format!("\nWho moved what, base pages since the manager started\n{}\n", moves(&cells)));
    }
    out.push_str(&settings(cells));
    out
}

fn heading(load: Distribution, cells: &[&Cell]) -> String {
    let Some(Cell { row, .. }) = cells.first() else { return String::new() };
    let mut seeds: Vec<u64> = cells.iter().map(|cell| cell.row.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    format!(
        "{}: Redis of {:.0} MiB, filled beside cold ballast; {} reads under the manager and then {} measured; Linux {}; seed {}\n\
         modelled: {}\n",
        load.name(),
        row.footprint_pages as f64 / PAGES_PER_MIB as f64,
        row.warmup_ops,
        row.ops,
        row.kernel,
        seeds.join(", "),
        row.model_text(),
    )
}

/// The distinct items, in the order in which they first occur.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    values.for_each(|value| {
        if !found.contains(&value) {
            found.push(value);
        }
    });
    found
}

/// The spills of the columns, from the least ballast to the most; 0 is that of the runs without
/// ballast.
fn spills(cells: &[&Cell]) -> Vec<f64> {
    let mut spills = distinct(cells.iter().map(|cell| cell.spill));
    spills.sort_by(f64::total_cmp);
    spills
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The mean over seeds of one cell of the table.
fn value(cells: &[&Cell], who: &Who, spill: f64, of: fn(&Cell) -> Option<f64>) -> Option<f64> {
    let these = cells.iter().filter(|cell| cell.who == *who && cell.spill == spill);
    mean(&these.filter_map(|cell| of(cell)).collect::<Vec<f64>>())
}

fn table(figure: &Figure, cells: &[&Cell]) -> String {
    let spills = spills(cells);
    let head = |spill: &f64| {
        let these: Vec<f64> =
            cells.iter().filter(|cell| cell.spill == *spill).map(|cell| cell.ballast_mib()).collect();
        format!("{:.0} MiB ({:.0} %)", mean(&these).unwrap_or(0.0), 100.0 * spill)
    };
    let over = if figure.over == Over::Geomean { "geomean" } else { "mean" };
    let mut lines = vec![vec!["ballast (spilled)".to_owned()]];
    lines[0].extend(spills.iter().map(head).chain([over.to_owned()]));
    let shown =
        |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.*}", figure.decimals));
    for who in distinct(cells.iter().map(|cell| &cell.who)) {
        let values: Vec<Option<f64>> =
            spills.iter().map(|&spill| value(cells, who, spill, figure.of)).collect();
        let present: Vec<f64> = values.iter().copied().flatten().collect();
        let all = match figure.over {
            Over::Geomean => geomean(&present),
            Over::Mean => mean(&present),
        };
        let mut line = vec![who.to_string()];
        line.extend(values.into_iter().chain([all]).map(shown));
        lines.push(line);
    }
    columns(&lines)
}

fn geomean(values: &[f64]) -> Option<f64> {
    mean(&values.iter().map(|value| value.ln()).collect::<Vec<f64>>()).map(f64::exp)
}

/// A line for each run.
fn moves(cells: &[&Cell]) -> String {
    let heads =
        ["", "spilled", "promoted", "demoted", "of these ballast", "by", "manager CPU s", "kswapd CPU s"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    for cell in cells.iter().filter(|cell| cell.who.has_ballast()) {
        let row = &cell.row;
        lines.push(vec![
            cell.who.to_string(),
            format!("{:.0} MiB", cell.redis_on_cxl_before_mib()),
            row.promoted.to_string(),
            row.demoted.to_string(),
            format!("{:.0}", cell.ballast_demoted_mib() * PAGES_PER_MIB as f64),
            by(&row.promoted_by, &row.demoted_by),
            format!("{:.1}", row.daemon_cpu),
            format!("{:.1}", row.kswapd_cpu),
        ]);
    }
    columns(&lines)
}

/// Pages promoted/demoted by each manager that moved any.
fn by(promoted: &Moved, demoted: &Moved) -> String {
    let who = [
        ("kernel", promoted.kernel, demoted.kernel),
        ("thermocline", promoted.thermocline, demoted.thermocline),
        ("damon", promoted.damon, demoted.damon),
    ];
    let moved = who.iter().filter(|(_, up, down)| up + down > 0);
    let text: Vec<String> = moved.map(|(name, up, down)| format!("{name} +{up} -{down}")).collect();
    if text.is_empty() { "nobody".to_owned() } else { text.join(", ") }
}

/// What each manager ran with.
fn settings(cells: &[Cell]) -> String {
    let mut out = String::new();
    for who in distinct(cells.iter().map(|cell| &cell.who)) {
        let Some(cell) = cells.iter().find(|cell| cell.who == *who) else { continue };
        let pairs: Vec<String> =
            cell.row.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        out.push_str(&format!("{who}: {}\n", pairs.join(" ")));
        if matches!(who, Who::Managed(Manager::Damon { .. })) {
            let damon = &Config::default().manager.damon;
            out.push_str(&format!(
                "    HMSDK's settings, meant for hundreds of GiB and not scaled, but for those in its name: {} ms a sample, {} ms an aggregation,\n    \
                 hot at {} % of the samples, cold after {} ms\n",
                damon.sample_ms, damon.aggregation_ms, damon.hot_percent, damon.cold_ms
            ));
        }
    }
    out.push_str(
        "All others as they come out of the box, their times not scaled either. Managers start when Redis is filled and have the whole machine.\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::cell::tests::cell;
    use super::*;

    fn cells() -> Vec<Cell> {
        vec![
            cell("dram-only", 0.0, 1.0),
            cell("cxl-only", 0.0, 2.0),
            cell("none", 0.37, 1.2),
            cell("none", 0.86, 1.8),
            cell("thermocline", 0.37, 1.1),
            cell("thermocline", 0.37, 1.3),
        ]
    }

    #[test]
    fn geomeans_over_ballast_of_means_over_seeds() {
        let cells = cells();
        let all: Vec<&Cell> = cells.iter().collect();
        let text = table(&FIGURES[0], &all);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").filter(|w| !w.is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(
            lines[0],
            ["ballast (spilled)", "0 MiB (0 %)", "10 MiB (37 %)", "10 MiB (86 %)", "geomean"]
        );
        assert_eq!(lines[1], ["dram-only", "1.000", "-", "-", "1.000"]);
        // The root of 1.2 x 1.8 is 1.4697.
        assert_eq!(lines[3], ["none", "-", "1.200", "1.800", "1.470"]);
        assert_eq!(lines[4], ["thermocline", "-", "1.200", "-", "1.200"]);
    }

    #[test]
    fn runs_of_different_models_are_not_put_together() {
        let mut cells = cells();
        let mut other = cells[0].row.model.clone().unwrap();
        alike(&cells, Some(&other)).unwrap();
        other.nodes[1].bandwidth_gbps = 0.5;
        assert!(alike(&cells, Some(&other)).unwrap_err().to_string().contains("with 0.5 GB/s"));
        cells[1].row.model = None;
        assert!(alike(&cells, None).is_err());
        assert!(alike(&[], Some(&other)).is_ok());
    }

    #[test]
    fn every_load_has_its_tables_and_every_manager_its_settings() {
        let mut cells = cells();
        let latest = Cell { load: Distribution::Latest, ..cell("damon", 0.37, 1.5) };
        cells.push(latest);
        let text = text(&cells);
        assert!(
            text.contains("zipfian: Redis of 4 MiB") && text.contains("latest: Redis of 4 MiB"),
            "{text}"
        );
        assert_eq!(text.matches("Redis on CXL at the end").count(), 2);
        assert!(!text.contains("all reads since"), "a figure that no run has: {text}");
        assert!(text.contains("kernel +1 -3, thermocline +2 -0, damon +4 -0"), "{text}");
        assert!(text.contains("cold after 30000 ms"), "{text}");
        assert_eq!(by(&Moved::default(), &Moved::default()), "nobody");
    }
}
