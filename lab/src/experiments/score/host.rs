//! The part of a run that happens on the host: a fresh machine for it, and the row of its results.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use thermocline_lab::truth::read_dump;
use thermocline_lab::{Cache, Line, Machine};

use super::model::ModelOptions;
use super::plan::{DUMP, Plan, RECORDING};
use super::row::Row;
use crate::experiments::runner::Run;

/// Options of the host common to all runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct Host {
    /// Kernel line: 6.1, 6.12, 6.18 or newest.
    #[arg(long, value_name = "LINE", default_value = "6.12")]
    kernel: Line,
    /// End a guest after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,
    /// The daemon.
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/thermocline")]
    pub(crate) thermocline: PathBuf,
    /// Write what the daemon prints, a JSON object a second, to a file for each run in DIR.
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelOptions,
}

impl Host {
    /// One run on a fresh machine. The daemon's output goes to a file named `log`, if logs are
    /// requested.
    pub(crate) fn run(
        &self,
        machine: &Machine,
        plan: &Plan,
        log: &str,
        interrupt: &Arc<AtomicBool>,
    ) -> anyhow::Result<Row> {
        let disk = plan.data_set().map(|set| set.image(&Cache::of_user())).transpose()?;
        let run = Run {
            experiment: "score",
            who: plan.manager.to_string(),
            kernel: self.kernel,
            machine,
            timeout: Duration::from_secs(self.timeout),
            daemon: &self.thermocline,
            disk: disk.as_deref(),
            samples: plan.shares_memory(),
            interrupt,
        };
        let left = run.start(plan)?;
        left.keep_log(self.logs.as_deref(), log)?;
        let dump = read_dump(&left.path(DUMP))?;
        Row::of(plan, &left.read(RECORDING)?, &dump)
            .context("no miss was counted in the window: give it more operations with --ops")
    }
}
