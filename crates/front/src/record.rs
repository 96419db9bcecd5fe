//! Simulates a manager of ours, and records what its engine sees and decides.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::Context;
use thermocline_core::config::RuleChoice;
use thermocline_sim::manager::{ManagerName, Steps, Thermocline};
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, RunError, run_with};
use thermocline_sim::scenario::Setup;
use thermocline_sim::spec::SpecError;
use thermocline_trace::recorder::{Recorder, Summary};
use thermocline_trace::replay::{DRIVER, SPARING_NOTHING};
use thermocline_trace::writer::{About, Limits};

use crate::words::settings;

/// What is said where a recording has ended before the run, before why.
pub const ENDED: &str = "the recording has ended before the run";

/// Where a run is recorded to, and how.
#[derive(Clone, Debug)]
pub struct RecordTo {
    /// The folder; made where it does not exist, otherwise empty.
    pub folder: PathBuf,
    /// How large it may become.
    pub limits: Limits,
    /// Without process numbers, addresses, commands and names.
    pub private: bool,
}

/// The rule of a manager of ours.
///
/// # Errors
/// It is no manager of ours, and has no engine that could be recorded.
pub fn choice(manager: ManagerName) -> Result<RuleChoice, SpecError> {
    match manager {
        ManagerName::Thermocline(choice) => Ok(choice),
        other => Err(SpecError::new(
            "--record",
            format!("manager {} has no engine whose decisions could be recorded", other.text()),
            "use --manager thermocline:RULE, or --rule RULE",
        )),
    }
}

/// Runs a scenario, and records it. The recording may have ended before the run: the summary says
/// so.
///
/// # Errors
/// The simulation fails, or it cannot be recorded to the end.
pub fn record(setup: &Setup, arm: Arm, to: &RecordTo) -> anyhow::Result<(Report, Summary)> {
    let choice = choice(arm.manager)?;
    let mut config = setup.scenario.config.clone();
    config.choose(choice);
    let mut settings = settings(&config, "sim")?;
    let mut add = |key: &str, value: String| settings.push((key.to_owned(), value));
    add("clock", "simulated".to_owned());
    add(DRIVER, SPARING_NOTHING.to_owned());
    add("scenario", setup.scenario.name.clone());
    add("seed", arm.seed.to_string());
    let about = About { settings, topology: setup.machine.topology.clone() };
    // A simulated machine can wait for the disk.
    let limits = Limits { backlog_bytes: None, ..to.limits };
    let recorder = Recorder::start(&to.folder, about, limits, to.private)
        .with_context(|| format!("cannot record to {}", to.folder.display()))?;
    let recorder = Rc::new(RefCell::new(recorder));
    let engine = Thermocline::new(choice, &setup.scenario.config, &setup.machine).map_err(RunError::Spec)?;
    let report = run_with(setup, arm, Box::new(engine.stepped(steps(&recorder))))?;
    let recorder = Rc::into_inner(recorder).context("the run is over, and something still records it")?;
    let summary = recorder.into_inner().finish();
    match &summary.ended {
        Some(end) if end.failed => anyhow::bail!("{ENDED}: {}", end.why),
        _ => Ok((report, summary)),
    }
}

/// Steps of a simulated engine that are recorded.
fn steps(recorder: &Rc<RefCell<Recorder>>) -> Steps {
    let (of_steps, between) = (Rc::clone(recorder), Rc::clone(recorder));
    Steps {
        step: Box::new(move |driver, now, machine| {
            let mut recorder = of_steps.borrow_mut();
            let Ok(_) = driver.step(now, &mut recorder.over(machine));
            recorder.decisions(driver.engine().journal());
        }),
        observe: Box::new(move |driver, evidence| {
            let mut recorder = between.borrow_mut();
            recorder.between(evidence, &mut |evidence| driver.observe(evidence));
            // After the last step there is nobody else to record them.
            recorder.decisions(driver.engine().journal());
        }),
    }
}
