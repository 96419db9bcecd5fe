//! Sweeps: every combination of a grid, shard by shard, into a folder.

mod folder;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use thermocline_sim::scenario::Scenario;
use thermocline_sim::spec::SpecError;
use thermocline_sim::sweep::{Grid, Row, Shard, Source, Sweep as Runs};

use crate::load;
pub use folder::{Folder, Journal, program};

/// A shard whose journal is locked by this process.
pub struct Begun<'a> {
    folder: &'a Folder,
    shard: Shard,
    journal: Journal,
    rows: BTreeMap<u64, Row>,
    left: Vec<u64>,
    runs: usize,
}

/// What became of a shard.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its part.
    pub part: PathBuf,
    /// Its runs.
    pub runs: usize,
    /// Those of them that are done and kept; all, unless it was stopped.
    pub done: usize,
    /// Those that were done before.
    pub before: usize,
}

impl<'a> Begun<'a> {
    /// Begins with a shard, or goes on with it.
    ///
    /// # Errors
    /// Another process is running it, or what is in the folder cannot be used.
    pub fn new(folder: &'a Folder, shard: Shard) -> anyhow::Result<Begun<'a>> {
        let journal = folder.journal(shard)?;
        let mine: BTreeSet<u64> = shard.runs(&folder.plan).collect();
        let mut rows = folder.done()?;
        rows.retain(|run, _| mine.contains(run));
        let left = mine.iter().copied().filter(|run| !rows.contains_key(run)).collect();
        Ok(Begun { folder, shard, journal, rows, left, runs: mine.len() })
    }

    /// Runs that are left.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// Does what is left until `stop` is set, with `one` after each run.
    ///
    /// # Errors
    /// The simulation failed, or the folder cannot be written.
    pub fn run(self, runs: &Runs, stop: &AtomicBool, one: &(dyn Fn() + Sync)) -> anyhow::Result<Done> {
        let before = self.rows.len();
        let rows = Mutex::new((self.journal, self.rows));
        runs.run(&self.left, stop, &|run, row| {
            // A panic while the lock was held has ended the program's work anyway.
            let mut rows = rows.lock().unwrap_or_else(|e| e.into_inner());
            rows.0.append(run, &row)?;
            rows.1.insert(run, row);
            one();
            Ok::<(), anyhow::Error>(())
        })?;
        let (journal, rows) = rows.into_inner().unwrap_or_else(|e| e.into_inner());
        let part = self.folder.part(self.shard);
        let done = Done { part: part.clone(), runs: self.runs, done: rows.len(), before };
        if done.done == done.runs {
            if !self.left.is_empty() || !part.exists() {
                self.folder.write(&part, &rows)?;
            }
            journal.remove()?;
        }
        Ok(done)
    }
}

/// Loads the grid in a file. Files of scenarios are looked up in the same folder, those of machines
/// beside the scenario that is to run on them.
///
/// # Errors
/// The grid cannot be run.
pub fn load(path: &Path, machine: Option<&str>) -> Result<Runs, SpecError> {
    let name = path.display().to_string();
    let text = load::read(path)?;
    let grid = load::ours(&name, &text, Grid::parse(&name, &text))?;
    let instead = machine.map(|machine| load::machine(machine, Path::new(""))).transpose()?;
    if instead.is_some() && grid.machines().next().is_some() {
        let place = format!("{name}: parameters.machine");
        return Err(SpecError::new(place, "has no effect beside --machine", "leave one of the two out"));
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
    Runs::new(&name, &grid, sources)
}

/// Maximum number of missing runs that are named. The message counts the others.
const NAMED_MAX: usize = 5;

/// Puts the parts in a folder together; gives the file and its rows.
///
/// # Errors
/// Runs are missing, or a part cannot be used.
pub fn merge(folder: &Folder, path: &Path) -> anyhow::Result<(PathBuf, BTreeMap<u64, Row>)> {
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
    Ok((merged, rows))
}
