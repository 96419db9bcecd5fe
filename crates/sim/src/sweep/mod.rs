//! Sweeps: every combination of parameters, scenarios, managers and seeds.
//!
//! ```text
//!  grid (TOML) ──▶ Sweep ──▶ Plan: the configurations, each with its hash, and the columns of the results
//!                    │
//!                    └──▶ run(numbers of runs) ──▶ a row of figures a run
//! ```
//!
//! A run is a configuration and a seed. Runs are numbered: seeds first, then managers, parameters,
//! scenarios. A shard has every N-th of them, so that shards take about equally long. A row depends
//! only on configuration and seed, so it does not matter which process made it, or when. The caller
//! stores the rows.

mod grid;
mod plan;
mod row;

pub use grid::Grid;
pub use plan::{Column, Configuration, KEYS, Kind, Plan, Shard, Value, hash};
pub use row::Row;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;

use crate::effect;
use crate::machine::{self, MachineSpec};
use crate::manager::ManagerName;
use crate::mode::ModeName;
use crate::run::{Arm, RunError, mode_for, run_until};
use crate::scenario::Setup;
use crate::spec::SpecError;

/// Maximum number of runs of a sweep: their rows are merged in memory, about a kilobyte each.
pub const RUNS_MAX: u64 = 1_000_000;

/// A sweep that is ready to run.
#[derive(Debug)]
pub struct Sweep {
    /// What is run, and the columns of the results.
    pub plan: Plan,
    sources: Vec<Source>,
    /// One per configuration of the plan.
    arms: Vec<ConfigArm>,
}

/// A scenario's text.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in the grid.
    pub name: String,
    /// Its TOML.
    pub text: String,
    /// The machine that takes the place of the one that it names.
    pub machine: Option<MachineSpec>,
    /// The machines that it or the grid names and that are no presets.
    pub machines: BTreeMap<String, MachineSpec>,
}

/// The run of a configuration.
#[derive(Debug)]
struct ConfigArm {
    source: usize,
    changes: Vec<String>,
    manager: ManagerName,
    mode: ModeName,
}

impl Sweep {
    /// The sweep over a grid; `sources` are the texts of its scenarios, in their order. errors call
    /// the grid `name`. Every configuration is checked.
    ///
    /// # Errors
    /// The grid is too large, or one of its configurations cannot be simulated or is duplicated.
    pub fn new(name: &str, grid: &Grid, sources: Vec<Source>) -> Result<Sweep, SpecError> {
        let choices = grid.choices(name)?;
        let columns = choices.columns();
        let managers = grid.managers(name)?;
        let arms_each = managers.len().max(1) as u64;
        let configurations =
            choices.combinations.saturating_mul(sources.len() as u64).saturating_mul(arms_each);
        grid.check_size(name, configurations)?;
        // One deterministic error: that of the first configuration that has one.
        let groups: Vec<(usize, u64)> =
            (0..sources.len()).flat_map(|s| (0..choices.combinations).map(move |c| (s, c))).collect();
        let checked: Vec<Result<Checked, SpecError>> = groups
            .par_iter()
            .map(|(source, combination)| {
                let changes = choices.changes(*combination);
                let located = |e: SpecError| {
                    let with = if changes.is_empty() {
                        String::new()
                    } else {
                        format!(" with {}", changes.join(", "))
                    };
                    let place = format!("{name}: {}{with}: {}", sources[*source].name, e.place);
                    SpecError { place, ..e }
                };
                let setup = setup(&sources[*source], &changes).map_err(located)?;
                let mode = grid.mode(mode_for(&setup));
                let of_scenario = [setup.manager];
                let managers = if managers.is_empty() { &of_scenario[..] } else { &managers };
                let keys: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
                effect::check(&setup, managers, &keys).map_err(located)?;
                let hashes = managers.iter().map(|m| (*m, plan::config_hash(&setup, *m, mode))).collect();
                Ok(Checked { columns: row::columns(&setup), mode, hashes })
            })
            .collect();
        let mut plan = Plan {
            parameters: columns,
            figures: Vec::new(),
            configurations: Vec::new(),
            seed: grid.seed,
            seeds: grid.seeds,
        };
        let (mut arms, mut named) = (Vec::new(), HashSet::new());
        for ((source, combination), checked) in groups.into_iter().zip(checked) {
            let checked = checked?;
            for column in checked.columns {
                if named.insert(column.name.clone()) {
                    plan.figures.push(column);
                }
            }
            for (manager, hash) in checked.hashes {
                plan.configurations.push(Configuration {
                    hash,
                    scenario: sources[source].name.clone(),
                    manager: manager.text(),
                    mode: checked.mode,
                    values: choices.values(combination),
                });
                let changes = choices.changes(combination);
                arms.push(ConfigArm { source, changes, manager, mode: checked.mode });
            }
        }
        plan.check(name)?;
        Ok(Sweep { plan, sources, arms })
    }

    /// Runs the runs of these numbers, on all cores, until `stop` is set; `done` is called with
    /// each, in any order.
    ///
    /// # Errors
    /// The first run that failed, or the error of `done`.
    pub fn run<E: From<RunError> + Send>(
        &self,
        runs: &[u64],
        stop: &AtomicBool,
        done: &(dyn Fn(u64, Row) -> Result<(), E> + Sync),
    ) -> Result<(), E> {
        let columns: HashMap<&str, usize> =
            self.plan.figures.iter().enumerate().map(|(i, c)| (c.name.as_str(), i)).collect();
        runs.par_iter().try_for_each(|run| {
            let (configuration, seed) = self.plan.run(*run);
            let arm = &self.arms[configuration];
            let setup =
                setup(&self.sources[arm.source], &arm.changes).map_err(|e| E::from(RunError::Spec(e)))?;
            let one = Arm { manager: arm.manager, mode: arm.mode, seed };
            match run_until(&setup, one, stop).map_err(E::from)? {
                Some(report) => done(*run, row::row(&report, &columns)),
                None => Ok(()),
            }
        })
    }
}

/// A scenario with a combination of parameters that can be simulated.
struct Checked {
    /// The columns that its rows fill.
    columns: Vec<Column>,
    mode: ModeName,
    /// The hash of its configuration with each manager.
    hashes: Vec<(ManagerName, String)>,
}

fn setup(source: &Source, changes: &[String]) -> Result<Setup, SpecError> {
    let machines = |named: &str| match source.machine.as_ref().or_else(|| source.machines.get(named)) {
        Some(spec) => Ok(spec.clone()),
        None => machine::preset(named),
    };
    Setup::parse_on(&format!("scenario {}", source.name), &source.text, &machines, changes)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::scenario::PRESETS;

    const HEAD: &str = "scenarios = [\"chunks-small\"]\nseeds = 2\n";
    const QUICK: &str = "[parameters]\nprocess.0.footprint = [\"64MiB\"]\nprocess.0.pattern.chunk = [\"4MiB\"]\n\
        process.0.pattern.visits = [5]\nprocess.0.pattern.accesses_per_page = [10, 12.5]\n";

    fn sweep(text: &str) -> Result<Sweep, SpecError> {
        let grid = Grid::parse("g.toml", text)?;
        let mine = MachineSpec { name: "mine".to_owned(), ..machine::preset("3tier")? };
        let source = |name: &String| {
            let machines = BTreeMap::from([("mine.toml".to_owned(), mine.clone())]);
            Ok(Source { name: name.clone(), text: Setup::text(name)?.to_owned(), machine: None, machines })
        };
        let sources = grid.scenarios.iter().map(source).collect::<Result<_, SpecError>>()?;
        Sweep::new("g.toml", &grid, sources)
    }

    fn rows(sweep: &Sweep, runs: &[u64]) -> Vec<(u64, Row)> {
        let rows = Mutex::new(Vec::new());
        let keep = |run, row| {
            rows.lock().unwrap().push((run, row));
            Ok::<(), RunError>(())
        };
        sweep.run(runs, &AtomicBool::new(false), &keep).unwrap();
        let mut rows = rows.into_inner().unwrap();
        rows.sort_by_key(|(run, _)| *run);
        rows
    }

    #[test]
    fn every_combination_is_run_once_by_some_shard_with_the_same_result() {
        let text = format!("{HEAD}managers = [\"none\", \"numab2\"]\n{QUICK}");
        let sweep = sweep(&text).unwrap();
        assert_eq!((sweep.plan.configurations.len(), sweep.plan.runs()), (4, 8));
        let kinds: Vec<Kind> = sweep.plan.parameters.iter().map(|p| p.kind).collect();
        assert_eq!(kinds, [Kind::Text, Kind::Real, Kind::Text, Kind::Whole], "by key");
        let all = rows(&sweep, &(0..8).collect::<Vec<_>>());
        let mut sharded = Vec::new();
        for shard in ["2/3", "3/3", "1/3"] {
            let runs: Vec<u64> = shard.parse::<Shard>().unwrap().runs(&sweep.plan).collect();
            sharded.extend(rows(&sweep, &runs));
        }
        sharded.sort_by_key(|(run, _)| *run);
        assert_eq!(all, sharded);
        let time = sweep.plan.figures.iter().position(|c| c.name == "time_s").unwrap();
        assert!(all.iter().all(|(_, row)| matches!(row[time], Some(Value::Real(s)) if s > 0.0)));
        assert_eq!(
            sweep.plan.words(3),
            "chunks-small under numab2, process.0.pattern.accesses_per_page = 10, seed 2"
        );
    }

    #[test]
    fn scenarios_need_not_have_the_same_nodes_and_processes() {
        let plan =
            sweep("scenarios = [\"hotcold\", \"redis\"]\nseeds = 1\nmanagers = [\"none\"]\n").unwrap().plan;
        let named = |name: &str| plan.figures.iter().filter(|c| c.name == name).count();
        for name in
            ["time_s", "slowdown", "numa_hint_faults", "node_0_used_pages", "process_hotcold_node_1_pages"]
        {
            assert_eq!(named(name), 1, "{name}");
        }
    }

    #[test]
    fn machines_of_ones_own_are_a_parameter_like_others() {
        let head = "scenarios = [\"hotcold\"]\nseeds = 1\nmanagers = [\"none\"]\n[parameters]\n";
        let plan = sweep(&format!("{head}machine = [\"cxl-2tier\", \"mine.toml\"]\n")).unwrap().plan;
        assert_eq!(plan.configurations.len(), 2);
        let figure = |name: &str| plan.figures.iter().any(|c| c.name == name);
        assert!(figure("node_2_used_pages"), "the third node is there on one of them");
        let error = sweep(&format!("{head}machine = [\"lost.toml\"]\n")).unwrap_err().to_string();
        assert!(error.contains("no machine \"lost.toml\""), "{error}");
    }

    #[test]
    fn a_configuration_is_known_by_its_content() {
        for (name, _) in PRESETS {
            let setup = Setup::preset(name, &[]).unwrap();
            let hash = |setup: &Setup| plan::config_hash(setup, ManagerName::None, ModeName::Event);
            let mut described = setup.clone();
            described.scenario.summary = "other words".to_owned();
            described.scenario.origin.clear();
            assert_eq!(hash(&setup), hash(&described), "{name}");
            let mut changed = setup.clone();
            changed.machine.spec.cost.migrate_ns += 1.0;
            assert_ne!(hash(&setup), hash(&changed), "{name}");
        }
        // The reference's values.
        assert_eq!(hash(b""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(hash(b"a"), "d228cb696f1a8caf78912b704e4a8964");
    }

    #[test]
    fn a_grid_that_cannot_be_run_is_one_error_with_place_and_remedy() {
        let long: String = (0..2000).map(|i| format!("{i},")).collect();
        for (text, place, said) in [
            ("seeds = 1\n".to_owned(), "g.toml:1", "missing field `scenarios`"),
            ("scenarios = []\nseeds = 1\n".to_owned(), "g.toml: scenarios", "there is none"),
            (HEAD.replace('2', "0"), "g.toml: seeds", "is zero"),
            (format!("{HEAD}seed = 9223372036854775807\n"), "g.toml: seed", "too large"),
            (format!("{HEAD}sceds = 3\n"), "g.toml:3", "unknown field `sceds`"),
            (format!("{HEAD}managers = [\"numab3\"]\n"), "g.toml: managers", "no manager"),
            (format!("{HEAD}managers = [\"ibs\", \"ibs\"]\n"), "g.toml: managers", "ibs twice"),
            (HEAD.replace(']', ", \"chunks-small\"]"), "g.toml: scenarios", "chunks-small twice"),
            (format!("{HEAD}[parameters]\nlimit = []\n"), "g.toml: parameters.limit", "no values"),
            (format!("{HEAD}[parameters]\nlimit = \"1min\"\n"), "g.toml: parameters.limit", "no list"),
            (format!("{HEAD}[parameters]\nprocess.0.threads = [2, 2]\n"), "process.0.threads", "2 twice"),
            (
                format!("{HEAD}[parameters]\nprocess.0.footprint = [\"1GiB\", \"1024MiB\"]\n"),
                "g.toml",
                "is the same as",
            ),
            (format!("{HEAD}[parameters]\nprocess.0.threads = [1, 0]\n"), "process[0].threads", "is zero"),
            (
                format!("{HEAD}[parameters]\nprocess.0.threats = [1]\n"),
                "chunks-small with process.0.threats=1",
                "unknown",
            ),
            (format!("{HEAD}[parameters]\nmanager = [\"none\", \"ibs\"]\n"), "parameters", "named manager"),
            (
                format!("{HEAD}[parameters]\nconfig.rule.name = [\"latency\", \"adaptive\"]\n"),
                "chunks-small with config.rule.name=",
                "has no effect under numab2",
            ),
            (format!("{HEAD}[parameters]\na = [{long}]\nb = [{long}]\n"), "g.toml", "4000000 configurations"),
            (
                format!(
                    "{HEAD}[parameters]\n{}",
                    (0..9).map(|i| format!("p{i} = [{long}]\n")).collect::<String>()
                ),
                "g.toml",
                "more than 1000000 runs",
            ),
        ] {
            let error = sweep(&text).unwrap_err();
            assert!(error.place.contains(place) && error.message.contains(said), "{place}: {error}");
            assert!(!error.remedy.is_empty());
        }
        assert!(Grid::parse("g.toml", &"#".repeat(100 << 20)).is_err());
        for text in ["0/3", "4/3", "3", "1/0", "a/b", "-1/3", "1/100001"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
