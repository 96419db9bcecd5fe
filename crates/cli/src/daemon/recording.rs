//! Records a manager of ours: what the machine reports, what the engine decides and how that ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use thermocline_core::access::Evidence;
use thermocline_core::config::Config;
use thermocline_core::driver::Driver;
use thermocline_core::machine::Machine;
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;
use thermocline_linux::machine::now;
use thermocline_sim::units::Bytes;
use thermocline_trace::recorder::Recorder;
use thermocline_trace::stats::RecordingStats;
use thermocline_trace::writer::{About, Limits};

use super::{Mode, shelf};
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
    /// For whom.
    pub for_whom: For,
}

/// For whom it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Nothing else is asked for, so that the end of the recording ends the run.
    Itself,
    /// It was asked for beside a run: that does not begin without it, and goes on after it.
    Run,
    /// The configuration wants it to be there: each manager has one, within the folder, of which
    /// nothing older than this is kept. The run goes on without it.
    Later(Duration),
}

impl RecordAsked {
    /// What the options of `run` and `observe` ask for.
    pub fn of(to: &crate::args::RecordTo) -> Option<RecordAsked> {
        let folder = to.folder.clone()?;
        Some(RecordAsked { folder, how: to.how.clone(), for_whom: For::Run })
    }

    /// What the configuration asks for, where no option does.
    pub fn configured(config: &Config, mode: Mode) -> Option<RecordAsked> {
        let keys = &config.recording;
        let how =
            RecordHow { max_size: Some(Bytes(keys.max_size_mib << 20)), rotate: true, private: keys.private };
        let for_whom = For::Later(Duration::from_secs(u64::from(keys.keep_h) * 3600));
        let asked = RecordAsked { folder: PathBuf::from(&keys.folder), how, for_whom };
        (keys.enabled && mode == Mode::Run).then_some(asked)
    }

    /// The limits of a recording.
    pub fn limits(how: &RecordHow) -> Limits {
        Limits { max_bytes: how.max_size.map(|size| size.0), rotate: how.rotate, ..Limits::default() }
    }
}

/// The recording of a session: of the first manager of ours that works, until that ends; or of each
/// of them.
#[derive(Debug, Default)]
pub struct Recording {
    asked: Option<RecordAsked>,
    recorder: Option<Recorder>,
    /// Why there is none, where the run goes on without.
    failed: Option<String>,
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
    /// The folder cannot take a recording that was asked for.
    pub fn begin(&mut self, config: &Config, topology: &Topology, mode: Mode) -> anyhow::Result<()> {
        let Some(asked) = self.asked.clone() else { return Ok(()) };
        let keep = match asked.for_whom {
            For::Later(keep) => Some(keep),
            For::Itself | For::Run => None,
        };
        let folder = asked.folder.display();
        if self.began && keep.is_none() {
            tell!("not recorded: the recording in {folder} has ended when another manager took over");
            return Ok(());
        }
        let settings = settings(config, mode)?;
        let about = About { settings, topology: topology.clone() };
        let limits = Limits { keep, ..RecordAsked::limits(&asked.how) };
        let place = if keep.is_some() { shelf::next(&asked.folder) } else { Ok(asked.folder.clone()) };
        let recorder = place.and_then(|folder| {
            // Who asks the daemon for it is in another folder.
            let folder = std::path::absolute(folder)?;
            let recorder = Recorder::start(&folder, about, limits, asked.how.private)?;
            let kept = keep.map(|keep| format!("; what is older than {} h goes", keep.as_secs() / 3600));
            Ok((recorder, recorded::before(&folder, &asked.how) + &kept.unwrap_or_default()))
        });
        match recorder {
            Ok((recorder, told)) => {
                (self.recorder, self.failed) = (Some(recorder), None);
                (self.began, self.start) = (true, now());
                tell!("{told}");
            }
            Err(error) if keep.is_some() => {
                let why = format!("cannot record to {folder}: {error}");
                tell!("{why}; the run goes on without a recording");
                self.failed = Some(why);
            }
            Err(error) => return Err(error).with_context(|| format!("cannot record to {folder}")),
        }
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
        let failed = || {
            let folder = self.asked.as_ref()?.folder.display().to_string();
            let why = self.failed.clone()?;
            Some(RecordingStats { ended: true, folder, why: Some(why), ..RecordingStats::default() })
        };
        self.recorder.as_ref().map(Recorder::stats).or_else(failed)
    }

    /// Whether the run has nothing more to do, because it was only to be recorded.
    pub fn is_all_over(&self) -> bool {
        self.is_alone() && self.stats().is_some_and(|stats| stats.ended)
    }

    fn is_alone(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.for_whom == For::Itself)
    }

    /// Ends the recording, and says what it came to.
    ///
    /// # Errors
    /// It has failed before, and nothing but a recording was asked for.
    pub fn end(&mut self) -> anyhow::Result<()> {
        let Some(recorder) = self.recorder.take() else { return Ok(()) };
        let summary = recorder.finish();
        tell!("{}", recorded::after(&summary, Some(now().since(self.start))));
        match summary.ended {
            Some(end) if end.failed && self.is_alone() => {
                anyhow::bail!("the recording has ended: {}", end.why)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(folder: &Path) -> Config {
        let mut config = Config::default();
        config.recording.enabled = true;
        config.recording.folder = folder.display().to_string();
        config
    }

    #[test]
    fn what_the_configuration_asks_for_is_a_recording_of_each_manager() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = dir.path().join("recordings");
        let config = config(&shelf);
        assert!(RecordAsked::configured(&Config::default(), Mode::Run).is_none(), "it is off by default");
        for mode in [Mode::Observe, Mode::DryRun] {
            assert!(RecordAsked::configured(&config, mode).is_none(), "{mode:?}");
        }
        let asked = RecordAsked::configured(&config, Mode::Run).unwrap();
        assert_eq!((asked.how.max_size, asked.how.rotate), (Some(Bytes(512 << 20)), true));
        assert_eq!(asked.for_whom, For::Later(Duration::from_secs(24 * 3600)));
        let mut recording = Recording::new(Some(asked));
        let mut folders = Vec::new();
        for mode in [Mode::Run, Mode::Observe] {
            recording.begin(&config, &Topology::default(), mode).unwrap();
            let stats = recording.stats().unwrap();
            assert!(!stats.ended && Path::new(&stats.folder).is_dir(), "{stats:?}");
            folders.push(stats.folder);
            recording.end().unwrap();
        }
        assert!(folders[0] != folders[1] && folders.iter().all(|f| Path::new(f).starts_with(&shelf)));
    }

    #[test]
    fn a_run_goes_on_without_what_only_the_configuration_asks_for_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let config = config(&file.join("recordings"));
        let mut recording = Recording::new(RecordAsked::configured(&config, Mode::Run));
        recording.begin(&config, &Topology::default(), Mode::Run).unwrap();
        let stats = recording.stats().unwrap();
        assert!(stats.ended && stats.why.unwrap().contains("cannot record to"), "{}", stats.folder);
        assert!(!recording.is_all_over());
        recording.end().unwrap();

        let how = RecordHow::default();
        let asked = RecordAsked { folder: file.join("x"), how, for_whom: For::Run };
        let error = Recording::new(Some(asked)).begin(&config, &Topology::default(), Mode::Run);
        assert!(error.unwrap_err().to_string().contains("cannot record to"));
    }
}
