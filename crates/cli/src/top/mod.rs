//! `thermocline top`: a live screen of the running daemon, or of a recording.
//!
//! [`reading`] types the daemon's answer, [`rates`] compares two of them, [`state`] is what the
//! screen knows, [`input`] what keys mean, [`view`] draws; none of these does I/O. [`poll`] asks
//! the daemon, [`recording`] replays one in its place, [`terminal`] takes the terminal and puts it
//! back.

mod input;
mod poll;
mod rates;
mod reading;
pub mod recording;
mod state;
mod terminal;
mod view;

use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use crossterm::event::{self, Event};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::{FrameSize, Pane};
use crate::output::print;
use input::Action;
use poll::{Follower, Poll};
use reading::Entry;
use recording::Turn;
use state::{Over, State};
use view::Paint;

/// How long a key is waited for before the news is looked at.
const NAP: Duration = Duration::from_millis(50);
/// Time between two readings for one frame.
const ONCE: Duration = Duration::from_millis(1500);

/// Shows the daemon behind `socket` until the user leaves.
///
/// # Errors
/// There is no terminal, no daemon answers at the start, or the terminal fails.
pub fn top(socket: &Path, pane: Pane, every: Duration) -> anyhow::Result<()> {
    require_terminal("thermocline top --once")?;
    let mut state = State::new(pane);
    let mut follower = Follower::new(socket);
    poll::take(&mut state, follower.look()?);
    live(&mut state, &mut Poll::start(follower, every)?)
}

/// What the screen shows, as time goes on.
trait Feed {
    /// Takes what is new. Returns whether there was something.
    fn news(&mut self, state: &mut State) -> bool;

    /// Asks why a page did or did not move. Returns what to show until the answer comes.
    ///
    /// # Errors
    /// Why the question was not taken.
    fn explain(&mut self, entry: &Entry) -> Result<Option<String>, String>;

    /// Goes elsewhere in a recording.
    fn turn(&mut self, turn: Turn, state: &mut State);
}

/// Refuses a live screen where there is no terminal; `instead` prints a frame.
fn require_terminal(instead: &str) -> anyhow::Result<()> {
    if !stdout().is_terminal() || !stdin().is_terminal() {
        bail!(
            "standard input and output have to be a terminal for a live screen; `{instead}` prints one frame, and \
             `thermocline status --json` a daemon's figures"
        );
    }
    Ok(())
}

/// Has the terminal until the user leaves.
fn live(state: &mut State, feed: &mut dyn Feed) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    let mut screen = terminal::Screen::take()?;
    let shown = show(&mut screen, state, feed, &stop);
    drop(screen);
    // A terminal that has gone away is where nobody looks any more.
    if stop.load(Ordering::Relaxed) { Ok(()) } else { shown }
}

/// Draws and obeys keys until the user leaves or a signal comes.
fn show(
    screen: &mut terminal::Screen,
    state: &mut State,
    feed: &mut dyn Feed,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let paint = Paint { colour: has_colours() };
    let mut stale = true;
    while !state.leaving && !stop.load(Ordering::Relaxed) {
        if stale {
            let drawn = screen.terminal.draw(|frame| view::draw(frame, state, paint));
            drawn.context("cannot draw on the terminal")?;
        }
        stale = event::poll(NAP).context("cannot read the terminal's keys")?;
        if stale
            && let Event::Key(key) = event::read().context("cannot read the terminal's keys")?
            && let Some(action) = input::action(key, state)
        {
            if let Action::Time(turn) = action {
                feed.turn(turn, state);
            } else if let Some(entry) = state.act(action, view::rows(state))
                && let Some(text) = feed.explain(&entry).unwrap_or_else(Some)
            {
                state.over = Some(Over::Explained(text, 0));
            }
        }
        stale |= feed.news(state);
    }
    Ok(())
}

/// Prints one frame as text.
///
/// # Errors
/// No daemon answers, or the frame cannot be printed.
pub fn once(socket: &Path, pane: Pane, size: FrameSize) -> anyhow::Result<()> {
    let mut state = State::new(pane);
    let mut follower = Follower::new(socket);
    poll::take(&mut state, follower.look()?);
    // Rates need two readings.
    std::thread::sleep(ONCE);
    poll::take(&mut state, follower.look()?);
    print(text(&state, size)?)
}

/// A frame as text, without spaces at the ends of lines.
fn text(state: &State, (columns, rows): FrameSize) -> anyhow::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows))?;
    terminal.draw(|frame| view::draw(frame, state, Paint { colour: false }))?;
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    for cells in buffer.content().chunks(columns.into()) {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    Ok(out)
}

/// Whether colours are wanted, as <https://no-color.org> has it.
fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests;
