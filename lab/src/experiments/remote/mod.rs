//! `lab remote`: S1's microbenchmark. All memory of a program lies on another node than its
//! processors, and the experiment measures how soon each kind of evidence brings it home.

mod course;
mod inside;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use thermocline_lab::programs::write_json;
use thermocline_lab::{Line, Machine};

use course::{COURSE, Course, Evidence, Far, Plan};

use super::runner::{Inside, Run};

/// Time limit of booting and filling on a busy host.
const AROUND: Duration = Duration::from_secs(120);

/// How the experiment is to be.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the memory lies at first: cxl is node 2, a lower tier; dram is node 1, DRAM as that of
    /// node 0, which has the processors.
    #[arg(long, value_enum, default_value = "cxl")]
    from: Far,
    /// Kinds of evidence, each on a fresh machine: samples and hintfaults are our daemon's, kernel
    /// is NUMA balancing by itself. Our daemon sees no hint faults on DRAM.
    #[arg(long, value_enum, value_delimiter = ',')]
    by: Vec<Evidence>,
    /// Kernel line: 6.1, 6.12, 6.18 or newest.
    #[arg(long, value_name = "LINE", default_value = "6.12")]
    kernel: Line,
    /// Memory of the program, MiB; two threads write to it at random.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=512))]
    mib: u32,
    /// Seconds to watch.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    seconds: u64,
    /// About every Nth access of the guest is tagged, and becomes a sample if it misses.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    sample_every: u64,
    /// Seed of the accesses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The daemon.
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/thermocline")]
    thermocline: PathBuf,
    /// Write what the daemon prints, a JSON object a second, to DIR/FROM-BY.jsonl.
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Write what was seen here as JSON, a list with an object for each kind of evidence.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs in the guest.
pub(crate) fn inside(inside: &Inside) -> anyhow::Result<u8> {
    inside::run(&inside.folder, &inside.thermocline)?;
    Ok(0)
}

/// Runs each kind of evidence on a separate machine and prints the results side by side.
pub(crate) fn run(options: &Options, interrupt: &Arc<AtomicBool>) -> anyhow::Result<u8> {
    let all = options.from.evidence();
    let asked = if options.by.is_empty() { all } else { &options.by };
    let mut courses: Vec<Course> = Vec::new();
    for &by in asked {
        ensure!(
            all.contains(&by),
            "there are no {by} of memory that lies on DRAM: kernel.numa_balancing=2 scans lower tiers only; leave {by} out"
        );
        let plan = Plan {
            from: options.from,
            by,
            mib: options.mib,
            seconds: options.seconds,
            sample_every: options.sample_every,
            seed: options.seed,
        };
        plan.manager()?.iter().try_for_each(|manager| manager.check(&options.thermocline))?;
        courses.push(options.watch(&plan, interrupt)?);
    }
    print!("{}", table::text(&courses));
    if let Some(path) = &options.json {
        write_json(path, &courses)?;
    }
    Ok(0)
}

impl Options {
    fn watch(&self, plan: &Plan, interrupt: &Arc<AtomicBool>) -> anyhow::Result<Course> {
        eprintln!("{}: booting Debian's kernel {}", plan.by, self.kernel);
        let run = Run {
            experiment: "remote",
            who: plan.by.to_string(),
            kernel: self.kernel,
            machine: &Machine::default(),
            timeout: AROUND + Duration::from_secs(plan.seconds),
            daemon: &self.thermocline,
            disk: None,
            samples: true,
            interrupt,
        };
        let left = run.start(plan)?;
        left.keep_log(self.logs.as_deref(), &format!("{}-{}", plan.from.name(), plan.by))?;
        left.read(COURSE)
    }
}
