//! Frames, held to files; `BLESS=1` writes them.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde::Deserialize;

use super::machine::{answer, decisions, snapshot};
use crate::args::Pane;
use crate::top::reading::{Decided, Reading};
use crate::top::state::{Over, State};
use crate::top::text;
use crate::top::view::{self, Paint};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/tests/frames");
const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/top.md");

fn state(pane: Pane) -> State {
    let mut state = State::new(pane);
    for s in [4000, 4001] {
        let mut snapshot = snapshot(s);
        // Full, and with a way to go until kswapd is content.
        snapshot.nodes[0].free_pages = 9_000 - (s - 4000) * 512;
        state.read(Reading::of(&answer(&snapshot)).unwrap());
    }
    let mut decided = Decided::deserialize(decisions(0, 30)).unwrap();
    decided.decisions.iter_mut().for_each(|entry| entry.page.pid.0 = 4711);
    state.decided(Ok(decided));
    state
}

fn held(name: &str, found: &str) {
    let path = format!("{FOLDER}/{name}.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, found).expect("the frame can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let bless = "BLESS=1 cargo test --release -p thermocline --bin thermocline top::tests::frames";
    assert!(kept == found, "{path} is stale; look at this frame, and keep it with {bless}:\n{found}");
}

#[test]
fn frames_of_80_by_24_are_as_they_were() {
    for pane in Pane::ALL {
        let frame = text(&state(pane), (80, 24)).unwrap();
        assert!(frame.lines().all(|line| line.chars().count() <= 80) && frame.lines().count() == 24);
        held(&format!("80x24-{}", pane.title().to_lowercase()), &frame);
    }
}

#[test]
fn a_frame_of_200_by_60_has_all_panes() {
    let frame = text(&state(Pane::Scopes), (200, 60)).unwrap();
    for pane in Pane::ALL {
        let title = format!("{} {}", pane as usize + 1, pane.title());
        assert!(frame.matches(&title).count() >= 2, "{title} is a tab and a pane: {frame}");
    }
    held("200x60", &frame);
}

fn drawn(state: &State, paint: Paint) -> ratatui::buffer::Buffer {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| view::draw(frame, state, paint)).unwrap();
    terminal.backend().buffer().clone()
}

#[test]
fn without_colours_every_word_and_sign_is_there_and_no_colour() {
    let state = state(Pane::Scopes);
    let (plain, painted) = (drawn(&state, Paint { colour: false }), drawn(&state, Paint { colour: true }));
    let symbols = |buffer: &ratatui::buffer::Buffer| {
        buffer.content().iter().map(|cell| cell.symbol().to_owned()).collect::<String>()
    };
    assert_eq!(symbols(&plain), symbols(&painted));
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    assert!(painted.content().iter().any(|cell| cell.fg == Color::Red), "a braked scope is red");
    assert!(symbols(&plain).contains("!/batch.slice"), "and has its sign");
}

#[test]
fn no_size_and_no_state_makes_it_panic() {
    let mut states: Vec<State> = Pane::ALL.map(state).into();
    states.extend(Pane::ALL.map(State::new));
    for over in [Over::Help, Over::Explained("why\n".repeat(99), 50)] {
        let mut covered = state(Pane::Tiers);
        covered.over = Some(over);
        states.push(covered);
    }
    for state in &mut states {
        for size in [(40, 10), (1, 1), (3, 2), (20, 5), (160, 40), (500, 200)] {
            text(state, size).unwrap();
        }
        state.gone("no daemon answers on /run/thermocline/thermocline.sock".repeat(9));
        text(state, (40, 10)).unwrap();
    }
}

#[test]
fn the_book_shows_the_screen() {
    let frame = text(&state(Pane::Tiers), (80, 24)).unwrap();
    let chapter = std::fs::read_to_string(CHAPTER).expect("the chapter is there");
    let (before, rest) = chapter.split_once("<!-- screen -->\n").expect("the chapter has the marker");
    let (_, after) = rest.split_once("<!-- end -->").expect("the marker has an end");
    let fresh = format!("{before}<!-- screen -->\n```text\n{frame}```\n<!-- end -->{after}");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(CHAPTER, &fresh).expect("the chapter can be written");
    }
    assert!(fresh == chapter, "docs/src/top.md is stale; refresh it with BLESS=1");
}
