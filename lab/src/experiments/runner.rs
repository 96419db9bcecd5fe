//! One run of an experiment: a fresh guest in which this program runs the experiment's part inside.
//!
//! Host and guest share a folder. The host puts the plan into it, and the part inside writes its
//! recording there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use thermocline_lab::programs::{read_json, write_json};
use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::{End, Error, Guest, Line, Machine, Output, ThpMode};

/// The name of the plan in the shared folder.
pub(crate) const PLAN: &str = "plan.json";
/// The name of the daemon's output there.
pub(crate) const LOG: &str = "daemon.jsonl";
/// The modelled cache. Its ratio to a program's memory is that of a server's cache to a server's
/// memory: about a thousandth.
const CACHE: &str = "cache-kib=256";
/// How often a guest is started again after the emulator made its kernel panic.
const RETRIES: u32 = 1;

/// The arguments of every part that runs in the guest.
#[derive(Debug, Args)]
pub(crate) struct Inside {
    /// The shared folder.
    pub(crate) folder: PathBuf,
    /// The daemon.
    pub(crate) thermocline: PathBuf,
}

/// Parameters of a run.
pub(crate) struct Run<'a> {
    /// The experiment. Its part inside is this program's verb `EXPERIMENT-inside`.
    pub(crate) experiment: &'static str,
    /// Name of the run, for messages.
    pub(crate) who: String,
    /// Kernel of the guest.
    pub(crate) kernel: Line,
    /// Nodes of the guest.
    pub(crate) machine: &'a Machine,
    /// Time limit of the guest.
    pub(crate) timeout: Duration,
    /// The daemon's program.
    pub(crate) daemon: &'a Path,
    /// The image of a disk.
    pub(crate) disk: Option<&'a Path>,
    /// Whether the guest sees the memory into which the plugin writes samples and hot lists.
    pub(crate) samples: bool,
    /// Raised to end it early.
    pub(crate) interrupt: &'a Arc<AtomicBool>,
}

impl Run<'_> {
    /// Boots the guest and runs the part inside with `plan`. Tries once more if the emulator fails.
    ///
    /// # Errors
    /// The guest cannot run, or its part of the experiment failed.
    pub(crate) fn start(&self, plan: &impl Serialize) -> anyhow::Result<Left> {
        let left = Left(
            tempfile::Builder::new()
                .prefix(&format!("{}-", self.experiment))
                .tempdir_in("/tmp")
                .context("cannot create a folder in /tmp")?,
        );
        write_json(&left.path(PLAN), plan)?;
        let mut tries = 0;
        let status = loop {
            match self.guest(left.0.path()) {
                Err(error) if tries < RETRIES && emulator_failed(&error) => {
                    tries += 1;
                    eprintln!("QEMU made the guest's kernel panic, a known race of QEMU 7.2: once more");
                }
                status => break status?,
            }
        };
        ensure!(status == 0, "{} failed in the guest with status {status}; its message is above", self.who);
        Ok(left)
    }

    fn guest(&self, folder: &Path) -> anyhow::Result<i32> {
        // Experiments that need a daemon have checked that there is one.
        let daemon = fs::canonicalize(self.daemon).unwrap_or_else(|_| self.daemon.to_owned());
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut guest = Guest::builder()
            .kernel(self.kernel)
            .machine(self.machine.clone())
            .thp(ThpMode::Never)
            .share(folder)
            .timeout(Some(self.timeout))
            .output(Output::Inherit)
            .interrupt(Arc::clone(self.interrupt));
        if let Some(disk) = self.disk {
            guest = guest.disk(disk);
        }
        let mut arguments = vec![CACHE];
        let rings;
        if self.samples {
            (guest, rings) = offer_samples(guest, folder);
            arguments.push(&rings);
        }
        let guest = attach(guest, self.machine, folder, &arguments)?;
        let verb = format!("{}-inside", self.experiment);
        let words = [program.as_path(), Path::new(&verb), folder, &daemon];
        Ok(guest.exec(&words.map(|word| word.display().to_string()))?.status)
    }
}

/// The results of a run in the shared folder, which is removed with it.
pub(crate) struct Left(TempDir);

impl Left {
    /// The path of a result.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// It does not exist or has other content.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<T> {
        read_json(&self.path(name))
    }

    /// Copies the daemon's output to `DIR/NAME.jsonl`, if a directory is given and there was a
    /// daemon.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn keep_log(&self, dir: Option<&Path>, name: &str) -> anyhow::Result<()> {
        let log = self.path(LOG);
        let Some(dir) = dir.filter(|_| log.exists()) else { return Ok(()) };
        let to = dir.join(format!("{name}.jsonl"));
        fs::create_dir_all(dir)
            .and_then(|()| fs::copy(log, &to).map(drop))
            .with_context(|| format!("cannot write {}", to.display()))
    }
}

/// Whether the emulator made the guest's kernel panic, in which case another try may succeed.
fn emulator_failed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Guest { end: End::EmulatorFault { .. }, .. }))
}
