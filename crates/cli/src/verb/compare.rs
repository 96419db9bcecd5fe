//! `thermocline compare`: compares managers and rules.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use thermocline_sim::effect;
use thermocline_sim::manager::ManagerName;
use thermocline_sim::picture::{Bar, Group, bars};
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, mode_for, run_each};
use thermocline_sim::scenario::Setup;
use thermocline_sim::spec::SpecError;
use thermocline_sim::stats::{Summary, holm, pair_test, seeds_to_tell, summary};

use crate::args::Compare;
use crate::output::{print, tell};
use crate::progress::Progress;
use crate::verb::load::{keys, overridden, setup};
use crate::verb::picture;

/// Significance level: a smaller p-value is marked.
const LEVEL: f64 = 0.05;

/// Figures by the names of [`Report::figures`]; `None` if any run lacks the figure.
type Figures = BTreeMap<&'static str, Option<Summary>>;

/// The line of a manager.
#[derive(Debug, Serialize)]
struct Line {
    scenario: String,
    manager: String,
    seeds: usize,
    /// Runs that ended at the scenario's time limit.
    unfinished: usize,
    /// What its runs came to.
    figures: Figures,
    /// The p-value of the difference in time from the first manager. `None` if any run of this
    /// manager or of the first has no time.
    p: Option<f64>,
    /// The same, corrected for the number of managers compared.
    p_holm: Option<f64>,
}

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
    let managers = match args.manager.as_slice() {
        [] => ManagerName::all(),
        names => names.iter().map(|n| ManagerName::parse(n)).collect::<Result<_, _>>()?,
    };
    let setups = args
        .scenarios
        .iter()
        .map(|name| setup(name, args.machine.as_deref(), &args.changes))
        .collect::<Result<Vec<Setup>, SpecError>>()?;
    args.svg.as_deref().map_or(Ok(()), picture::check)?;
    overridden(&args.changes, "manager", "a list of managers")?;
    for setup in &setups {
        let keys = keys(&args.changes);
        effect::check(setup, &managers, &keys)?;
        for key in keys {
            tell_without_effect(setup, &managers, key)?;
        }
    }
    let progress = Progress::new((setups.len() * managers.len()) as u64 * args.seeds)?;
    let mut scenarios = Vec::new();
    for setup in &setups {
        let arms: Vec<Arm> = managers
            .iter()
            .flat_map(|m| (1..=args.seeds).map(|seed| Arm { manager: *m, mode: mode_for(setup), seed }))
            .collect();
        let reports = run_each(setup, &arms, &progress.stop, &|_| progress.one())?;
        scenarios.push(lines(&reports, args.seeds as usize));
    }
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

/// Tells which of the managers a change makes no difference to.
fn tell_without_effect(setup: &Setup, managers: &[ManagerName], key: &str) -> Result<(), SpecError> {
    let mut without = Vec::new();
    for manager in managers {
        without.extend(effect::ignored(setup, *manager, key)?.map(|_| manager.text()));
    }
    if !without.is_empty() {
        tell!("{}: {key} has no effect under {}", setup.scenario.name, without.join(", "));
    }
    Ok(())
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

/// The figures of the best static placement, from the first manager whose runs are all done: they
/// follow from the programs' accesses, which are the same under each.
fn best(lines: &[Line]) -> Option<Figures> {
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
