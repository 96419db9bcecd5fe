//! `thermocline compare`: compares managers and rules.

use std::fmt::Write as _;

use thermocline_front::compare::{Asked, Comparison, Figures, Line, best};
use thermocline_sim::picture::{Bar, Group, bars};
use thermocline_sim::stats::seeds_to_tell;

use crate::args::Compare;
use crate::output::{print, tell};
use crate::progress::Progress;
use crate::verb::picture;

/// Significance level: a smaller p-value is marked.
const LEVEL: f64 = 0.05;

/// Heading, digits, figure, and the factor by which it is multiplied.
type Column = (&'static str, usize, &'static str, f64);

const COLUMNS: [Column; 12] = [
    ("time s", 2, "time_s", 1.0),
    ("slowdown", 3, "slowdown", 1.0),
    ("all costs", 3, "slowdown_all", 1.0),
    ("oracle %", 1, "oracle_share", 100.0),
    ("DRAM %", 1, "top_share", 100.0),
    ("faults", 0, "numa_hint_faults", 1.0),
    ("promoted", 0, "promoted_pages", 1.0),
    ("demoted", 0, "demoted_pages", 1.0),
    ("direct", 0, "pgdemote_direct", 1.0),
    ("to and fro", 0, "promoted_again", 1.0),
    ("overhead s", 2, "overhead_s", 1.0),
    ("aside s", 2, "aside_s", 1.0),
];

/// Runs every manager on every scenario and prints a table for each scenario.
///
/// # Errors
/// A scenario cannot be simulated, or the simulation failed.
pub fn compare(args: &Compare) -> anyhow::Result<()> {
    let comparison = Comparison::new(&Asked {
        scenarios: args.scenarios.clone(),
        managers: args.manager.clone(),
        machine: args.machine.clone(),
        changes: args.changes.clone(),
        seeds: args.seeds,
    })?;
    args.svg.as_deref().map_or(Ok(()), picture::check)?;
    comparison.notes.iter().for_each(|note| tell!("{note}"));
    let progress = Progress::new(comparison.runs())?;
    let scenarios = comparison.run(&progress.stop, &|| progress.one())?;
    drop(progress);
    if let Some(path) = &args.svg {
        let groups: Vec<Group> = scenarios.iter().filter_map(|lines| group(lines)).collect();
        picture::write(path, &bars(&groups))?;
    }
    let out = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&scenarios.iter().flatten().collect::<Vec<_>>())?)
    } else {
        text(&scenarios)
    };
    print(out)
}

fn text(scenarios: &[Vec<Line>]) -> String {
    let mut out = String::new();
    for lines in scenarios {
        let Some(first) = lines.first() else { continue };
        let of = match first.seeds {
            1 => "one seed".to_owned(),
            seeds => format!("mean and standard deviation of {seeds} seeds"),
        };
        let _ = writeln!(out, "{}: {of}", first.scenario);
        let mut rows =
            vec![std::iter::once("").chain(COLUMNS.map(|c| c.0)).chain(["p"]).map(str::to_owned).collect()];
        rows.extend(
            lines
                .iter()
                .enumerate()
                .map(|(i, line)| cells(&line.manager, &line.figures, line.p_holm, i == 0)),
        );
        rows.extend(best(lines).map(|figures| cells(BEST, &figures, None, false)));
        table(&mut out, &rows);
        for line in lines.iter().filter(|l| l.unfinished > 0) {
            let _ = writeln!(
                out,
                "{}: {} of {} runs were not done within the scenario's limit",
                line.manager, line.unfinished, line.seeds
            );
        }
        let enough = seeds_to_tell(lines.len() - 1, LEVEL);
        if lines.len() > 1 && (first.seeds as u64) < enough {
            let _ = writeln!(
                out,
                "No p can be below {LEVEL} with so few seeds and {} managers to compare; --seeds {enough} is enough.",
                lines.len() - 1
            );
        }
        out.push('\n');
    }
    if out.is_empty() {
        return "no manager is done with all seeds\n".to_owned();
    }
    out += "slowdown    time against that with all memory in DRAM\n\
            all costs   the same with the CPU time aside, as if it were spread over the programs' CPUs\n\
            oracle %    accesses served by DRAM, of those that the best static placement would serve\n\
            DRAM %      accesses served by DRAM (the top tier), of all\n\
            faults      hint faults; promoted, demoted: pages, by anybody; direct: demoted by allocating tasks\n\
            to and fro  promotions of pages that had been demoted\n\
            overhead s  CPU time of faults, samples, scans and accessed bits\n\
            aside s     CPU time of kernel threads and of the daemon: looking at memory, deciding, moving\n\
            p           how probable such a difference in time from the first line is by chance alone, corrected for the number of\n\
            \x20           lines (Holm); * where it is below 0.05\n\
            best static placement: the pages with most accesses in DRAM from the start, on idle nodes, without faults or moves\n\
            -           unknown: a run was not done within the limit, or had nothing to do\n";
    out
}

/// What the bound is called.
const BEST: &str = "best static placement";

/// A scenario's lines as a part of the picture.
fn group(lines: &[Line]) -> Option<Group> {
    let first = lines.first()?;
    let bar = |name: &str, figures: &Figures, bound| {
        let figure = |name: &str| figures.get(name).copied().flatten();
        Bar { name: name.to_owned(), slowdown: figure("slowdown"), share: figure("oracle_share"), bound }
    };
    let managers = lines.iter().map(|line| bar(&line.manager, &line.figures, false));
    let best = best(lines).map(|figures| bar(BEST, &figures, true));
    Some(Group { title: first.scenario.clone(), seeds: first.seeds, bars: managers.chain(best).collect() })
}

/// The cells of a line.
fn cells(name: &str, figures: &Figures, p: Option<f64>, first: bool) -> Vec<String> {
    let mut cells = vec![name.to_owned()];
    for (_, digits, name, factor) in COLUMNS {
        let Some(s) = figures.get(name).copied().flatten() else {
            cells.push("-".to_owned());
            continue;
        };
        let (mean, sd) = (s.mean * factor, s.sd * factor);
        let mut cell = number(mean, digits, mean);
        let spread = number(sd, digits, mean);
        // A spread that is rounded to 0 shows nothing.
        if spread.contains(|c: char| ('1'..='9').contains(&c)) {
            cell += &format!("+-{spread}");
        }
        cells.push(cell);
    }
    cells.push(match p {
        None => "-".to_owned(),
        _ if first => "-".to_owned(),
        Some(p) if p < 0.001 => "<0.001*".to_owned(),
        Some(p) if p < LEVEL => format!("{p:.3}*"),
        Some(p) => format!("{p:.3}"),
    });
    cells
}

/// A number, in thousands or millions if `scale` is that large.
fn number(value: f64, digits: usize, scale: f64) -> String {
    match scale.abs() {
        s if digits > 0 || s < 1e4 => format!("{value:.digits$}"),
        s if s < 1e6 => format!("{:.1}k", value / 1e3),
        _ => format!("{:.2}M", value / 1e6),
    }
}

/// Writes rows. Each column is as wide as its widest cell; the first is left-aligned.
fn table(out: &mut String, rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |i: usize| rows.iter().map(|row| row[i].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cell = |(i, cell): (usize, &String)| match i {
            0 => format!("{cell:<0$}", widths[0]),
            _ => format!("  {cell:>0$}", widths[i]),
        };
        let line: String = row.iter().enumerate().map(cell).collect();
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
