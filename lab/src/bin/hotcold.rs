//! `hotcold`: a program of known truth, its judge, and the pattern that the plugin is held to.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use thermocline_lab::programs::hot_set::HotLayout;
use thermocline_lab::programs::hotcold::{Order, Plan, now, run};
use thermocline_lab::programs::{
    ballast, chase, judge, modelled, pattern, read_json, residency, stream, write_json,
};

/// Accesses memory at random, a share of the pages taking a share of the accesses, and verifies all
/// data.
///
/// Prints a line of JSON when the memory is ready, one every --report-every, one at each drift, and
/// a summary at the end (after --seconds, or at SIGINT or SIGTERM). Exit status 1 if any data was
/// lost.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    load: Load,
}

#[derive(Subcommand)]
enum Verb {
    /// Judges where the hot and the cold pages of a running hotcold are
    Judge(Judge),
    /// Touches a known set of pages and compares with what the plugin counted
    Pattern(Pattern),
    /// Follows pointers in random order through a block and prints what one load takes
    Chase(Chase),
    /// Reads a block on each of several processors from front to back and prints the bandwidth in
    /// modelled time
    Stream(Stream),
    /// Prints the modelled time of each processor
    Time,
    /// Fills memory and touches none of it until SIGINT or SIGTERM; then verifies all of it
    Ballast(Ballast),
    /// Prints where a program keeps its data, for the plugin: `misses filter $(hotcold span PID)`
    Span {
        /// The program
        pid: u32,
    },
}

#[derive(Args)]
struct Load {
    /// Size of the memory in MiB
    #[arg(long, default_value_t = 256)]
    mib: u32,
    /// Share of the pages that are hot, 0 to 1
    #[arg(long, default_value_t = 0.2)]
    hot_share: f64,
    /// Share of the accesses that go to hot pages, 0 to 1
    #[arg(long, default_value_t = 0.9)]
    access_share: f64,
    /// Share of the accesses that write, 0 to 1
    #[arg(long, default_value_t = 0.1)]
    write_share: f64,
    /// The order of the accesses: at random, or every line from front to back, where no page is hot
    #[arg(long, value_enum, default_value = "random", conflicts_with_all = ["drift_s", "report"])]
    order: Order,
    /// How hot pages lie
    #[arg(long, value_enum, default_value = "scattered")]
    hot_layout: HotLayout,
    /// Size in KiB of what is hot or cold together: 4 for base pages, 2048 for huge pages
    #[arg(long, default_value_t = 4)]
    grain_kib: u32,
    /// Every this many seconds, a part of the hot pages turns cold and others turn hot
    #[arg(long)]
    drift_s: Option<f64>,
    /// The share of the hot pages that each drift replaces, 0 to 1
    #[arg(long, default_value_t = 0.25)]
    drift_share: f64,
    /// Accesses a second, of all threads together; 0 for no limit
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// When to end; without it, at a signal
    #[arg(long)]
    seconds: Option<u64>,
    /// Threads that access
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Seed of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Forbid huge pages to this process, whatever the system allows
    #[arg(long)]
    no_thp: bool,
    /// Seconds between two lines of output
    #[arg(long, default_value_t = 1.0)]
    report_every: f64,
    /// Where to write pid, address and hot pages, once the memory is ready
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(Args)]
struct Judge {
    /// The report of the program
    #[arg(long)]
    report: PathBuf,
    /// An earlier snapshot: counts the pages that moved since
    #[arg(long)]
    before: Option<PathBuf>,
    /// Write a snapshot of this moment here
    #[arg(long)]
    save: Option<PathBuf>,
    /// Nodes that count as DRAM, as in 0-1,3; without it, those that have CPUs
    #[arg(long)]
    dram: Option<String>,
}

#[derive(Args)]
struct Pattern {
    /// The plugin's socket, or the serial port that leads there
    #[arg(long)]
    plugin: PathBuf,
    /// Pages to touch; several times the modelled cache
    #[arg(long, default_value_t = 4096)]
    pages: u32,
    /// Times that every line is loaded
    #[arg(long, default_value_t = 3)]
    loads: u64,
    /// Times that every line is stored to
    #[arg(long, default_value_t = 2)]
    stores: u64,
    /// Name of the page dump
    #[arg(long, default_value = "pattern")]
    dump: String,
}

#[derive(Args)]
struct Chase {
    /// Size of the block in MiB; many times the modelled cache
    #[arg(long, default_value_t = 8)]
    mib: u32,
    /// Seed of the order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Stream {
    /// Size of each block in MiB; many times the modelled cache
    #[arg(long, default_value_t = 8)]
    mib: u32,
    /// Processors that read
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Times that each block is read to warm up, and again to be measured
    #[arg(long, default_value_t = 4)]
    sweeps: u32,
}

#[derive(Args)]
struct Ballast {
    /// Size of the memory in MiB
    #[arg(long)]
    mib: u32,
    /// Forbid huge pages to this process, whatever the system allows
    #[arg(long)]
    no_thp: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.verb {
        None => load(&cli.load),
        Some(Verb::Judge(arguments)) => judged(arguments),
        Some(Verb::Pattern(arguments)) => patterned(arguments),
        Some(Verb::Chase(arguments)) => {
            chase::run(arguments.mib, arguments.seed).and_then(|chase| print_json(&chase))
        }
        Some(Verb::Stream(arguments)) => stream::run(arguments.mib, arguments.threads, arguments.sweeps)
            .and_then(|streams| print_json(&streams)),
        Some(Verb::Time) => modelled::now().and_then(|vcpus| print_json(&vcpus)),
        Some(Verb::Ballast(arguments)) => ballast(arguments),
        Some(Verb::Span { pid }) => span(*pid),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hotcold: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn load(arguments: &Load) -> anyhow::Result<()> {
    ensure!(arguments.grain_kib.is_multiple_of(4), "--grain-kib {} is no multiple of 4", arguments.grain_kib);
    let drift = arguments.drift_s.map(Duration::try_from_secs_f64).transpose().context("--drift-s")?;
    let stop = prepare(arguments.no_thp)?;
    let plan = Plan {
        mib: arguments.mib,
        hot_share: arguments.hot_share,
        access_share: arguments.access_share,
        write_share: arguments.write_share,
        order: arguments.order,
        hot_layout: arguments.hot_layout,
        grain_pages: arguments.grain_kib / 4,
        drift: drift.map(|every| (every, arguments.drift_share)),
        rate: arguments.rate,
        seconds: arguments.seconds,
        threads: arguments.threads,
        seed: arguments.seed,
        every: Duration::try_from_secs_f64(arguments.report_every).context("--report-every")?,
        report: arguments.report.clone(),
    };
    run(&plan, &stop, &mut std::io::stdout().lock())?;
    Ok(())
}

fn ballast(arguments: &Ballast) -> anyhow::Result<()> {
    let stop = prepare(arguments.no_thp)?;
    ballast::run(arguments.mib, &stop, &mut std::io::stdout().lock())
}

/// A flag that the signals which ask for an end raise; and no huge pages, if so wished.
fn prepare(no_thp: bool) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    if no_thp {
        rustix::thread::disable_transparent_huge_pages(true).context("cannot forbid huge pages")?;
    }
    Ok(stop)
}

fn judged(arguments: &Judge) -> anyhow::Result<()> {
    let (sys, proc) = (Path::new("/sys"), Path::new("/proc"));
    let dram = match &arguments.dram {
        Some(list) => residency::parse_node_list(list).context("--dram")?,
        None => residency::nodes_with_cpus(sys)?,
    };
    let report = read_json(&arguments.report)?;
    let before = arguments.before.as_deref().map(read_json).transpose()?;
    let (verdict, snapshot) = judge::judge(sys, proc, &report, &dram, before.as_ref(), now())?;
    if let Some(path) = &arguments.save {
        write_json(path, &snapshot)?;
    }
    print_json(&verdict)
}

fn patterned(arguments: &Pattern) -> anyhow::Result<()> {
    let outcome =
        pattern::run(&arguments.plugin, arguments.pages, arguments.loads, arguments.stores, &arguments.dump)?;
    print_json(&outcome)?;
    ensure!(outcome.error <= 0.01, "the plugin's counts are off by {:.1} %", outcome.error * 100.0);
    Ok(())
}

fn span(pid: u32) -> anyhow::Result<()> {
    let span = residency::data_span(Path::new("/proc"), pid)?;
    let span = span.with_context(|| format!("process {pid} has no anonymous mapping of 1 MiB or more"))?;
    writeln!(std::io::stdout(), "{:x} {:x}", span.start, span.end).context("cannot write the output")
}

fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value).context("cannot write the output")?;
    out.write_all(b"\n").context("cannot write the output")
}
