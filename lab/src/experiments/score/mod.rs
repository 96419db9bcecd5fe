//! `lab score` and `lab compare`: a program under a manager, judged by the plugin.

mod behind;
mod compare;
pub(crate) mod counted;
mod database;
pub(crate) mod felt;
mod flips;
pub(crate) mod host;
mod inside;
pub(crate) mod manager;
pub(crate) mod model;
pub(crate) mod neighbour;
pub(crate) mod plan;
pub(crate) mod program;
pub(crate) mod row;
pub(crate) mod running;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use clap::Args;
use thermocline_lab::Machine;
use thermocline_lab::programs::{read_json, write_json};

use super::runner::Inside;
use felt::Asked;
use host::Host;
use manager::Manager;
use plan::{Plan, Start, Workload};
use row::Row;

/// DRAM and CXL. 256 MiB is the least that boots; the part that the system leaves free is about a
/// third of the programs.
const MEMORY_MIB: [u64; 2] = [256, 768];

/// Options common to all runs.
#[derive(Clone, Debug, Args)]
struct Common {
    /// The program.
    #[arg(value_enum)]
    workload: Workload,
    /// Where the program's memory is when the manager starts: first-touch fills DRAM first, slow
    /// leaves it free.
    #[arg(long, value_enum, default_value = "first-touch")]
    start: Start,
    /// Operations under the manager before anything is measured (default: 1,500,000 reads; 120,000
    /// transactions of PostgreSQL, 5,000 of MariaDB; 100,000,000 accesses, updates or edges,
    /// 40,000,000 with --felt).
    #[arg(long, value_name = "N")]
    warmup_ops: Option<u64>,
    /// Operations that are measured (default: 300,000 reads; 30,000 transactions, 2,500; 30,000,000
    /// accesses, 10,000,000 with --felt).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Seed of the load; repeats count on from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// DRAM that the program shall have, as a share of its memory. What is more is taken away at
    /// the start.
    #[arg(long, value_name = "SHARE", default_value_t = 0.333, value_parser = share)]
    fast_share: f64,
    /// Memory of hotcold and gups, MiB.
    #[arg(long, default_value_t = 408)]
    mib: u32,
    /// Binary logarithm of the vertices of bfs' and bc's graph, with 16 edges each.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(12..=26))]
    graph_scale: u32,
    /// Accesses a second of hotcold at most; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rate: u64,
    /// Keys in a server.
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Bytes of each value.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    value_bytes: u32,
    /// Size of a database, about 15 MiB each: the scale of pgbench, 65,000 rows of sysbench.
    #[arg(long, value_name = "N", default_value_t = 26, value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,
    /// Exponent of the keys' popularity; pgbench takes 1.1 at the least.
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    /// Keep the guest waiting for each modelled miss, for CXL this many times as long as for DRAM
    /// (2.5 if no number is given), and report how much slower the program got than with all in
    /// DRAM.
    #[arg(long, value_name = "RATIO", num_args = 0..=1, require_equals = true, default_missing_value = "2.5", value_parser = ratio)]
    felt: Option<f64>,
    /// What the guest waits for DRAM, as a multiple of what the model has for it.
    #[arg(long, value_name = "FACTOR", default_value_t = 10.0, value_parser = ratio, requires = "felt")]
    felt_scale: f64,
    /// For a manager that reads the lab's sampler: about every Nth access of the guest is tagged,
    /// and becomes a sample if it misses.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    sample_every: u64,
    #[command(flatten)]
    host: Host,
}

/// How one run is to be.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Who places pages: none, numab2, `damon[+KEY=VALUE]...`, or
    /// `thermocline[:RULE][+KEY=VALUE]...`, as in
    /// `thermocline:latency+kernel.demotion_enabled=true`.
    #[arg(long, default_value = "thermocline")]
    manager: Manager,
    /// Print the row as JSON.
    #[arg(long)]
    json: bool,
}

/// How a comparison is to be.
#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    #[command(flatten)]
    common: Common,
    /// Managers, as `lab score` takes them.
    #[arg(
        long,
        value_name = "MANAGER,...",
        value_delimiter = ',',
        default_value = "none,numab2,thermocline"
    )]
    managers: Vec<Manager>,
    /// Runs of each manager, each on a fresh machine with a seed of its own.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    repeats: u32,
    /// Write the summaries here as JSON, a list with an object for each manager.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also take these rows, written by `lab score --json`; with --repeats 0 nothing else.
    #[arg(long, value_name = "FILE")]
    rows: Vec<PathBuf>,
}

/// Runs in the guest.
pub(crate) fn inside(inside: &Inside) -> anyhow::Result<u8> {
    inside::run(&inside.folder, &inside.thermocline)?;
    Ok(0)
}

/// Runs one manager and prints its row.
pub(crate) fn score(options: &Options, interrupt: &Arc<AtomicBool>) -> anyhow::Result<u8> {
    let Options { common, manager, .. } = options;
    manager.check(&common.host.thermocline)?;
    let row = common.run(manager, common.seed, interrupt)?;
    if options.json {
        println!("{}", serde_json::to_string(&row)?);
    } else {
        print!("{}{}", row.text(), CAVEAT);
    }
    Ok(0)
}

/// Runs all managers in turn, as often as asked, and prints the table; if a comparison fails or is
/// interrupted, of the runs until then.
pub(crate) fn compare(options: &CompareOptions, interrupt: &Arc<AtomicBool>) -> anyhow::Result<u8> {
    let mut rows: Vec<Row> = options.rows.iter().map(|path| read_json(path)).collect::<Result<_, _>>()?;
    compare::alike(&rows)?;
    let managers = if options.repeats > 0 { options.managers.as_slice() } else { &[] };
    for manager in managers {
        manager.check(&options.common.host.thermocline)?;
    }
    let ran = options.run_all(managers, interrupt, &mut rows);
    if !rows.is_empty() {
        let heading = compare::heading(&rows);
        let summaries = compare::summaries(rows);
        print!("{heading}{}{}{}", compare::table(&summaries), compare::ranking(&summaries), CAVEAT);
        if let Some(path) = &options.json {
            write_json(path, &summaries)?;
        }
    }
    ran.map(|()| 0)
}

impl CompareOptions {
    fn run_all(
        &self,
        managers: &[Manager],
        interrupt: &Arc<AtomicBool>,
        rows: &mut Vec<Row>,
    ) -> anyhow::Result<()> {
        ensure!(!managers.is_empty() || !rows.is_empty(), "nothing to compare: --repeats 0 needs --rows");
        // Repeat by repeat, so that changes on the host affect all managers equally.
        for repeat in 0..u64::from(self.repeats) {
            for manager in managers {
                let row = self.common.run(manager, self.common.seed + repeat, interrupt)?;
                eprintln!("{}", row.text());
                rows.push(row);
                if let Err(error) = compare::alike(rows) {
                    // The table then has the others.
                    rows.pop();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// The meaning and limits of the figures.
const CAVEAT: &str = "Slowdown is modelled: no miss overlaps another. Under emulation no node is slower than another, so no figure here says how fast\n\
    a manager makes a program. The program's memory and the cache are scaled down for the emulator's pace; time constants are everybody's own.\n";

fn machine() -> Machine {
    Machine::of_sizes(&MEMORY_MIB.map(|mib| mib << 20))
}

impl Common {
    fn plan(&self, manager: &Manager, seed: u64) -> anyhow::Result<Plan> {
        let (warmup_ops, ops) = match (self.workload, self.felt) {
            (Workload::Redis | Workload::Memcached, _) => (1_500_000, 300_000),
            (Workload::PostgreSql, _) => (120_000, 30_000),
            (Workload::MariaDb, _) => (5_000, 2_500),
            (Workload::Hotcold | Workload::Gups | Workload::Bfs | Workload::Bc, None) => {
                (100_000_000, 30_000_000)
            }
            // These do little but miss, so delays make them several times slower.
            (Workload::Hotcold | Workload::Gups | Workload::Bfs | Workload::Bc, Some(_)) => {
                (40_000_000, 10_000_000)
            }
        };
        Ok(Plan {
            start: self.start,
            seed,
            warmup_ops: self.warmup_ops.unwrap_or(warmup_ops),
            ops: self.ops.unwrap_or(ops),
            fast_share: self.fast_share,
            mib: self.mib,
            graph_scale: self.graph_scale,
            rate: self.rate,
            keys: self.keys,
            value_bytes: self.value_bytes as usize,
            scale: self.scale,
            zipf: self.zipf,
            sample_every: manager.reads_samples().then_some(self.sample_every),
            felt: self.felt.map(|ratio| Asked {
                ratio,
                dram_ns: f64::from(machine().nodes[0].latency_ns) * self.felt_scale,
            }),
            ..Plan::of(self.workload, manager.clone(), self.host.model.model()?)
        })
    }

    /// One run on a fresh machine.
    fn run(&self, manager: &Manager, seed: u64, interrupt: &Arc<AtomicBool>) -> anyhow::Result<Row> {
        let log = format!("{manager}-{seed}");
        self.host.run(&machine(), &self.plan(manager, seed)?, &log, interrupt)
    }
}

/// Formats lines of cells as columns, the first one left-aligned.
pub(crate) fn columns(lines: &[Vec<String>]) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..first.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A share from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is not a share from 0 to 1")),
    }
}

/// A number from 1 to 100.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio) if (1.0..=100.0).contains(&ratio) => Ok(ratio),
        _ => Err(format!("`{text}` is not a number from 1 to 100")),
    }
}
