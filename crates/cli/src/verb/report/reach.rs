//! What of a recording is shown, and when that was by the clock.

use std::time::Duration;

use thermocline_core::units::Nanos;
use thermocline_trace::digest::Span;
use thermocline_trace::reader::Recording;

use super::number::span;
use super::place::Daemon;
use crate::recorded::clock;
use crate::snapshot::timestamp;

/// What of a recording is shown.
#[derive(Debug, Default)]
pub struct Reach {
    /// Whether there is more of it before.
    pub is_part: bool,
    /// Whether it is the last part that was asked for, or all that there is.
    pub shown: Option<String>,
    /// Up to when it reaches.
    pub until: Option<String>,
}

impl Reach {
    /// What `part` is of `whole`, if the last part was asked for, and what the daemon that makes
    /// it says.
    pub fn of(whole: &Recording, part: &Recording, last: Option<Duration>, daemon: Option<&Daemon>) -> Reach {
        let (all, covered) = (Span::of(whole), Span::of(part));
        let shown = last.map(|last| shown(last.as_secs_f64(), all, whole.has_beginning()));
        let utc = part.setting("clock").and_then(|setting| clock(setting, covered.end)).map(timestamp);
        let until = match (utc, daemon) {
            (Some(utc), Some(daemon)) => Some(format!("{utc}, {}", ago(covered.end, daemon))),
            (None, Some(daemon)) => Some(ago(covered.end, daemon)),
            (utc, None) => utc,
        };
        Reach { is_part: covered.start > all.start, shown, until }
    }
}

fn shown(asked: f64, all: Span, has_beginning: bool) -> String {
    let recorded = all.seconds();
    match (asked < recorded, has_beginning) {
        (true, _) => format!("the last {} of {} that are recorded", span(asked), span(recorded)),
        (false, true) => format!("all that is recorded; the last {} were asked for", span(asked)),
        (false, false) => format!(
            "all that is left: older parts were removed for newer ones; the last {} were asked for",
            span(asked)
        ),
    }
}

/// When that was, before the daemon was asked, and what is after it.
fn ago(end: Nanos, daemon: &Daemon) -> String {
    let ago = span(daemon.asked.since(end).0 as f64 / 1e9);
    match &daemon.ended {
        Some(why) => format!("{ago} before the page was made: the recording has ended, because {why}"),
        None => format!("{ago} before the page was made: what came later was not on disk yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_said() {
        let all = Span::between(Nanos::from_s(10), Nanos::from_s(130));
        assert_eq!(shown(60.0, all, true), "the last 60.0 s of 2 min 0 s that are recorded");
        assert_eq!(shown(60.0, all, false), "the last 60.0 s of 2 min 0 s that are recorded");
        assert_eq!(shown(3600.0, all, true), "all that is recorded; the last 60 min 0 s were asked for");
        assert!(shown(3600.0, all, false).starts_with("all that is left: older parts were removed"));
    }

    #[test]
    fn what_is_not_on_disk_yet_is_said_and_why_it_ended() {
        let mut daemon = Daemon { asked: Nanos::from_s(137), ended: None };
        let told = ago(Nanos::from_s(130), &daemon);
        assert_eq!(told, "7.0 s before the page was made: what came later was not on disk yet");
        daemon.ended = Some("it is full".to_owned());
        assert!(ago(Nanos::from_s(130), &daemon).ends_with("the recording has ended, because it is full"));
    }
}
