//! The part of a run that happens on the host: a fresh machine for it, and the row of what comes back.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use thermocline_lab::truth::{attach, offer_samples, read_dump};
use thermocline_lab::workload::{read_json, write_json};
use thermocline_lab::{Cache, Guest, Line, Machine, Output, ThpMode};

use super::model::ModelOptions;
use super::plan::{DUMP, LOG, PLAN, Plan, RECORDING, Recording};
use super::row::Row;

/// The modelled cache: to the program's memory what a server's cache is to a server's memory, about a thousandth.
const CACHE: &str = "cache-kib=256";
/// How often a guest is begun anew that the emulator made panic.
const RETRIES: u32 = 1;

/// What every run needs of the host.
#[derive(Clone, Debug, Args)]
pub(crate) struct Host {
    /// Kernel line: 6.12 or newest.
    #[arg(long, value_name = "LINE", default_value = "6.12")]
    kernel: Line,
    /// End a guest after so many seconds.
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
    /// One run on a fresh machine. What the daemon prints goes to a file of the name `log`, if logs are wanted.
    pub(crate) fn run(
        &self,
        machine: &Machine,
        plan: &Plan,
        log: &str,
        interrupt: &Arc<AtomicBool>,
    ) -> anyhow::Result<Row> {
        // Managers that need it have been checked to have it.
        let daemon = fs::canonicalize(&self.thermocline).unwrap_or_else(|_| self.thermocline.clone());
        let folder = tempfile::Builder::new()
            .prefix("score-")
            .tempdir_in("/tmp")
            .context("cannot create a folder in /tmp")?;
        let disk = plan.data_set().map(|set| set.image(&Cache::of_user())).transpose()?;
        write_json(&folder.path().join(PLAN), &plan)?;
        let mut tries = 0;
        loop {
            match self.guest(machine, plan, folder.path(), &daemon, disk.as_deref(), interrupt) {
                Err(error) if tries < RETRIES && crate::emulator_failed(&error) => {
                    tries += 1;
                    eprintln!("QEMU made the guest's kernel panic, a known race of QEMU 7.2: once more");
                }
                status => {
                    let status = status?;
                    ensure!(
                        status == 0,
                        "{} failed in the guest with status {status}; its message is above",
                        plan.manager
                    );
                    break;
                }
            }
        }
        self.keep_log(&folder.path().join(LOG), log)?;
        let recording: Recording = read_json(&folder.path().join(RECORDING))?;
        let dump = read_dump(&folder.path().join(DUMP))?;
        Row::of(plan, &recording, &dump)
            .context("no miss was counted in the window: give it more operations with --ops")
    }

    /// Keeps what the daemon printed, if asked to and if there was one.
    fn keep_log(&self, log: &Path, name: &str) -> anyhow::Result<()> {
        let Some(dir) = self.logs.as_ref().filter(|_| log.exists()) else { return Ok(()) };
        let to = dir.join(format!("{name}.jsonl"));
        fs::create_dir_all(dir)
            .and_then(|()| fs::copy(log, &to))
            .with_context(|| format!("cannot write {}", to.display()))?;
        Ok(())
    }

    fn guest(
        &self,
        machine: &Machine,
        plan: &Plan,
        folder: &Path,
        daemon: &Path,
        disk: Option<&Path>,
        interrupt: &Arc<AtomicBool>,
    ) -> anyhow::Result<i32> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut guest = Guest::builder()
            .kernel(self.kernel)
            .machine(machine.clone())
            .thp(ThpMode::Never)
            .share(folder)
            .timeout(Some(Duration::from_secs(self.timeout)))
            .output(Output::Inherit)
            .interrupt(Arc::clone(interrupt));
        if let Some(disk) = disk {
            guest = guest.disk(disk);
        }
        let mut arguments = vec![CACHE];
        let rings;
        if plan.shares_memory() {
            (guest, rings) = offer_samples(guest, folder);
            arguments.push(&rings);
        }
        let guest = attach(guest, machine, folder, &arguments)?;
        let words = [program.as_path(), Path::new("score-inside"), folder, daemon]
            .map(|word| word.display().to_string());
        Ok(guest.exec(&words)?.status)
    }
}
