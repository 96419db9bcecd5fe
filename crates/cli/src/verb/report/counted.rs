//! The counters of the engine that was recorded. They are not recorded themselves: an engine that
//! decides the same, to the byte of the journal, has counted the same.

use thermocline_core::counters::Counters;
use thermocline_core::engine::Engine;
use thermocline_core::journal::Decision;
use thermocline_core::units::Nanos;
use thermocline_trace::digest::{Bins, Span};
use thermocline_trace::reader::Recording;
use thermocline_trace::replay::watched;

use crate::verb::replay::journals::Journals;

/// What the engine counted.
#[derive(Debug)]
pub struct Counted {
    /// Its counters at the end of the recording: those that `status` and `top` showed then.
    pub counters: Counters,
    /// Base pages that came back, by interval.
    pub came_back: Bins,
    /// Candidates that waited at the end.
    pub waiting: u64,
}

/// Counts by replaying.
///
/// # Errors
/// Why the engine's counters are not known: the recording cannot be replayed, or is decided
/// otherwise.
pub fn counted(recording: &Recording, span: Span) -> Result<Counted, String> {
    if let Some(format) = recording.imported() {
        return Err(format!("it was imported from {format}, which does not say what was decided"));
    }
    let config = recording.config().map_err(|damage| damage.what)?;
    let mut journals = Journals::default();
    let mut came_back = Bins::default();
    let (mut before, mut last) = (0, None);
    let mut compare = |theirs: &[Decision], ours: &[Decision]| journals.add(theirs, ours);
    let mut watch = |time: Nanos, engine: &Engine| {
        let now = engine.counters().came_back;
        came_back.add(span.bin(time), now.saturating_sub(before));
        (before, last) = (now, Some(engine.queue().len() as u64));
    };
    let done = watched(recording, &config, &Ok, &mut compare, &mut watch).map_err(|e| e.to_string())?;
    if done.missing > 0 || !done.damages.is_empty() {
        return Err("parts of the recording are missing".to_owned());
    }
    if !journals.is_same() || done.overwritten > 0 {
        return Err("this version decides otherwise on it than the one that recorded it".to_owned());
    }
    let counters = done.driver.engine().counters().clone();
    Ok(Counted { counters, came_back, waiting: last.unwrap_or(0) })
}
