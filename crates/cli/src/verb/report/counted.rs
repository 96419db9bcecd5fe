//! The counters of the engine that was recorded. They are not recorded themselves: an engine that
//! decides the same, to the byte of the journal, has counted the same.

use thermocline_core::counters::Counters;
use thermocline_core::engine::Engine;
use thermocline_core::journal::Decision;
use thermocline_core::units::Nanos;
use thermocline_trace::digest::{Bins, Span};
use thermocline_trace::reader::Recording;
use thermocline_trace::replay::watched;

use thermocline_front::replay::journals::Journals;

/// Pieces of evidence before what is shown, beyond which the engine does not decide on them again:
/// that takes some microseconds for each.
const BEFORE_MAX: u64 = 20_000_000;

/// What the engine counted.
#[derive(Debug)]
pub struct Counted {
    /// What it counted in the time that is shown. Of a whole recording these are the counters that
    /// `status` and `top` showed at its end.
    pub counters: Counters,
    /// Base pages that came back, by interval.
    pub came_back: Bins,
    /// Candidates that waited at the end.
    pub waiting: u64,
}

/// Counts by replaying the recording from its beginning: what the engine decides depends on all
/// that it has seen. `from` is the moment from which on it is shown.
///
/// # Errors
/// Why the engine's counters are not known: the recording cannot be replayed, or is decided
/// otherwise.
pub fn counted(whole: &Recording, span: Span, from: Option<Nanos>) -> Result<Counted, String> {
    if let Some(format) = whole.imported() {
        return Err(format!("it was imported from {format}, which does not say what was decided"));
    }
    if !whole.has_beginning() {
        return Err(
            "the recording is without its beginning, and what the engine knew then is missing".to_owned()
        );
    }
    let from = from.unwrap_or_default();
    let before = whole.parts().iter().filter(|part| part.last_ns < from);
    let before = before.fold(0u64, |sum, part| sum.saturating_add(part.pieces));
    if before > BEFORE_MAX {
        return Err(format!(
            "{before} pieces of evidence were recorded before, more than are decided on again; \
             `thermocline report DIR` of all of it does that"
        ));
    }
    let config = whole.config().map_err(|damage| damage.what)?;
    let mut journals = Journals::default();
    let mut came_back = Bins::default();
    let (mut earlier, mut seen, mut last) = (Counters::default(), 0, None);
    let mut compare = |theirs: &[Decision], ours: &[Decision]| journals.add(theirs, ours);
    let mut watch = |time: Nanos, engine: &Engine| {
        let now = engine.counters().came_back;
        if time < from {
            earlier = engine.counters().clone();
        } else {
            came_back.add(span.bin(time), now.saturating_sub(seen));
        }
        (seen, last) = (now, Some(engine.queue().len() as u64));
    };
    let done = watched(whole, &config, &Ok, &mut compare, &mut watch).map_err(|e| e.to_string())?;
    if done.missing > 0 || !done.damages.is_empty() {
        return Err("parts of the recording are missing".to_owned());
    }
    if !journals.is_same() || done.overwritten > 0 {
        return Err("this version decides otherwise on it than the one that recorded it".to_owned());
    }
    let counters = done.driver.engine().counters().since(&earlier);
    Ok(Counted { counters, came_back, waiting: last.unwrap_or(0) })
}
