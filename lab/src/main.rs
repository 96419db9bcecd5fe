//! The `lab` command: boots the tiered machine.

mod experiments;
mod options;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::{Parser, Subcommand};
use thermocline_lab::{Cache, End, Error, Fetched, Line, Output, fetch};

use experiments::{Inside, demo, remote, score, share, spill};
use options::MachineOptions;

/// The lab itself failed.
const FAILED: u8 = 125;
/// The guest was ended at its time limit, as timeout(1) says it.
const TIMED_OUT: u8 = 124;
/// The emulator made the guest's kernel panic.
const EMULATOR_FAULT: u8 = 122;
/// The guest's kernel panicked.
const PANICKED: u8 = 123;
/// A signal ended the guest.
const INTERRUPTED: u8 = 130;

/// Boots a stock Debian kernel in QEMU with real memory tiers and runs commands in it.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Put the newest kernel of a line into the cache.
    Fetch {
        /// Which line: 6.1, 6.12, 6.18 or newest; without it, those that everyday tests boot.
        #[arg(long, value_name = "LINE")]
        kernel: Option<Line>,
    },
    /// Run a command in a fresh guest and return its exit status.
    ///
    /// The status is the command's own, except 122: the emulator failed and another try may not,
    /// 123: the guest's kernel panicked, 124: the time limit passed, 125: the lab failed, 130: a
    /// signal ended it.
    Run {
        #[command(flatten)]
        machine: Box<MachineOptions>,
        /// The command and its arguments, found and run as on the host.
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Give an interactive shell in a fresh guest.
    Shell {
        #[command(flatten)]
        machine: Box<MachineOptions>,
    },
    /// Show Thermocline at work: a real Redis whose memory starts on the slow tier, without and
    /// with it.
    ///
    /// Status 1: a bar does not hold. Otherwise as `run`.
    Demo(demo::Options),
    /// Run a program under a manager of its memory and print how well its pages were placed.
    ///
    /// Otherwise as `run`.
    Score(Box<score::Options>),
    /// Score several managers, repeatedly, and print them beside each other.
    ///
    /// Otherwise as `run`.
    Compare(Box<score::CompareOptions>),
    /// Watch how soon samples, hint faults and the kernel alone bring memory home that lies on
    /// another node (S1's microbenchmark).
    ///
    /// Otherwise as `run`.
    Remote(Box<remote::Options>),
    /// Fill DRAM with cold ballast, so that Redis spills to CXL, and report how much slower than in
    /// DRAM alone reading it is under each manager (S3's experiment).
    ///
    /// Otherwise as `run`.
    Spill(Box<spill::Options>),
    /// Read Redis beside a hog that fills DRAM, and report what DRAM serves of its misses under
    /// each manager, and with a share of DRAM of its own.
    ///
    /// Otherwise as `run`.
    Share(Box<share::Options>),
    /// The part of `remote` that runs in the guest.
    #[command(hide = true)]
    RemoteInside(Inside),
    /// The part of a score that runs in the guest.
    #[command(hide = true)]
    ScoreInside(Inside),
    /// The part of the demo that runs in the guest.
    #[command(hide = true)]
    DemoInside(Inside),
}

fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(match error.downcast_ref() {
                Some(Error::Guest { end: End::TimedOut(_), .. }) => TIMED_OUT,
                Some(Error::Guest { end: End::EmulatorFault { .. }, .. }) => EMULATOR_FAULT,
                Some(Error::Guest { end: End::Panicked, .. }) => PANICKED,
                Some(Error::Guest { end: End::Interrupted, .. }) => INTERRUPTED,
                _ => FAILED,
            })
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<u8> {
    let scratch = tempfile::Builder::new()
        .prefix("lab-")
        .tempdir_in("/tmp")
        .context("cannot create a folder in /tmp")?;
    match verb {
        Verb::Fetch { kernel } => {
            let cache = Cache::of_user();
            for line in kernel.map_or(Line::EVERYDAY.to_vec(), |line| vec![line]) {
                report(line, fetch(&cache, line)?);
            }
            Ok(0)
        }
        Verb::Run { machine, command } => {
            let guest = machine.builder(scratch.path())?.interrupt(on_signals()?).output(Output::Inherit);
            let outcome = guest.exec(&command)?;
            if machine.verbose {
                eprintln!(
                    "lab: {} booted in {:.1} s, {:.1} s in all",
                    outcome.release,
                    outcome.boot.as_secs_f64(),
                    outcome.total.as_secs_f64()
                );
            }
            Ok(u8::try_from(outcome.status).unwrap_or(FAILED))
        }
        Verb::Demo(options) => demo::run(&options, &on_signals()?),
        Verb::DemoInside(inside) => demo::inside(&inside),
        Verb::Score(options) => score::score(&options, &on_signals()?),
        Verb::Compare(options) => score::compare(&options, &on_signals()?),
        Verb::Remote(options) => remote::run(&options, &on_signals()?),
        Verb::Spill(options) => spill::run(&options, &on_signals()?),
        Verb::Share(options) => share::run(&options, &on_signals()?),
        Verb::RemoteInside(inside) => remote::inside(&inside),
        Verb::ScoreInside(inside) => score::inside(&inside),
        Verb::Shell { machine } => {
            let limit = machine.limit(0);
            let outcome = machine.builder(scratch.path())?.timeout(limit).interrupt(on_signals()?).shell()?;
            Ok(u8::try_from(outcome.status).unwrap_or(FAILED))
        }
    }
}

fn report(line: Line, fetched: Fetched) {
    let said = match &fetched {
        Fetched::New(_) => "fetched".to_owned(),
        Fetched::Current(_) => "already the newest".to_owned(),
        Fetched::Kept(_, error) => format!("kept from the cache, the archive could not be asked: {error}"),
    };
    let kernel = fetched.kernel();
    println!("{line}: {} ({said})", kernel.release());
    for package in kernel.packages() {
        println!("    {package}");
    }
}

/// A flag that the signals which ask for an end raise.
fn on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot handle signals")?;
    }
    Ok(flag)
}
