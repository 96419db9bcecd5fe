//! `compute`: programs that the field compares on, with checked results.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use thermocline_lab::programs::compute::bc::Bc;
use thermocline_lab::programs::compute::bfs::Bfs;
use thermocline_lab::programs::compute::graph::Graph;
use thermocline_lab::programs::compute::gups::{Gups, Skew};
use thermocline_lab::programs::compute::run;

/// Updates a table at random or searches a Kronecker graph, again and again, and checks the
/// results.
///
/// Prints a line of JSON when the memory is ready, one every --report-every, and a summary at the
/// end (after --seconds, or at SIGINT or SIGTERM). Exit status 1 if a result was wrong.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand)]
enum Verb {
    /// Updates words of a table at random (HPC Challenge's RandomAccess)
    Gups {
        /// Size of the table in MiB
        #[arg(long, default_value_t = 256)]
        mib: u32,
        /// Share of the table, in one block, that is hot, 0 to 1
        #[arg(long, default_value_t = 0.1)]
        hot_share: f64,
        /// Share of the updates that go there, 0 to 1; the rest goes everywhere
        #[arg(long, default_value_t = 0.0)]
        access_share: f64,
    },
    /// Breadth-first search (GAP), from one vertex after the other
    Bfs(Size),
    /// Betweenness centrality (GAP), from one vertex after the other
    Bc(Size),
}

#[derive(Args)]
struct Size {
    /// Binary logarithm of the number of vertices
    #[arg(long, default_value_t = 20)]
    scale: u32,
}

#[derive(Args)]
struct Common {
    /// When to end; without it, at a signal
    #[arg(long, global = true)]
    seconds: Option<u64>,
    /// Seed of all that is random
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Forbid huge pages to this process, whatever the system allows
    #[arg(long, global = true)]
    no_thp: bool,
    /// Seconds between two lines of output
    #[arg(long, global = true, default_value_t = 1.0)]
    report_every: f64,
}

fn main() -> ExitCode {
    match compute(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compute: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compute(Cli { verb, common }: &Cli) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    if common.no_thp {
        rustix::thread::disable_transparent_huge_pages(true).context("cannot forbid huge pages")?;
    }
    let every = Duration::try_from_secs_f64(common.report_every).context("--report-every")?;
    let mut out = std::io::stdout().lock();
    let graph = |size: &Size| Graph::kronecker(size.scale, common.seed);
    match verb {
        Verb::Gups { mib, hot_share, access_share } => {
            let skew = Skew { hot_share: *hot_share, access_share: *access_share };
            run(&mut Gups::new(*mib, skew, common.seed)?, every, common.seconds, &stop, &mut out)
        }
        Verb::Bfs(size) => {
            run(&mut Bfs::new(graph(size)?, common.seed), every, common.seconds, &stop, &mut out)
        }
        Verb::Bc(size) => {
            run(&mut Bc::new(graph(size)?, common.seed), every, common.seconds, &stop, &mut out)
        }
    }?;
    Ok(())
}
