//! A recording in a machine's place: an engine decides on what was seen, in an open loop.
//!
//! The engine sees what the recorded one saw, at the same times. With the recorded configuration it
//! decides the same. With another one its decisions have no effect on what it sees:
//!
//! * A batch that the recording has too, with the same number and moves, ends as it did there.
//!   Every other batch ends at the next step with `dry_run`: nothing moved, the decision is the
//!   result. Outcomes of batches that this engine did not issue are not shown to it.
//! * A demand that the recording has too ends as it did there. Of any other, the share of its pages
//!   is demoted that the latest recorded demand on the node found; none where there was none.
//! * The nodes are as they were last read when the engine reads them. Holdings of scopes that the
//!   recording read at steps at which this engine does not read are shown to it all the same.
//! * About mappings a rule learns what the recorded one asked; everything else is unknown.

mod machine;
mod steps;

pub use machine::{Followed, Replay};
pub use steps::{Recorded, Steps};

use std::ops::ControlFlow;

use thermocline_core::config::Config;
use thermocline_core::driver::Driver;
use thermocline_core::engine::{Engine, EngineError, ReloadError};
use thermocline_core::journal::Decision;
use thermocline_core::units::Nanos;

use crate::config;
use crate::reader::Recording;

/// The setting that says how the driver was set up, and its value for a driver that spares nothing.
pub const DRIVER: &str = "driver";
/// See [`Driver::sparing_nothing`].
pub const SPARING_NOTHING: &str = "sparing nothing";

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no such engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A configuration that was loaded while it was recorded cannot be used.
    #[error("the configuration loaded at event {event}: {what}")]
    Config {
        /// The event.
        event: u64,
        /// What is wrong.
        what: String,
    },
    /// The engine cannot take it.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

/// What a replay came to.
#[derive(Debug)]
pub struct Replayed {
    /// The driver with its engine.
    pub driver: Driver,
    /// Steps replayed.
    pub steps: u64,
    /// Pieces of evidence shown.
    pub pieces: u64,
    /// Decisions of this engine that its journal no longer had when the step was over.
    pub overwritten: u64,
    /// What of its moves and demands the recording has.
    pub followed: Followed,
    /// Events that are missing in the recording.
    pub missing: u64,
    /// The first of them.
    pub incomplete_from: Option<u64>,
    /// Files that were left out because they are damaged.
    pub damages: Vec<String>,
}

/// Replays a recording to an engine with `config`. Configurations that were loaded while it was
/// recorded go through `reload` first. After each step, `compare` gets the decisions recorded with
/// it, and those of this engine since the last step; at the end, what this engine decided on the
/// evidence after the last step, which is recorded with that.
///
/// # Errors
/// A configuration does not suit the machine.
pub fn replay(
    recording: &Recording,
    config: &Config,
    reload: &dyn Fn(Config) -> Result<Config, String>,
    compare: &mut dyn FnMut(&[Decision], &[Decision]),
) -> Result<Replayed, ReplayError> {
    watched(recording, config, reload, compare, &mut |_, _| {})
}

/// The same; after each step `watch` gets its time and the engine.
///
/// # Errors
/// As [`replay`].
pub fn watched(
    recording: &Recording,
    config: &Config,
    reload: &dyn Fn(Config) -> Result<Config, String>,
    compare: &mut dyn FnMut(&[Decision], &[Decision]),
    watch: &mut dyn FnMut(Nanos, &Engine),
) -> Result<Replayed, ReplayError> {
    watched_until(recording, config, reload, compare, &mut |time, engine| {
        watch(time, engine);
        ControlFlow::Continue(())
    })
}

/// The same, until `watch` breaks off. What is said to be missing is what was missing until then.
///
/// # Errors
/// As [`replay`].
pub fn watched_until(
    recording: &Recording,
    config: &Config,
    reload: &dyn Fn(Config) -> Result<Config, String>,
    compare: &mut dyn FnMut(&[Decision], &[Decision]),
    watch: &mut dyn FnMut(Nanos, &Engine) -> ControlFlow<()>,
) -> Result<Replayed, ReplayError> {
    let engine = Engine::new(config, recording.topology().clone())?;
    let mut driver = Driver::new(engine, config);
    if recording.setting(DRIVER) == Some(SPARING_NOTHING) {
        driver = driver.sparing_nothing();
    }
    let mut steps = Steps::new(recording.read());
    let mut machine = Replay::default();
    let (mut replayed, mut decided, mut pieces, mut overwritten) = (0, 0, 0, 0);
    while let Some(recorded) = steps.next_step() {
        pieces += recorded.pieces;
        machine.load(recorded);
        let (time, last) = (machine.recorded().step.time, machine.recorded().step.last);
        let result = match last {
            true => driver.drain(time, &mut machine).map(drop),
            false => driver.step(time, &mut machine).map(drop),
        };
        let Ok(()) = result;
        let (decisions, written) = driver.engine().journal().since(decided);
        let decisions: Vec<Decision> = decisions.copied().collect();
        overwritten += (written - decided).saturating_sub(decisions.len() as u64);
        decided = written;
        compare(&machine.recorded().decisions, &decisions);
        for piece in &machine.recorded().between {
            piece.show(&mut |evidence| driver.observe(evidence));
        }
        for (event, text) in &machine.recorded().configs {
            let config = config::parse(text).and_then(reload);
            let config = config.map_err(|what| ReplayError::Config { event: *event, what })?;
            driver.reload(&config)?;
        }
        replayed += 1;
        if watch(time, driver.engine()).is_break() {
            break;
        }
    }
    let rest: Vec<Decision> = driver.engine().journal().since(decided).0.copied().collect();
    if !rest.is_empty() {
        compare(&[], &rest);
    }
    let reader = steps.reader();
    Ok(Replayed {
        steps: replayed,
        pieces,
        overwritten,
        followed: machine.followed(),
        missing: reader.missing(),
        incomplete_from: reader.incomplete_from(),
        damages: reader.damages().iter().map(ToString::to_string).collect(),
        driver,
    })
}
