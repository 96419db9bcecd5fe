//! `thermocline sweep`: runs every combination of a grid, shard by shard, into a folder.

mod draw;
mod folder;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::anyhow;
use thermocline_sim::picture::curves;
use thermocline_sim::scenario::Scenario;
use thermocline_sim::spec::SpecError;
use thermocline_sim::sweep::{Grid, Plan, Row, Source, Sweep as Runs};

use crate::args::Sweep;
use crate::output::{print, tell};
use crate::progress::{Progress, shown_while};
use crate::verb::{load, picture};
use folder::Folder;

/// Exit status of a sweep ended by Ctrl-C, so that a scheduler does not take it as done.
const EXIT_STOPPED: u8 = 130;

/// Runs a shard, or merges the parts of all shards.
///
/// # Errors
/// The grid cannot be run, the folder belongs to another grid or cannot be written, runs are
/// missing, or the simulation failed.
pub fn sweep(args: &Sweep) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.merge {
        merge(folder, args.svg.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (Some(grid), Some(out)) = (&args.grid, &args.out) else {
        return Err(anyhow!("give a grid and --out DIR, or --merge DIR"));
    };
    let sweep = load(grid, args.machine.as_deref())?;
    if let Some(path) = &args.svg {
        picture::check(path)?;
        draw::check(&sweep.plan)?;
    }
    let folder = Folder::create(out, &sweep.plan)?;
    let journal = folder.journal(args.shard)?;
    let mine: BTreeSet<u64> = args.shard.runs(&sweep.plan).collect();
    let mut before = folder.done()?;
    before.retain(|run, _| mine.contains(run));
    let left: Vec<u64> = mine.iter().copied().filter(|run| !before.contains_key(run)).collect();
    let already = before.len();

    let progress = Progress::new(left.len() as u64)?;
    let rows = Mutex::new((journal, before));
    sweep.run(&left, &progress.stop, &|run, row| {
        // A panic while the lock was held has ended the program's work anyway.
        let mut rows = rows.lock().unwrap_or_else(|e| e.into_inner());
        rows.0.append(run, &row)?;
        rows.1.insert(run, row);
        progress.one();
        Ok::<(), anyhow::Error>(())
    })?;
    drop(progress);
    let (journal, rows) = rows.into_inner().unwrap_or_else(|e| e.into_inner());
    let of = mine.len();
    if rows.len() < of {
        print(format_args!(
            "{} of {of} runs of shard {} are done and kept; the same command goes on\n",
            rows.len(),
            args.shard
        ))?;
        return Ok(ExitCode::from(EXIT_STOPPED));
    }
    let part = folder.part(args.shard);
    if !left.is_empty() || !part.exists() {
        folder.write(&part, &rows)?;
    }
    journal.remove()?;
    if let Some(path) = &args.svg {
        draw(path, &sweep.plan, &folder.done()?)?;
    }
    let (part, shard) = (part.display(), &args.shard);
    print(format_args!("{part}: {of} runs of shard {shard}, {already} of them done before\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Loads the grid in a file. Files of scenarios are looked up in the same folder, those of machines
/// beside the scenario that is to run on them.
fn load(path: &Path, machine: Option<&str>) -> anyhow::Result<Runs> {
    let name = path.display().to_string();
    let text = load::read(path)?;
    let grid = load::ours(&name, &text, Grid::parse(&name, &text))?;
    let instead = machine.map(|machine| load::machine(machine, Path::new(""))).transpose()?;
    if instead.is_some() && grid.machines().next().is_some() {
        let place = format!("{name}: parameters.machine");
        return Err(
            SpecError::new(place, "has no effect beside --machine", "leave one of the two out").into()
        );
    }
    let source = |scenario: &String| -> Result<Source, SpecError> {
        let beside = path.parent().unwrap_or(Path::new("")).join(scenario);
        let text = load::scenario_text(scenario, &beside)?;
        let read = thermocline_sim::spec::parse::<Scenario>(scenario, &text);
        let named = load::ours(scenario, &text, read)?.machine;
        // A preset has no folder: the grid's counts.
        let folder = beside.parent().unwrap_or(Path::new(""));
        let mut machines = BTreeMap::new();
        for name in grid.machines().chain([named.as_str()]).filter(|name| load::is_machine_file(name)) {
            if instead.is_none() {
                machines.insert(name.to_owned(), load::machine(name, folder)?);
            }
        }
        Ok(Source { name: scenario.clone(), text, machine: instead.clone(), machines })
    };
    let sources = grid.scenarios.iter().map(source).collect::<Result<Vec<Source>, SpecError>>()?;
    // This takes long if there are many configurations.
    let checked =
        shown_while("checking every configuration of the grid", || Runs::new(&name, &grid, sources));
    Ok(checked?)
}

/// Maximum number of missing runs that are named. The message counts the others.
const NAMED_MAX: usize = 5;

/// Draws the runs, once all are done.
fn draw(path: &Path, plan: &Plan, rows: &BTreeMap<u64, Row>) -> anyhow::Result<()> {
    if (rows.len() as u64) < plan.runs() {
        tell!(
            "{}: not drawn, since other shards are not done; `--merge DIR --svg FILE` draws",
            path.display()
        );
        return Ok(());
    }
    draw::sweep(plan, rows).map_or(Ok(()), |sweep| picture::write(path, &curves(&sweep)))
}

fn merge(path: &Path, svg: Option<&Path>) -> anyhow::Result<()> {
    let folder = Folder::open(path)?;
    if let Some(svg) = svg {
        picture::check(svg)?;
        draw::check(&folder.plan)?;
    }
    let rows: BTreeMap<u64, Row> = folder.done()?;
    let plan = &folder.plan;
    let missing: Vec<u64> = (0..plan.runs()).filter(|run| !rows.contains_key(run)).collect();
    if !missing.is_empty() {
        let named: Vec<String> = missing.iter().take(NAMED_MAX).map(|run| plan.words(*run)).collect();
        let more = missing.len() - named.len();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let message =
            format!("{} of {} runs are missing: {}{more}", missing.len(), plan.runs(), named.join("; "));
        let remedy = "run the shards that are not done with the same command again";
        return Err(SpecError::new(path.display().to_string(), message, remedy).into());
    }
    let merged = path.join("sweep.parquet");
    folder.write(&merged, &rows)?;
    if let Some(svg) = svg {
        draw(svg, plan, &rows)?;
    }
    print(format_args!("{}: {} runs\n", merged.display(), rows.len()))
}
