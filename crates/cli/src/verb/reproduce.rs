//! `thermocline reproduce`: compares published tables with the simulator's.

use std::fmt::Write as _;

use thermocline_sim::reproduce::{Row, Table, reproduce as run, svg, tables};
use thermocline_sim::spec::SpecError;

use crate::args::Reproduce;
use crate::output::print;
use crate::progress::Progress;
use crate::verb::picture;

/// Runs the tables and prints them.
///
/// # Errors
/// There is no such table, the simulation failed, or the picture cannot be written.
pub fn reproduce(args: &Reproduce) -> anyhow::Result<()> {
    let all = tables()?;
    let names: Vec<&str> = all.iter().map(|t| t.name.as_str()).collect();
    let chosen: Vec<&Table> = match &args.table {
        None => all.iter().collect(),
        Some(name) => {
            let found = all.iter().find(|t| t.name == *name).ok_or_else(|| {
                let remedy = format!("use one of {}", names.join(", "));
                SpecError::new("table", format!("there is no table \"{name}\""), remedy)
            })?;
            vec![found]
        }
    };
    args.svg.as_deref().map_or(Ok(()), picture::check)?;
    let seeds = |t: &Table| args.seeds.unwrap_or(t.seeds);
    let progress = Progress::new(chosen.iter().map(|t| seeds(t) * t.arm.len() as u64).sum())?;
    let mut rows = Vec::new();
    for table in &chosen {
        rows.extend(run(table, seeds(table), &progress.stop, &|_| progress.one())?);
        if progress.stopped() {
            break;
        }
    }
    drop(progress);
    if let Some(path) = &args.svg {
        picture::write(path, &svg(&rows))?;
    }
    let out =
        if args.json { format!("{}\n", serde_json::to_string_pretty(&rows)?) } else { text(&chosen, &rows) };
    print(out)
}

fn text(tables: &[&Table], rows: &[Row]) -> String {
    let mut out = String::new();
    for table in tables {
        let of: Vec<&Row> = rows.iter().filter(|r| r.table == table.name).collect();
        if of.is_empty() {
            continue;
        }
        let (seeds, s) = (of[0].seeds, if of[0].seeds == 1 { "" } else { "s" });
        let _ = writeln!(out, "{}: {}; mean of {seeds} seed{s}", table.name, table.title);
        let _ = writeln!(
            out,
            "  {:<44} {:>14} {:>14} {:>11} {:>12} {:>11}  holds",
            "", "published", "ours", "+- a run", "difference", "tolerance"
        );
        for r in &of {
            let digits = r.digits();
            let sd = if r.seeds > 1 { format!("{:.digits$}", r.sd) } else { "-".to_owned() };
            let _ = writeln!(
                out,
                "  {:<44} {:>14.digits$} {:>14.digits$} {sd:>11} {:>+12.digits$} {:>11.digits$}  {}",
                r.row,
                r.published,
                r.ours,
                r.difference,
                r.tolerance,
                match (r.holds, r.fitted) {
                    (true, false) => "yes",
                    (true, true) => "yes, fitted",
                    (false, false) => "NO",
                    (false, true) => "NO, fitted",
                }
            );
        }
        let count = |fitted: bool| {
            let all = of.iter().filter(|r| r.fitted == fitted);
            (all.clone().filter(|r| r.holds).count(), all.count())
        };
        let ((held, all), (held_fitted, all_fitted)) = (count(false), count(true));
        let _ = writeln!(
            out,
            "  {held} of {all} predictions hold, and {held_fitted} of {all_fitted} figures that parameters were fitted to"
        );
    }
    if out.is_empty() { "no table is done\n".to_owned() } else { out }
}
