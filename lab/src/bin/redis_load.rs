//! `redis_load`: a load for Redis whose every value can be verified.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use thermocline_lab::programs::keys::{
    Distribution, Reading, Server, Target, load, parse_address, run, verify,
};
use thermocline_lab::programs::write_json;

/// Fills a Redis with verifiable values, reads them with zipfian popularity, and verifies them.
///
/// Prints lines of JSON. Exit status 1 if Redis failed or a value was missing or wrong. All verbs
/// must be given the same --keys and --value-bytes.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Sets every key
    Load(Common),
    /// Reads with zipfian popularity and compares every value
    Run(Run),
    /// Reads every key once and compares
    Verify(Common),
}

#[derive(Args)]
struct Common {
    /// Where Redis listens
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379", value_parser = parse_address)]
    address: (String, u16),
    /// Number of keys
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Bytes of each value
    #[arg(long, default_value_t = 1024)]
    value_bytes: u32,
    /// Connections, each with a thread
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Commands sent together on a connection
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pipeline: u32,
    /// Also write the summary here
    #[arg(long)]
    summary: Option<PathBuf>,
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    common: Common,
    /// Exponent of the popularity; 0 reads all keys alike
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    /// Which keys are popular: any, or those that were set last by a load with as many connections
    #[arg(long, value_enum, default_value = "zipfian")]
    distribution: Distribution,
    /// When to end; without it, at a signal
    #[arg(long)]
    seconds: Option<u64>,
    /// Seconds between two lines of output
    #[arg(long, default_value_t = 1.0)]
    report_every: f64,
    /// Seed of all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Common {
    fn target(&self) -> Target {
        Target {
            server: Server::Redis,
            address: self.address.clone(),
            keys: self.keys,
            value_bytes: self.value_bytes as usize,
            connections: self.connections,
            pipeline: self.pipeline,
        }
    }
}

fn main() -> ExitCode {
    match work(&Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redis_load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(verb: &Verb) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    let out = &mut std::io::stdout().lock();
    let (common, summary) = match verb {
        Verb::Load(common) => (common, load(&common.target(), stop, out)?),
        Verb::Verify(common) => (common, verify(&common.target(), stop, out)?),
        Verb::Run(arguments) => {
            let every = Duration::try_from_secs_f64(arguments.report_every).context("--report-every")?;
            let reading = Reading {
                zipf: arguments.zipf,
                distribution: arguments.distribution,
                seconds: arguments.seconds,
                ops: None,
                every,
                seed: arguments.seed,
                draws: arguments.seed,
            };
            (&arguments.common, run(&arguments.common.target(), &reading, stop, out)?)
        }
    };
    if let Some(path) = &common.summary {
        write_json(path, &summary)?;
    }
    summary.check()
}
