//! Tests of the screen: against a socket that answers as a daemon does, and frame by frame.

mod frames;
mod machine;
mod serve;
mod state;

use std::time::Instant;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::reading::{COUNTERS, Reading, declared};
use super::state::State;
use super::view::{self, Paint};
use super::{Follower, poll};
use crate::args::Pane;
use crate::daemon::socket::{Request, ask, ask_for_text};
use crate::metrics;
use crate::snapshot::Latest;
use machine::{scopes, snapshot};
use serve::listen;

#[test]
fn top_status_and_metrics_show_the_same_counts_of_one_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s/t.sock");
    let latest = Latest::default();
    let _server = listen(&path, latest.clone());
    let snapshot = snapshot(10);
    latest.publish(snapshot.clone());

    let answer = ask(&path, &Request::Status { as_text: false }).unwrap();
    let text = ask_for_text(&path, &Request::Status { as_text: true }).unwrap();
    let reading = Reading::of(&answer).unwrap().unwrap();
    let families = metrics::families(&snapshot);
    let (mut compared, mut in_text) = (0, 0);
    for (place, statistic) in declared() {
        let Some(family) = families.iter().find(|family| family.name == statistic.metric) else { continue };
        for ((_, _, label), value) in
            reading.figures.iter().filter(|(key, _)| key.0 == place && key.1 == statistic.name)
        {
            let of =
                |(labels, _): &&(Vec<(&str, String)>, f64)| labels.first().map(|l| &l.1) == label.as_ref();
            let metric = family.values.iter().find(of).expect("the metric has the label").1;
            let divisor = thermocline_core::statistics::divisor(statistic.unit) as f64;
            assert!((metric * divisor - *value as f64).abs() < 0.5, "{} {label:?}: {value}", statistic.name);
            compared += 1;
            if place == COUNTERS && *value > 0 {
                let label = label.clone().unwrap_or_default();
                let row = format!("{:<24} {label:<20} {value:>12}", statistic.name);
                assert!(text.lines().any(|line| line == row), "{row}: {text}");
                in_text += 1;
            }
        }
    }
    assert!(compared > 80 && in_text > 8, "{compared} compared, {in_text} in the text");

    // And what stands on the screen is what was read.
    let mut state = State::new(Pane::Refusals);
    poll::take(&mut state, Follower::new(&path).look().unwrap());
    let screen = super::text(&state, (80, 24)).unwrap();
    let row = screen.lines().find(|line| line.contains("node_full")).expect("a row of the reason");
    assert!(row.split_whitespace().any(|word| word == "400"), "{row}");
}

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
