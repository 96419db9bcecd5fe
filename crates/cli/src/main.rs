//! The `thermocline` command.

// All output goes through `output`, which never panics.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod daemon;
mod escape;
mod import;
mod metrics;
mod output;
mod progress;
mod recorded;
mod snapshot;
mod text;
mod top;
mod verb;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use thermocline_core::config::Daemon;
use thermocline_front::config::FileError;
use thermocline_front::words::whole;
use thermocline_sim::fit::FitError;
use thermocline_sim::run::RunError;
use thermocline_sim::spec::SpecError;
use thermocline_trace::part::Damage;

use crate::args::{Cli, Record, Top, Verb};
use crate::daemon::{For, Mode, RecordAsked};
use crate::output::{print, tell};
use crate::verb::explain::NoProcess;

/// Exit status for an unusable configuration or a wrong command line.
const EXIT_USAGE: u8 = 2;
/// Exit status for a process that does not exist.
const EXIT_NO_PROCESS: u8 = 3;

fn main() -> ExitCode {
    let code = dispatch(Cli::parse()).unwrap_or_else(|error| {
        let text = output::shortened(&whole(&error));
        // Messages that point into a file already begin with the word.
        tell!("error: {}", text.strip_prefix("error: ").unwrap_or(&text));
        ExitCode::from(match error.is::<NoProcess>() {
            true => EXIT_NO_PROCESS,
            false if is_usage(&error) => EXIT_USAGE,
            false => 1,
        })
    });
    output::settle();
    code
}

/// Whether the user's input is to blame, not the machine.
fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<FileError>()
        || error.is::<Damage>()
        || error.is::<SpecError>()
        || matches!(error.downcast_ref(), Some(RunError::Spec(_)))
        || matches!(error.downcast_ref(), Some(FitError::Spec(_) | FitError::Run(RunError::Spec(_))))
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.verb {
        Verb::Config(args) => return verb::config::config(args),
        Verb::Compare(compare) => verb::compare::compare(&compare)?,
        Verb::Reproduce(reproduce) => verb::reproduce::reproduce(&reproduce)?,
        Verb::Sweep(sweep) => return verb::sweep::sweep(&sweep),
        Verb::Sim(sim) => verb::sim::sim(&sim)?,
        Verb::Generate { dir } => verb::generate::generate(&dir)?,
        Verb::Doctor(doctor) => return verb::doctor::doctor(&doctor),
        Verb::Observe { watch, record } => {
            daemon::run(&watch, Mode::Observe, None, &[], RecordAsked::of(&record))?;
        }
        Verb::Run { watch, record, manager, dry_run } => {
            let mode = if dry_run { Mode::DryRun } else { Mode::Run };
            daemon::run(&watch, mode, manager, &[], RecordAsked::of(&record))?;
        }
        Verb::Record(record) => {
            let Record { watch, folder, how, only } = record;
            let asked = RecordAsked { folder, how, for_whom: For::Itself };
            daemon::run(&watch, Mode::Observe, None, &only, Some(asked))?;
        }
        Verb::Replay(replay) => return verb::replay::replay(&replay),
        Verb::Import(import) => verb::import::import(&import)?,
        Verb::Export(export) => verb::export::export(&export)?,
        Verb::Plan(plan) => verb::plan::plan(&plan)?,
        Verb::Report(report) => {
            let socket = socket_path(report.socket.clone());
            verb::report::report(&report, &socket)?;
        }
        Verb::Status { json, socket } => print(verb::status::status(&socket_path(socket), json)?)?,
        Verb::Top(Top { folder: Some(folder), once, at, size, pane, .. }) => match once {
            true => top::recording::once(&folder, at, pane, size)?,
            false => top::recording::top(&folder, at, pane)?,
        },
        Verb::Top(Top { once: true, size, pane, socket, .. }) => top::once(&socket_path(socket), pane, size)?,
        Verb::Top(Top { pane, every, socket, .. }) => top::top(&socket_path(socket), pane, every)?,
        Verb::Explain { of, address, json, socket } => {
            print(verb::explain::explain(&socket_path(socket), of, address, json)?)?;
        }
        Verb::Switch { manager, socket } => {
            print(verb::switch::switch(&socket_path(socket), manager)?)?;
        }
        Verb::Reload { json, socket } => print(verb::reload::reload(&socket_path(socket), json)?)?,
        Verb::Restore { state_dir, dry_run } => {
            let state_dir = state_dir.unwrap_or_else(|| Daemon::default().state_dir.into());
            return verb::restore::restore(&state_dir, dry_run);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The requested socket, or the default one.
fn socket_path(given: Option<PathBuf>) -> PathBuf {
    given.unwrap_or_else(|| Daemon::default().socket.into())
}
