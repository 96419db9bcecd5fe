//! `lab remote`: S1's microbenchmark. All memory of a program lies on another node than its processors, and it is watched how soon each
//! kind of evidence brings it home.

mod course;
mod inside;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::workload::{read_json, write_json};
use thermocline_lab::{Guest, Line, Machine, Output, ThpMode};

use course::{COURSE, Course, Evidence, Far, PLAN, Plan};

use crate::score::plan::LOG;

/// The modelled cache, beside which the program's memory is large.
const CACHE: &str = "cache-kib=256";
/// What booting and filling may take on a busy host.
const AROUND: Duration = Duration::from_secs(120);
/// How often a guest is begun anew that the emulator made panic.
const RETRIES: u32 = 1;

/// How the experiment is to be.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the memory lies at first: cxl is node 2, a lower tier; dram is node 1, DRAM as that of node 0, which has the processors.
    #[arg(long, value_enum, default_value = "cxl")]
    from: Far,
    /// Kinds of evidence, each on a fresh machine: samples and hintfaults are our daemon's, kernel is NUMA balancing by itself. Our
    /// daemon sees no hint faults on DRAM.
    #[arg(long, value_enum, value_delimiter = ',')]
    by: Vec<Evidence>,
    /// Kernel line: 6.12 or newest.
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

/// The part that runs in the guest.
#[derive(Debug, Args)]
pub(crate) struct Inside {
    /// The shared folder.
    folder: PathBuf,
    /// The daemon.
    thermocline: PathBuf,
}

/// Runs in the guest.
pub(crate) fn inside(inside: &Inside) -> anyhow::Result<u8> {
    inside::run(&inside.folder, &inside.thermocline)?;
    Ok(0)
}

/// Watches each kind of evidence on a machine of its own and prints what came of it beside each other.
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
        let daemon = fs::canonicalize(&self.thermocline).unwrap_or_else(|_| self.thermocline.clone());
        let folder = tempfile::Builder::new()
            .prefix("remote-")
            .tempdir_in("/tmp")
            .context("cannot create a folder in /tmp")?;
        write_json(&folder.path().join(PLAN), plan)?;
        eprintln!("{}: booting Debian's kernel {}", plan.by, self.kernel);
        let mut tries = 0;
        loop {
            match self.guest(plan, folder.path(), &daemon, interrupt) {
                Err(error) if tries < RETRIES && crate::emulator_failed(&error) => {
                    tries += 1;
                    eprintln!("QEMU made the guest's kernel panic, a known race of QEMU 7.2: once more");
                }
                status => {
                    let status = status?;
                    ensure!(
                        status == 0,
                        "{} failed in the guest with status {status}; its message is above",
                        plan.by
                    );
                    self.keep_log(plan, &folder.path().join(LOG))?;
                    return read_json(&folder.path().join(COURSE));
                }
            }
        }
    }

    fn keep_log(&self, plan: &Plan, log: &Path) -> anyhow::Result<()> {
        let Some(dir) = self.logs.as_ref().filter(|_| log.exists()) else { return Ok(()) };
        let to = dir.join(format!("{}-{}.jsonl", plan.from.name(), plan.by));
        fs::create_dir_all(dir)
            .and_then(|()| fs::copy(log, &to).map(drop))
            .with_context(|| format!("cannot write {}", to.display()))
    }

    fn guest(
        &self,
        plan: &Plan,
        folder: &Path,
        daemon: &Path,
        interrupt: &Arc<AtomicBool>,
    ) -> anyhow::Result<i32> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let machine = Machine::default();
        let guest = Guest::builder()
            .kernel(self.kernel)
            .machine(machine.clone())
            .thp(ThpMode::Never)
            .share(folder)
            .timeout(Some(AROUND + Duration::from_secs(plan.seconds)))
            .output(Output::Inherit)
            .interrupt(Arc::clone(interrupt));
        let (guest, rings) = offer_samples(guest, folder);
        let guest = attach(guest, &machine, folder, &[CACHE, &rings])?;
        let words = [program.as_path(), Path::new("remote-inside"), folder, daemon]
            .map(|word| word.display().to_string());
        Ok(guest.exec(&words)?.status)
    }
}
