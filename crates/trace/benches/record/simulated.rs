//! Records simulated runs.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use thermocline_core::config::RuleChoice;
use thermocline_sim::manager::{ManagerName, Steps, Thermocline};
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, RunError, run_with};
use thermocline_sim::scenario::Setup;
use thermocline_trace::recorder::{Recorder, Summary};
use thermocline_trace::replay::{DRIVER, SPARING_NOTHING};
use thermocline_trace::writer::{About, Limits};

use crate::report::Failure;

/// Runs a scenario under a rule, and records it into a folder.
///
/// # Errors
/// The run fails, or the folder cannot take a recording.
pub fn record(
    setup: &Setup,
    choice: RuleChoice,
    seed: u64,
    folder: &Path,
    limits: Limits,
) -> Result<Summary, Failure> {
    let engine = Thermocline::new(choice, &setup.scenario.config, &setup.machine).map_err(RunError::Spec)?;
    let mut config = setup.scenario.config.clone();
    config.choose(choice);
    let settings = vec![
        ("config".to_owned(), serde_json::to_string(&config)?),
        (DRIVER.to_owned(), SPARING_NOTHING.to_owned()),
    ];
    let about = About { settings, topology: setup.machine.topology.clone() };
    let recorder = Rc::new(RefCell::new(Recorder::start(folder, about, limits, false)?));
    let arm = Arm { manager: ManagerName::Thermocline(choice), mode: ModeName::Event, seed };
    run_with(setup, arm, Box::new(engine.stepped(steps(&recorder))))?;
    let recorder = Rc::into_inner(recorder).expect("the run is over, and its steps with it");
    Ok(recorder.into_inner().finish())
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
