//! Tests of the screen: against a socket that answers as a daemon does, and frame by frame.

mod counts;
mod driven;
mod frames;
mod machine;
mod serve;
mod state;

use std::time::Instant;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;
use thermocline_core::units::Nanos;

use super::reading::Reading;
use super::state::{Playback, State};
use super::view::{self, Paint};
use crate::args::Pane;
use crate::daemon::socket::{Request, ask};
use machine::{scopes, snapshot};

#[test]
fn an_absent_daemon_is_the_error_that_status_gives() {
    let path = std::path::Path::new("/nonexistent/t.sock");
    let of_status = ask(path, &Request::Status { as_text: false }).unwrap_err();
    let of_top = super::once(path, Pane::Tiers, (80, 24)).unwrap_err();
    assert_eq!(format!("{of_top:#}"), format!("{of_status:#}"));
}

#[test]
fn a_daemon_of_another_version_is_refused_with_both_versions() {
    let answer = json!({ "schema": 7, "version": "9.1.0" });
    let told = Reading::of(&answer).unwrap_err().to_string();
    for word in ["9.1.0", "schema 7", env!("CARGO_PKG_VERSION"), "restart the daemon"] {
        assert!(told.contains(word), "{told}");
    }
    assert!(Reading::of(&json!(null)).unwrap().is_none(), "it has just started");
}

#[test]
fn a_live_screen_without_a_terminal_is_refused_with_what_to_do() {
    if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        return;
    }
    let path = std::path::Path::new("/nonexistent/t.sock");
    let told = super::top(path, Pane::Tiers, std::time::Duration::from_secs(1)).unwrap_err().to_string();
    assert!(told.contains("terminal") && told.contains("top --once"), "{told}");
}

/// A place in a recording.
fn playback(playing: bool) -> Playback {
    Playback {
        name: "/var/tmp/a-recording.trace".to_owned(),
        at: Nanos::from_ms(12_345),
        of: Nanos::from_s(600),
        untimed: false,
        clock: Some("2026-11-27T07:20:11Z".to_owned()),
        playing,
        ended: false,
        speed: 8,
        told: ("replayed: decided as it was recorded, to the byte".to_owned(), false),
    }
}

/// The time that the fastest of five redraws takes, in ms.
fn redraw(state: &State) -> f64 {
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        terminal.draw(|frame| view::draw(frame, state, Paint { colour: true })).unwrap();
        best = best.min(begin.elapsed().as_secs_f64() * 1e3);
    }
    println!("{best:.2} ms");
    best
}

#[test]
fn a_redraw_of_a_thousand_scopes_is_fast() {
    let mut state = State::new(Pane::Scopes);
    state.read(Reading::of(&machine::answer(&scopes(snapshot(10), 1000))).unwrap());
    let best = redraw(&state);
    assert!(best <= 50.0, "a redraw takes {best:.1} ms");
}

#[test]
fn the_head_says_where_in_a_recording_it_is() {
    let mut state = State::new(Pane::Scopes);
    state.read(Reading::of(&machine::answer(&snapshot(10))).unwrap());
    for (playing, word) in [(true, "PLAYING x8"), (false, "STANDS x8")] {
        state.playback = Some(playback(playing));
        let text = super::text(&state, (80, 24)).unwrap();
        let head = text.lines().next().unwrap();
        assert!(head.starts_with("a-recording") && head.ends_with(word), "{head}");
        assert!(head.contains("at 12.345s of 10m00s  2026-11-27T07:20:11Z"), "{head}");
        assert!(text.contains("to the byte") && text.contains("Space play"), "{text}");
    }
}
