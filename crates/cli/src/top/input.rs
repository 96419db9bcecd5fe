//! What each key means.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::recording::Turn;
use super::state::State;
use crate::args::Pane;

/// Rows that a page key moves by.
const PAGE: isize = 10;
/// Seconds of a long step.
const FAR: i64 = 10;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Leave.
    Quit,
    /// Close what lies over the panes, or else drop the filter.
    Close,
    /// Show the keys.
    Help,
    /// Stand still, or go on.
    Pause,
    /// Go elsewhere in the recording.
    Time(Turn),
    /// To this pane.
    Pane(Pane),
    /// So many panes on.
    Next(isize),
    /// The next order of rows.
    Sort,
    /// Type a filter.
    Filter,
    /// A character of the filter.
    Type(char),
    /// Take back the filter's last character.
    Erase,
    /// The filter is complete.
    Typed,
    /// So many rows down.
    Move(isize),
    /// Explain the selected decision.
    Explain,
}

/// What a key means now.
pub fn action(key: KeyEvent, state: &State) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    // A terminal in raw mode sends no signal for Ctrl-C.
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(key.code, KeyCode::Char('c')).then_some(Action::Quit);
    }
    if state.typing {
        return match key.code {
            KeyCode::Enter => Some(Action::Typed),
            KeyCode::Esc => Some(Action::Typed),
            KeyCode::Backspace => Some(Action::Erase),
            KeyCode::Char(c) => Some(Action::Type(c)),
            _ => None,
        };
    }
    let moving = match key.code {
        KeyCode::Down | KeyCode::Char('j') => Some(1),
        KeyCode::Up | KeyCode::Char('k') => Some(-1),
        KeyCode::PageDown => Some(PAGE),
        KeyCode::PageUp => Some(-PAGE),
        KeyCode::Home => Some(isize::MIN + 1),
        KeyCode::End => Some(isize::MAX),
        _ => None,
    };
    if let Some(by) = moving {
        return Some(Action::Move(by));
    }
    if state.over.is_some() {
        return match key.code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?') => Some(Action::Close),
            _ => None,
        };
    }
    if state.playback.is_some()
        && let Some(turn) = turn(key)
    {
        return Some(Action::Time(turn));
    }
    match key.code {
        KeyCode::Char('q') => Some(Action::Quit),
        KeyCode::Char('?') => Some(Action::Help),
        KeyCode::Char('p') => Some(Action::Pause),
        KeyCode::Char('s') => Some(Action::Sort),
        KeyCode::Char('/') => Some(Action::Filter),
        KeyCode::Char(c @ '1'..='5') => Some(Action::Pane(Pane::ALL[c as usize - '1' as usize])),
        KeyCode::Tab | KeyCode::Right => Some(Action::Next(1)),
        KeyCode::BackTab | KeyCode::Left => Some(Action::Next(-1)),
        KeyCode::Enter => Some(Action::Explain),
        KeyCode::Esc => Some(Action::Close),
        _ => None,
    }
}

/// What a key means to the time of a recording.
fn turn(key: KeyEvent) -> Option<Turn> {
    let far = key.modifiers.contains(KeyModifiers::SHIFT);
    Some(match key.code {
        KeyCode::Char(' ' | 'p') => Turn::Play,
        KeyCode::Char('+' | '=') => Turn::Faster,
        KeyCode::Char('-') => Turn::Slower,
        KeyCode::Left => Turn::Step(if far { -FAR } else { -1 }),
        KeyCode::Right => Turn::Step(if far { FAR } else { 1 }),
        KeyCode::Char('h') => Turn::Step(-1),
        KeyCode::Char('l') => Turn::Step(1),
        KeyCode::Char('H') => Turn::Step(-FAR),
        KeyCode::Char('L') => Turn::Step(FAR),
        KeyCode::Char('g') => Turn::Begin,
        KeyCode::Char('G') => Turn::End,
        _ => return None,
    })
}
