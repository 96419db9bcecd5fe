//! The lines of the screen that say where in a recording it is.

use thermocline_core::units::Nanos;

use super::ends;
use super::numbers::span;
use crate::args::Pane;
use crate::top::reading::Reading;
use crate::top::state::Playback;

/// The recording, and where in it the screen is.
pub(super) fn heading(playback: &Playback, reading: Option<&Reading>, width: usize) -> String {
    let word = match (playback.playing, playback.ended) {
        (true, _) => format!("PLAYING x{}", playback.speed),
        (false, true) => "END".to_owned(),
        (false, false) => format!("STANDS x{}", playback.speed),
    };
    let place = match playback.untimed {
        true => format!("at {} of {}", playback.at.0, playback.of.0),
        false => format!("at {} of {}", time(playback.at), time(playback.of)),
    };
    // How often and what it decided matters less than when.
    let clock = playback.clock.as_deref().map(|clock| format!("{clock}  ")).unwrap_or_default();
    let right = format!("{place}  {clock}{word}");
    let name = playback.name.trim_end_matches('/');
    let name = name.rsplit('/').next().unwrap_or(name);
    let left = match reading {
        None => name.to_owned(),
        Some(reading) => {
            let rule = reading.rule.as_ref().map(|rule| format!(", rule {rule}")).unwrap_or_default();
            format!("{name} ({}{rule})", reading.version)
        }
    };
    ends(&left, &right, width)
}

/// A time since the start: short ones to the millisecond.
fn time(time: Nanos) -> String {
    match time.0 / 1_000_000_000 {
        s if s < 60 => format!("{s}.{:03}s", time.0 / 1_000_000 % 1000),
        s if s < 3600 => span(s),
        s => format!("{}h{:02}m{:02}s", s / 3600, s / 60 % 60, s % 60),
    }
}

/// The keys that matter most.
pub(super) fn footer(pane: Pane) -> String {
    let more = match pane {
        Pane::Decisions => "Enter explain",
        _ if !pane.orders().is_empty() => "s sort  / filter",
        _ => "/ filter",
    };
    format!("q quit  Space play  +/- speed  h/l H/L step  g/G ends  Tab  {more}  ?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_where_they_are_short() {
        let told = [0, 12_345_678_901, 61_000_000_000, 3_723_000_000_000].map(|ns| time(Nanos(ns)));
        assert_eq!(told, ["0.000s", "12.345s", "1m01s", "1h02m03s"]);
    }

    #[test]
    fn footers_fit() {
        assert!(Pane::ALL.iter().all(|pane| footer(*pane).len() <= 80));
    }
}
