//! Records simulated runs.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use thermocline_core::config::RuleChoice;
use thermocline_sim::manager::{Steps, Thermocline};
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, RunError, run_with};
use thermocline_sim::scenario::Setup;

use crate::recorder::{Recorder, Summary};
use crate::replay::{DRIVER, SPARING_NOTHING};
use crate::writer::{About, Limits};

/// Why a simulated run was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The recording cannot begin.
    #[error("cannot record: {0}")]
    Record(#[from] std::io::Error),
}

/// Runs an arm whose manager is Thermocline with a rule, and records it into a folder. `program`
/// says what simulates.
///
/// # Errors
/// The run fails, or the folder cannot take a recording.
pub fn record(
    setup: &Setup,
    choice: RuleChoice,
    arm: Arm,
    program: &str,
    (folder, limits, private): (&Path, Limits, bool),
) -> Result<(Report, Summary), SimulateError> {
    let engine = Thermocline::new(choice, &setup.scenario.config, &setup.machine).map_err(RunError::Spec)?;
    let mut config = setup.scenario.config.clone();
    config.choose(choice);
    let settings = [
        // Figures and texts only, so serialisation cannot fail.
        ("config", serde_json::to_string(&config).unwrap_or_default()),
        (DRIVER, SPARING_NOTHING.to_owned()),
        ("clock", "simulated".to_owned()),
        ("kernel", "simulated".to_owned()),
        ("program", program.to_owned()),
        ("private", private.to_string()),
        ("scenario", setup.scenario.name.clone()),
        ("seed", arm.seed.to_string()),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value)).to_vec();
    let about = About { settings, topology: setup.machine.topology.clone() };
    let recorder = Rc::new(RefCell::new(Recorder::start(folder, about, limits, private)?));
    let report = run_with(setup, arm, Box::new(engine.stepped(steps(&recorder))))?;
    // The manager and its steps are gone with the run.
    let recorder = Rc::into_inner(recorder).map(RefCell::into_inner);
    let summary = recorder.map(Recorder::finish);
    Ok((report, summary.ok_or_else(|| std::io::Error::other("the run still holds the recording"))?))
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
            between.borrow_mut().between(evidence, &mut |evidence| driver.observe(evidence));
        }),
    }
}
