//! Records a manager of ours: what the machine reports, what the engine decides and how that ends.

use std::path::{Path, PathBuf};

use anyhow::Context;
use thermocline_core::access::Evidence;
use thermocline_core::config::Config;
use thermocline_core::driver::Driver;
use thermocline_core::machine::Machine;
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;
use thermocline_linux::machine::now;
use thermocline_trace::recorder::Recorder;
use thermocline_trace::stats::RecordingStats;
use thermocline_trace::writer::{About, Limits};

use super::Mode;
use crate::args::RecordHow;
use crate::output::tell;
use crate::recorded;
use crate::snapshot::timestamp;

/// What is asked to be recorded.
#[derive(Clone, Debug)]
pub struct RecordAsked {
    /// Where to.
    pub folder: PathBuf,
    /// How.
    pub how: RecordHow,
    /// Nothing else is asked for, so that the end of the recording ends the run.
    pub alone: bool,
}

impl RecordAsked {
    /// What the options of `run` and `observe` ask for.
    pub fn of(to: &crate::args::RecordTo) -> Option<RecordAsked> {
        let folder = to.folder.clone()?;
        Some(RecordAsked { folder, how: to.how.clone(), alone: false })
    }

    /// The limits of the recording.
    pub fn limits(how: &RecordHow) -> Limits {
        Limits { max_bytes: how.max_size.map(|size| size.0), rotate: how.rotate, ..Limits::default() }
    }
}

/// The recording of a session: of the first manager of ours that works, until that ends.
#[derive(Debug, Default)]
pub struct Recording {
    asked: Option<RecordAsked>,
    recorder: Option<Recorder>,
    began: bool,
    start: Nanos,
}

impl Recording {
    /// A recording that begins with the first manager.
    pub fn new(asked: Option<RecordAsked>) -> Recording {
        Recording { asked, ..Recording::default() }
    }

    /// Begins to record, before anything is changed in the kernel.
    ///
    /// # Errors
    /// The folder cannot take a recording.
    pub fn begin(&mut self, config: &Config, topology: &Topology, mode: Mode) -> anyhow::Result<()> {
        let Some(asked) = &self.asked else { return Ok(()) };
        let folder = asked.folder.display();
        if self.began {
            tell!("not recorded: the recording in {folder} has ended when another manager took over");
            return Ok(());
        }
        let settings = settings(config, mode)?;
        let about = About { settings, topology: topology.clone() };
        let limits = RecordAsked::limits(&asked.how);
        let recorder = Recorder::start(&asked.folder, about, limits, asked.how.private);
        self.recorder = Some(recorder.with_context(|| format!("cannot record to {folder}"))?);
        (self.began, self.start) = (true, now());
        tell!("{}", recorded::before(&asked.folder, &asked.how));
        Ok(())
    }

    /// Performs a step of the driver, and records it.
    ///
    /// # Errors
    /// The machine's.
    pub fn step<M: Machine>(
        &mut self,
        driver: &mut Driver,
        at: Nanos,
        machine: &mut M,
    ) -> Result<bool, M::Error> {
        let Some(recorder) = &mut self.recorder else { return driver.step(at, machine) };
        let ticked = driver.step(at, &mut recorder.over(machine));
        recorder.decisions(driver.engine().journal());
        ticked
    }

    /// Polls the machine for the last time, and records it.
    ///
    /// # Errors
    /// The machine's.
    pub fn drain<M: Machine>(
        &mut self,
        driver: &mut Driver,
        at: Nanos,
        machine: &mut M,
    ) -> Result<(), M::Error> {
        let Some(recorder) = &mut self.recorder else { return driver.drain(at, machine) };
        recorder.ending();
        let drained = driver.drain(at, &mut recorder.over(machine));
        recorder.decisions(driver.engine().journal());
        drained
    }

    /// Shows evidence to the engine that came when the machine was closed, and records it.
    pub fn at_close<'a>(&mut self, driver: &mut Driver, evidence: impl Iterator<Item = Evidence<'a>>) {
        for evidence in evidence {
            match &mut self.recorder {
                Some(recorder) => recorder.between(evidence, &mut |evidence| driver.observe(evidence)),
                None => driver.observe(evidence),
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.decisions(driver.engine().journal());
        }
    }

    /// Another configuration is used from now on.
    pub fn reloaded(&mut self, config: &Config) {
        // What cannot be written was refused at the start.
        if let (Some(recorder), Ok(text)) = (&mut self.recorder, serde_json::to_string(config)) {
            recorder.setting("config", text);
        }
    }

    /// What is to be said of it since the last call.
    pub fn news(&mut self) -> Option<String> {
        self.recorder.as_mut().and_then(Recorder::report_end)
    }

    /// Its figures, while it is made.
    pub fn stats(&self) -> Option<RecordingStats> {
        self.recorder.as_ref().map(Recorder::stats)
    }

    /// Whether the run has nothing more to do, because it was only to be recorded.
    pub fn is_all_over(&self) -> bool {
        let alone = self.asked.as_ref().is_some_and(|asked| asked.alone);
        alone && self.stats().is_some_and(|stats| stats.ended)
    }

    /// Ends the recording, and says what it came to.
    ///
    /// # Errors
    /// It has failed before, and nothing but a recording was asked for.
    pub fn end(&mut self) -> anyhow::Result<()> {
        let Some(recorder) = self.recorder.take() else { return Ok(()) };
        let summary = recorder.finish();
        tell!("{}", recorded::after(&summary, Some(now().since(self.start))));
        let alone = self.asked.as_ref().is_some_and(|asked| asked.alone);
        match summary.ended {
            Some(end) if end.failed && alone => anyhow::bail!("the recording has ended: {}", end.why),
            _ => Ok(()),
        }
    }
}

/// What the recording says about the machine, the program and its configuration.
fn settings(config: &Config, mode: Mode) -> anyhow::Result<Vec<(String, String)>> {
    let kernel = std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    let clock = serde_json::json!({
        "monotonic_ns": now().0,
        "utc": timestamp(std::time::SystemTime::now()),
    });
    let mut settings = recorded::settings(config, mode.name())?;
    settings.push(("kernel".to_owned(), kernel.trim().to_owned()));
    settings.push(("clock".to_owned(), clock.to_string()));
    Ok(settings)
}
