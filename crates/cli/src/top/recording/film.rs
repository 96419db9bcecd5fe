//! A recording as a series of moments.
//!
//! A replay only goes forwards, and an engine cannot be copied. So all moments are taken in one
//! pass at the start, and to jump, backwards as well, is to show another one: that takes no longer
//! than a redraw. Only an explanation replays from the start.

use std::time::{Duration, SystemTime};

use serde::Deserialize as _;
use thermocline_core::config::Config;
use thermocline_core::units::Nanos;
use thermocline_trace::digest::Span;
use thermocline_trace::reader::Recording;

use super::engine::replay;
use super::read::reading;
use super::rows::{Moment, moments};
use crate::recorded::clock;
use crate::snapshot::timestamp;
use crate::top::rates::Rates;
use crate::top::reading::{Entry, Reading};

/// The time between two moments at least, which is also a short step.
pub const SECOND: Nanos = Nanos(1_000_000_000);
/// What is kept at most: moments, each times its scopes and as much as 64 of these. Bounds memory
/// to a few hundred MB.
const KEPT_MAX: u64 = 500_000;

/// A recording that can be shown.
#[derive(Debug)]
pub struct Film {
    recording: Recording,
    /// Its configuration, if it has one that can be read.
    config: Option<Config>,
    span: Span,
    moments: Vec<Moment>,
    /// Why not all of it is what the engine knew, if so.
    why: Option<String>,
    /// Files that were left out.
    left_out: usize,
    /// The wall clock at its start.
    clock: Option<SystemTime>,
}

impl Film {
    /// All of a recording.
    pub fn all(recording: Recording) -> Film {
        let span = Span::of(&recording);
        let length = span.end.since(span.start).0;
        let scopes = recording.config().map_or(0, |config| config.scope.len()) as u64;
        let every = SECOND.0.max(length / (KEPT_MAX / (scopes + 64)).max(1));
        let mut at: Vec<Nanos> = (0..=length / every).map(|n| Nanos(n * every)).collect();
        if at.last() != Some(&Nanos(length)) {
            at.push(Nanos(length));
        }
        Film::of(recording, span, &at)
    }

    /// One moment, or the end, and the moment a second before, for rates.
    pub fn at(recording: Recording, at: Option<Duration>) -> Film {
        let span = Span::of(&recording);
        let length = span.end.since(span.start);
        let at = at.map_or(length, nanos).min(length);
        let before = Nanos(at.0.saturating_sub(SECOND.0));
        let at = if before < at { vec![before, at] } else { vec![at] };
        Film::of(recording, span, &at)
    }

    fn of(recording: Recording, span: Span, at: &[Nanos]) -> Film {
        let (mut moments, damages) = moments(&recording, span, at);
        let why = replay(&recording, &mut moments).err();
        let left_out = recording.left_out().len() + damages.len();
        let clock = recording.setting("clock").and_then(|setting| clock(setting, span.start));
        let config = recording.config().ok();
        Film { recording, config, span, moments, why, left_out, clock }
    }

    /// The recording.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// How long it is.
    pub fn length(&self) -> Nanos {
        self.span.end.since(self.span.start)
    }

    /// The number of the last moment.
    pub fn last(&self) -> usize {
        self.moments.len().saturating_sub(1)
    }

    /// A moment; of a number beyond the last one, the last.
    pub fn moment(&self, n: usize) -> Option<&Moment> {
        self.moments.get(n.min(self.last()))
    }

    /// The number of the moment that is shown at a time.
    pub fn number(&self, at: Nanos) -> usize {
        self.moments.partition_point(|moment| moment.at <= at).saturating_sub(1)
    }

    /// The wall clock at a moment, if it is known.
    pub fn clock(&self, at: Nanos) -> Option<String> {
        Some(timestamp(self.clock?.checked_add(Duration::from_nanos(at.0))?))
    }

    /// What is shown of a moment, and the rates since the one before.
    pub fn frame(&self, n: usize) -> Option<(Reading, Rates, Vec<Entry>)> {
        let of = |moment: &Moment| reading(&self.recording, self.config.as_ref(), moment, self.span.start);
        let now = of(self.moment(n)?);
        let before = n.checked_sub(1).and_then(|n| self.moment(n));
        let rates = before.and_then(|before| Rates::between(&of(before), &now));
        let entries = self.moment(n)?.decisions.iter();
        let entries =
            entries.filter_map(|decision| Entry::deserialize(serde_json::to_value(decision).ok()?).ok());
        Some((now, rates.unwrap_or_default(), entries.collect()))
    }

    /// What is to be said of a moment, and whether it is bad.
    pub fn told(&self, n: usize) -> (String, bool) {
        let known = self.moment(n).is_some_and(|moment| moment.known.is_some());
        let files = match self.left_out {
            0 => String::new(),
            1 => "; 1 file is damaged or unfinished, and left out".to_owned(),
            files => format!("; {files} files are damaged or unfinished, and left out"),
        };
        match &self.why {
            Some(why) if !known => (format!("recorded rows only: {why}{files}"), true),
            Some(why) => {
                (format!("replayed, as recorded until here; later, {why}{files}"), self.left_out > 0)
            }
            None if !known => (format!("nothing is recorded until here{files}"), self.left_out > 0),
            None => (format!("replayed: decided as it was recorded, to the byte{files}"), self.left_out > 0),
        }
    }
}

/// A duration; one that is too long is the longest.
pub fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
