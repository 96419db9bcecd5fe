//! What the recorded engine knew at each moment: that of an engine which decides again on the
//! recording. As long as it decides the same, to the byte of the journal, it knows the same.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_core::admission::{Braking, Standing};
use thermocline_core::config::Config;
use thermocline_core::counters::Counters;
use thermocline_core::engine::{Engine, ScopeLedger};
use thermocline_core::journal::Decision;
use thermocline_core::rule::Gauge;
use thermocline_core::units::{Nanos, VirtPage};
use thermocline_front::replay::journals::Journals;
use thermocline_trace::reader::Recording;
use thermocline_trace::replay::watched_until;

use super::rows::Moment;
use crate::snapshot::{Explained, Fixed};
use crate::text;

/// What the engine knew.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its counters.
    pub counters: Counters,
    /// Its gauges and those of its rule.
    pub gauges: Vec<Gauge>,
    /// Scopes whose holding counts.
    pub standings: Vec<Standing>,
    /// What was done with the memory of each scope.
    pub ledgers: Vec<ScopeLedger>,
    /// The brakes of the scopes.
    pub brakes: Vec<Braking>,
    /// The names of the scopes, which a reload may change.
    pub fixed: Arc<Fixed>,
}

impl Known {
    fn of(engine: &Engine, fixed: &Arc<Fixed>) -> Known {
        Known {
            counters: engine.counters().clone(),
            gauges: engine.gauges(),
            standings: engine.standings(),
            ledgers: engine.ledgers(),
            brakes: engine.brakes(),
            fixed: Arc::clone(fixed),
        }
    }
}

/// The configuration of a recording.
///
/// # Errors
/// Why nothing can be decided again on it.
fn config(recording: &Recording) -> Result<Config, String> {
    if let Some(format) = recording.imported() {
        return Err(format!("it was imported from {format}, which does not say what was decided"));
    }
    recording.config().map_err(|damage| damage.what)
}

/// Names the scopes as a configuration does.
fn names(config: &Config, recording: &Recording) -> Arc<Fixed> {
    Arc::new(Fixed::new("replay", config, recording.topology()))
}

/// Lets an engine decide again, and adds to each moment what it knew then.
///
/// # Errors
/// Why that is not known of all moments. Those before the first difference have it.
pub fn replay(recording: &Recording, moments: &mut [Moment]) -> Result<(), String> {
    let config = config(recording)?;
    let fixed = RefCell::new(names(&config, recording));
    let reload = |config: Config| {
        *fixed.borrow_mut() = names(&config, recording);
        Ok(config)
    };
    let journals = RefCell::new(Journals::default());
    let target = moments.last().map_or(0, |moment| moment.steps);
    // The step after which both journals were last the same. What is decided on the evidence after
    // a step may be recorded with the next one.
    let (mut steps, mut settled, mut next) = (0u64, 0u64, 0);
    let mut compare = |theirs: &[Decision], ours: &[Decision]| journals.borrow_mut().add(theirs, ours);
    let mut watch = |_: Nanos, engine: &Engine| {
        steps += 1;
        while let Some(moment) = moments.get_mut(next).filter(|moment| moment.steps <= steps) {
            if moment.steps == steps {
                moment.known = Some(Known::of(engine, &fixed.borrow()));
            }
            next += 1;
        }
        if journals.borrow().is_same() {
            settled = steps;
        }
        if settled >= target { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let done = watched_until(recording, &config, &reload, &mut compare, &mut watch);
    let done = done.map_err(|error| error.to_string());
    let same = done.is_ok() && (settled >= target || journals.borrow().is_same());
    let overwritten = done.as_ref().map_or(0, |done| done.overwritten);
    for moment in moments.iter_mut() {
        let counts = overwritten == 0 && moment.missing == 0 && (same || moment.steps <= settled);
        moment.known = moment.known.take().filter(|_| counts);
    }
    done?;
    match () {
        () if moments.iter().any(|moment| moment.missing > 0) => {
            Err("parts of the recording are missing".to_owned())
        }
        () if !same || overwritten > 0 => {
            Err("this version decides otherwise on it than the one that recorded it".to_owned())
        }
        () => Ok(()),
    }
}

/// Explains a page as the engine would have after so many steps.
///
/// # Errors
/// It cannot be replayed so far.
pub fn explain(recording: &Recording, steps: u64, page: VirtPage) -> Result<String, String> {
    let config = config(recording)?;
    let fixed = RefCell::new(names(&config, recording));
    let reload = |config: Config| {
        *fixed.borrow_mut() = names(&config, recording);
        Ok(config)
    };
    let (mut at, mut told) = (0, None);
    let mut watch = |_: Nanos, engine: &Engine| {
        at += 1;
        if at < steps {
            return ControlFlow::Continue(());
        }
        told = Some(text::explained(&Explained::new(engine.explain(page), &fixed.borrow())));
        ControlFlow::Break(())
    };
    let done = watched_until(recording, &config, &reload, &mut |_, _| {}, &mut watch);
    done.map_err(|error| error.to_string())?;
    told.ok_or_else(|| "the recording is shorter than when it was opened; open it again".to_owned())
}
