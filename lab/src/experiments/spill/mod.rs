//! `lab spill`: the experiment of S3. Cold ballast fills DRAM, Redis is filled next and spills to
//! CXL, and the experiment measures how much slower than in DRAM alone Redis is under each manager.

mod cell;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use clap::Args;
use thermocline_lab::Machine;
use thermocline_lab::programs::keys::Distribution;
use thermocline_lab::programs::{read_json, write_json};

use cell::{Cell, Only, Who};

use crate::experiments::score::felt::Asked;
use crate::experiments::score::host::Host;
use crate::experiments::score::plan::{Narrowing, Plan, Start, Workload};
use crate::experiments::score::{ratio, share};

/// Memory comes in blocks of this size, which the kernel brings online as a whole.
const BLOCK_MIB: u64 = 128;
/// Ratio of DRAM and CXL to Redis' memory. S3 has 512 GB and 96 GB for 85 GB; that much DRAM would
/// be mostly filled with ballast.
const MEMORY_TO_REDIS: [f64; 2] = [2.5, 1.25];
/// Upper limit of Redis' size, so that the machine stays small, MiB.
const REDIS_MIB_MAX: u64 = 2048;

/// Options of the experiment.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    host: Host,
    /// Which keys are read most, as YCSB has it: zipfian, anywhere in memory, or latest, those that
    /// were set last.
    #[arg(
        long,
        value_enum,
        value_name = "LOAD,...",
        value_delimiter = ',',
        default_value = "zipfian,latest"
    )]
    loads: Vec<Distribution>,
    /// Ballast, given as the share of Redis' memory for which it leaves no DRAM. S3's 440 GB was
    /// 0.37, its 480 GB 0.86.
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0.37,0.86", value_parser = share)]
    spill: Vec<f64>,
    /// Rows of the table: dram-only and cxl-only, without ballast, and managers as `lab score`
    /// takes them.
    #[arg(
        long,
        value_name = "MANAGER,...",
        value_delimiter = ',',
        default_value = "dram-only,cxl-only,none,damon,numab2,thermocline"
    )]
    managers: Vec<Who>,
    /// Keys in Redis.
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Bytes of each value.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    value_bytes: u32,
    /// Exponent of the keys' popularity.
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    /// Reads under the manager before anything is measured.
    #[arg(long, value_name = "N", default_value_t = 800_000)]
    warmup_ops: u64,
    /// Reads that are measured.
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// A miss to CXL keeps the guest waiting this many times as long as one to DRAM.
    #[arg(long, value_name = "RATIO", default_value_t = 2.5, value_parser = ratio)]
    felt: f64,
    /// What the guest waits for DRAM, as a multiple of what the model has for it.
    #[arg(long, value_name = "FACTOR", default_value_t = 10.0, value_parser = ratio)]
    felt_scale: f64,
    /// Only count misses without waiting for them: quicker, and without a felt slowdown.
    #[arg(long)]
    no_felt: bool,
    /// Seed of the load; repeats count on from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs of each row and ballast, each on a fresh machine with its own seed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100))]
    repeats: u32,
    /// Write the runs here as JSON, a list with an object for each.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also take the runs that were written here; with --repeats 0 nothing else.
    #[arg(long, value_name = "FILE")]
    rows: Vec<PathBuf>,
}

/// Runs every manager beside every ballast and prints the tables; if the experiment fails or is
/// interrupted, those of the runs until then.
pub(crate) fn run(options: &Options, interrupt: &Arc<AtomicBool>) -> anyhow::Result<u8> {
    let mut cells: Vec<Cell> = Vec::new();
    for path in &options.rows {
        cells.extend(read_json::<Vec<Cell>>(path)?);
    }
    options.check()?;
    let asked = (options.repeats > 0).then(|| options.host.model.model()).transpose()?;
    table::alike(&cells, asked.as_ref())?;
    for who in &options.managers {
        who.manager().check(&options.host.thermocline)?;
    }
    let ran = options.run_all(interrupt, &mut cells);
    if !cells.is_empty() {
        print!("{}", table::text(&cells));
        if let Some(path) = &options.json {
            write_json(path, &cells)?;
        }
    }
    ran.map(|()| 0)
}

impl Options {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.repeats > 0 || !self.rows.is_empty(), "nothing to run: --repeats 0 needs --rows");
        ensure!(
            self.spill.iter().all(|&spill| spill > 0.0),
            "--spill 0 leaves Redis in DRAM: dram-only is the row for that"
        );
        let redis_mib = self.redis_bytes()? >> 20;
        ensure!(
            redis_mib <= REDIS_MIB_MAX,
            "Redis would take {redis_mib} MiB, more than {REDIS_MIB_MAX}: give it fewer --keys or smaller --value-bytes"
        );
        Ok(())
    }

    fn run_all(&self, interrupt: &Arc<AtomicBool>, cells: &mut Vec<Cell>) -> anyhow::Result<()> {
        // Repeat by repeat, so that what changes on the host in the meantime is shared by all.
        for repeat in 0..u64::from(self.repeats) {
            for &load in &self.loads {
                for who in &self.managers {
                    let spills = if who.has_ballast() { self.spill.as_slice() } else { &[0.0] };
                    for &spill in spills {
                        let seed = self.seed + repeat;
                        let plan = self.plan(who, load, spill, seed)?;
                        eprintln!("{}, {who}, {:.0} % spilled", load.name(), 100.0 * spill);
                        let log = format!("{}-{:.0}-{who}-{seed}", load.name(), 100.0 * spill);
                        let row = self.host.run(&self.machine()?, &plan, &log, interrupt)?;
                        eprintln!("{}", row.text());
                        cells.push(Cell { who: who.clone(), load, spill, row });
                    }
                }
            }
        }
        Ok(())
    }

    fn redis_bytes(&self) -> anyhow::Result<u64> {
        // The size does not depend on the manager.
        Ok(self.plan(&Who::Baseline(Only::Dram), Distribution::Zipfian, 0.0, self.seed)?.footprint_bytes())
    }

    /// A machine with enough DRAM for Redis beside some ballast, and enough CXL for all of Redis.
    fn machine(&self) -> anyhow::Result<Machine> {
        let redis_mib = self.redis_bytes()? as f64 / f64::from(1 << 20);
        Ok(Machine::of_sizes(
            &MEMORY_TO_REDIS.map(|ratio| {
                ((ratio * redis_mib) as u64).next_multiple_of(BLOCK_MIB).max(2 * BLOCK_MIB) << 20
            }),
        ))
    }

    fn plan(&self, who: &Who, load: Distribution, spill: f64, seed: u64) -> anyhow::Result<Plan> {
        let (start, narrowing) = match who {
            Who::Baseline(Only::Dram) => (Start::FirstTouch, Narrowing::None),
            Who::Baseline(Only::Cxl) => (Start::SlowOnly, Narrowing::None),
            Who::Managed(_) => (Start::FirstTouch, Narrowing::Ballast),
        };
        Ok(Plan {
            start,
            seed,
            warmup_ops: self.warmup_ops,
            ops: self.ops,
            fast_share: 1.0 - spill,
            narrowing,
            keys: self.keys,
            value_bytes: self.value_bytes as usize,
            zipf: self.zipf,
            distribution: load,
            felt: (!self.no_felt).then_some(Asked { ratio: self.felt, dram_ns: DRAM_NS * self.felt_scale }),
            ..Plan::of(Workload::Redis, who.manager(), self.host.model.model()?)
        })
    }
}

/// The latency of a miss to DRAM in the model: the default of the lab's machine.
const DRAM_NS: f64 = 100.0;
