//! What the state makes of readings, decisions and keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::Deserialize;

use super::machine::{answer, decisions, scopes, snapshot};
use crate::args::Pane;
use crate::snapshot::Snapshot;
use crate::top::input::{Action, action};
use crate::top::reading::{COUNTERS, Decided, Reading};
use crate::top::recording::Turn;
use crate::top::state::{DECISIONS_KEPT, Over, State};
use crate::top::view;

fn read(snapshot: &Snapshot) -> Option<Reading> {
    Reading::of(&answer(snapshot)).unwrap()
}

fn with(snapshots: &[Snapshot], pane: Pane) -> State {
    let mut state = State::new(pane);
    snapshots.iter().for_each(|snapshot| state.read(read(snapshot)));
    state
}

fn rate(state: &State, name: &'static str) -> Option<f64> {
    state.shown().rates.of(&(COUNTERS, name, None))
}

fn press(state: &mut State, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        let rows = view::rows(state);
        let found = action(KeyEvent::new(code, KeyModifiers::NONE), state).expect("the key means something");
        state.act(found, rows);
    }
}

/// The first cells of the rows, as the screen has them.
fn names(state: &State) -> Vec<String> {
    let text = crate::top::text(state, (120, 30)).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("  scope")).skip(1);
    rows.map_while(|line| line.get(2..)?.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn rates_are_what_has_grown_by_the_daemons_own_time() {
    let state = with(&[snapshot(10), snapshot(14)], Pane::Tiers);
    assert_eq!(rate(&state, "proposed"), Some(900.0));
    let rates = &state.shown().rates;
    assert_eq!(rates.of(&(COUNTERS, "refused", Some("scope_cap".to_owned()))), Some(20.0));
    assert_eq!(rates.flows, [[768.0, 16.0, 0.0].map(Some), [0.0, 64.0, 0.0].map(Some)]);
    assert!(rates.cpu.is_some_and(|share| (share - 0.012).abs() < 1e-9));
    assert_eq!(rates.free, [Some(-768.0), Some(768.0)]);
}

#[test]
fn one_reading_and_the_same_reading_again_give_no_new_rate() {
    assert_eq!(rate(&with(&[snapshot(10)], Pane::Tiers), "proposed"), None);
    let state = with(&[snapshot(10), snapshot(12), snapshot(12)], Pane::Tiers);
    assert_eq!(rate(&state, "proposed"), Some(900.0), "the last known rate stays");
}

#[test]
fn a_restarted_daemon_has_neither_rates_nor_decisions_of_the_one_before() {
    let mut state = with(&[snapshot(10), snapshot(11)], Pane::Decisions);
    state.decided(Ok(Decided::deserialize(decisions(0, 3)).unwrap()));
    let mut other = snapshot(20);
    other.fixed.pid = 813;
    state.read(read(&other));
    assert_eq!((rate(&state, "proposed"), state.shown().decisions.len()), (None, 0));
    // The same process, whose manager began anew.
    let mut state = with(&[snapshot(10), snapshot(3)], Pane::Tiers);
    assert_eq!(rate(&state, "proposed"), None);
    state.read(read(&snapshot(4)));
    assert_eq!(rate(&state, "proposed"), Some(900.0));
}

#[test]
fn a_daemon_that_ended_leaves_its_last_figures_until_it_is_back() {
    let mut state = with(&[snapshot(10), snapshot(11)], Pane::Tiers);
    state.gone("no daemon answers".to_owned());
    let text = crate::top::text(&state, (80, 24)).unwrap();
    assert!(
        text.contains("NO DAEMON") && text.contains("waiting for the daemon; what is shown is its last"),
        "{text}"
    );
    assert!(state.shown().reading.is_some() && rate(&state, "proposed").is_none());
    state.read(read(&snapshot(1)));
    assert!(crate::top::text(&state, (80, 24)).unwrap().contains("LIVE"));
}

#[test]
fn scopes_are_sorted_and_filtered() {
    let mut state = with(&[scopes(snapshot(1), 5)], Pane::Scopes);
    assert_eq!(names(&state), ["/guests/4", "/guests/3", "web", "/batch.slice", "db"]);
    press(&mut state, "s");
    assert_eq!(names(&state)[4], "db", "those with a share, the fuller first");
    press(&mut state, "s");
    assert_eq!(names(&state)[0], "/guests/4", "who wants most first");
    press(&mut state, "s");
    assert_eq!(names(&state)[..2], ["/guests/3", "db"], "those with a cap, the fuller first");
    press(&mut state, "s");
    assert_eq!(names(&state)[0], "/batch.slice", "the braked one first");
    press(&mut state, "s");
    assert_eq!(names(&state)[0], "/guests/4", "of which most was moved");
    press(&mut state, "s");
    assert_eq!(names(&state), ["/batch.slice", "/guests/3", "/guests/4", "db", "web"]);
    press(&mut state, "/GUEST\n");
    assert_eq!(names(&state), ["/guests/3", "/guests/4"]);
    press(&mut state, "\x1b");
    assert_eq!(names(&state).len(), 5);
}

#[test]
fn a_paused_screen_stands_still_and_then_shows_the_newest() {
    let mut state = with(&[snapshot(10), snapshot(11)], Pane::Tiers);
    press(&mut state, "p");
    let before = crate::top::text(&state, (80, 24)).unwrap();
    assert!(before.contains("PAUSED"), "{before}");
    state.read(read(&snapshot(15)));
    assert_eq!(crate::top::text(&state, (80, 24)).unwrap(), before);
    press(&mut state, "p");
    assert_eq!(rate(&state, "proposed"), Some(900.0));
    assert!(crate::top::text(&state, (80, 24)).unwrap().contains("for 15s"));
}

#[test]
fn the_selected_decision_stays_selected_and_is_the_one_that_is_explained() {
    let mut state = with(&[snapshot(10)], Pane::Decisions);
    state.decided(Ok(Decided::deserialize(decisions(0, 10)).unwrap()));
    press(&mut state, "jj");
    state.decided(Ok(Decided::deserialize(decisions(10, 14)).unwrap()));
    let entry = state.act(Action::Explain, view::rows(&state)).expect("a decision is selected");
    assert_eq!(entry.page.vpn, 0x7f_12a4_c000 + 7);
    state.decided(Ok(Decided::deserialize(decisions(14, 3000)).unwrap()));
    assert_eq!(state.shown().decisions.len(), DECISIONS_KEPT);
}

#[test]
fn keys_lead_through_the_panes_and_out() {
    let mut state = with(&[snapshot(1)], Pane::Tiers);
    press(&mut state, "3\t");
    assert_eq!(state.pane, Pane::Refusals);
    press(&mut state, "?");
    assert_eq!(state.over, Some(Over::Help));
    press(&mut state, "q");
    assert!(state.over.is_none() && !state.leaving, "q closes what lies over the panes");
    press(&mut state, "/q\nq");
    assert!(state.leaving && state.filter == "q");
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(action(interrupt, &State::new(Pane::Tiers)), Some(Action::Quit));
}

#[test]
fn keys_of_time_mean_something_on_a_recording_alone() {
    let key = |code, modifiers| KeyEvent::new(code, modifiers);
    let mut state = with(&[snapshot(1)], Pane::Tiers);
    let right = key(KeyCode::Right, KeyModifiers::NONE);
    assert_eq!(action(right, &state), Some(Action::Next(1)));
    assert_eq!(action(key(KeyCode::Char('l'), KeyModifiers::NONE), &state), None);
    state.playback = Some(super::playback(false));
    for (code, modifiers, turn) in [
        (KeyCode::Right, KeyModifiers::NONE, Turn::Step(1)),
        (KeyCode::Left, KeyModifiers::SHIFT, Turn::Step(-10)),
        (KeyCode::Char('h'), KeyModifiers::NONE, Turn::Step(-1)),
        (KeyCode::Char('L'), KeyModifiers::SHIFT, Turn::Step(10)),
        (KeyCode::Char(' '), KeyModifiers::NONE, Turn::Play),
        (KeyCode::Char('p'), KeyModifiers::NONE, Turn::Play),
        (KeyCode::Char('+'), KeyModifiers::SHIFT, Turn::Faster),
        (KeyCode::Char('-'), KeyModifiers::NONE, Turn::Slower),
        (KeyCode::Char('g'), KeyModifiers::NONE, Turn::Begin),
        (KeyCode::Char('G'), KeyModifiers::SHIFT, Turn::End),
    ] {
        assert_eq!(action(key(code, modifiers), &state), Some(Action::Time(turn)), "{code:?}");
    }
    press(&mut state, "/lgh +");
    assert_eq!(state.filter, "lgh +", "in a filter they are its text");
}
