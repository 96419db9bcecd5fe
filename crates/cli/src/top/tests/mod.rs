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

use super::reading::Reading;
use super::state::State;
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

#[test]
fn a_redraw_of_a_thousand_scopes_is_fast() {
    let mut state = State::new(Pane::Scopes);
    state.read(Reading::of(&machine::answer(&scopes(snapshot(10), 1000))).unwrap());
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        terminal.draw(|frame| view::draw(frame, &state, Paint { colour: true })).unwrap();
        best = best.min(begin.elapsed().as_secs_f64() * 1e3);
    }
    println!("{best:.2} ms");
    assert!(best <= 50.0, "a redraw takes {best:.1} ms");
}
