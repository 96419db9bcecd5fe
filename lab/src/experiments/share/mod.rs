//! `lab share`: Redis beside a hog that fills DRAM and accesses all of it, all the time. Redis has
//! a share of DRAM, or has none, and the experiment measures what DRAM serves of its misses.

mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use clap::Args;
use serde::{Deserialize, Serialize};
use thermocline_lab::Machine;
use thermocline_lab::programs::write_json;

use crate::experiments::score::host::Host;
use crate::experiments::score::manager::Manager;
use crate::experiments::score::neighbour::Hog;
use crate::experiments::score::plan::{Narrowing, Plan, Workload};
use crate::experiments::score::row::Row;
use crate::experiments::score::share;
use crate::experiments::who::{self, Baseline};

/// DRAM and CXL. DRAM holds Redis and half as much again, and CXL all of Redis and what the hog
/// gives.
const MEMORY_MIB: [u64; 2] = [384, 512];
/// Largest Redis that leaves DRAM for a hog to compete for, MiB.
const REDIS_MIB_MAX: u64 = 256;

/// Runs under our daemon in which Redis has DRAM of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// As much DRAM as its share, and nobody is beside it.
    Alone,
    /// Its share of DRAM, which a hog fills.
    Shared,
}

impl Baseline for Own {
    const NAMES: &'static [(Own, &'static str)] = &[(Own::Alone, "alone"), (Own::Shared, "shared")];
    const MEANING: &'static str = "without the hog, and with a share under thermocline";
}

/// A row of the table. Beside a manager a hog fills DRAM, and nobody has a share.
type Who = who::Who<Own>;

fn manager(who: &Who) -> Manager {
    match who {
        Who::Baseline(_) => Manager::Thermocline { rule: None, settings: Vec::new() },
        Who::Managed(manager) => manager.clone(),
    }
}

/// A run and what it is called in the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cell {
    who: Who,
    row: Row,
}

/// Options of the experiment.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    host: Host,
    /// Rows of the table: alone, where Redis has as much DRAM as its share to itself; shared, where
    /// it has that share beside the hog; and managers beside the hog as `lab score` takes them.
    #[arg(
        long,
        value_name = "MANAGER,...",
        value_delimiter = ',',
        default_value = "alone,none,numab2,thermocline,shared"
    )]
    managers: Vec<Who>,
    /// How the hog accesses its memory.
    #[arg(long, value_enum, default_value = "uniform")]
    hog: Hog,
    /// Redis' share of DRAM, as a part of its memory.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    share: f64,
    /// Keys in Redis.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Bytes of each value.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    value_bytes: u32,
    /// Exponent of the keys' popularity.
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    /// Reads under the manager before anything is measured.
    #[arg(long, value_name = "N", default_value_t = 600_000)]
    warmup_ops: u64,
    /// Reads that are measured.
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// Seed of the load; repeats count on from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs of each row, each on a fresh machine with its own seed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Write the runs here as JSON, a list with an object for each.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs every row and prints the table; if the experiment fails or is interrupted, that of the runs
/// until then.
pub(crate) fn run(options: &Options, interrupt: &Arc<AtomicBool>) -> anyhow::Result<u8> {
    let redis_mib = options.plan(&Who::Baseline(Own::Alone), options.seed)?.footprint_bytes() >> 20;
    ensure!(
        redis_mib <= REDIS_MIB_MAX,
        "Redis would take {redis_mib} MiB, more than {REDIS_MIB_MAX}: give it fewer --keys or smaller --value-bytes"
    );
    for who in &options.managers {
        manager(who).check(&options.host.thermocline)?;
    }
    let mut cells: Vec<Cell> = Vec::new();
    let ran = options.run_all(interrupt, &mut cells);
    if !cells.is_empty() {
        print!("{}", table::text(&cells, options.share));
        if let Some(path) = &options.json {
            write_json(path, &cells)?;
        }
    }
    ran.map(|()| 0)
}

impl Options {
    fn run_all(&self, interrupt: &Arc<AtomicBool>, cells: &mut Vec<Cell>) -> anyhow::Result<()> {
        let machine = Machine::of_sizes(&MEMORY_MIB.map(|mib| mib << 20));
        // Repeat by repeat, so that what changes on the host in the meantime is shared by all.
        for repeat in 0..u64::from(self.repeats) {
            for who in &self.managers {
                let seed = self.seed + repeat;
                eprintln!("{who}, seed {seed}");
                let row =
                    self.host.run(&machine, &self.plan(who, seed)?, &format!("{who}-{seed}"), interrupt)?;
                eprintln!("{}", row.text());
                cells.push(Cell { who: who.clone(), row });
            }
        }
        Ok(())
    }

    fn plan(&self, who: &Who, seed: u64) -> anyhow::Result<Plan> {
        let (narrowing, fast_share) = match who {
            Who::Baseline(Own::Alone) => (Narrowing::Reserve, self.share),
            Who::Baseline(Own::Shared) | Who::Managed(_) => (Narrowing::Hog(self.hog), 0.0),
        };
        let plan = Plan {
            seed,
            warmup_ops: self.warmup_ops,
            ops: self.ops,
            fast_share,
            narrowing,
            keys: self.keys,
            value_bytes: self.value_bytes as usize,
            zipf: self.zipf,
            ..Plan::of(Workload::Redis, manager(who), self.host.model.model()?)
        };
        let share_mib = (plan.footprint_bytes() as f64 * self.share) as u64 >> 20;
        Ok(Plan { share_mib: (*who == Who::Baseline(Own::Shared)).then_some(share_mib), ..plan })
    }
}
