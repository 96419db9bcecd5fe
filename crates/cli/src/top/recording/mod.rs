//! `thermocline top DIR`: the screen on a recording.
//!
//! ```text
//!  recording ─▶ rows, engine ─▶ film (moments) ─▶ read ─▶ state ─▶ view
//!                                      player (position) ─┘
//! ```

mod engine;
mod film;
mod player;
mod read;
mod rows;

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use thermocline_core::journal::Decision;
use thermocline_core::units::Nanos;
use thermocline_trace::reader::Recording;

use super::reading::Entry;
use super::state::{Over, Playback, State};
use super::{Feed, live, require_terminal, text};
use crate::args::{FrameSize, Pane};
use crate::output::print;
use crate::progress::shown_while;
use crate::text::decisions;
use film::{Film, nanos};
use player::Player;

pub use player::Turn;

/// Shows a recording until the user leaves.
///
/// # Errors
/// There is no terminal, it is no recording (a [`Damage`](thermocline_trace::part::Damage)), or the
/// terminal fails.
pub fn top(folder: &Path, at: Option<Duration>, pane: Pane) -> anyhow::Result<()> {
    require_terminal("thermocline top DIR --once")?;
    let recording = Recording::open(folder)?;
    let film = shown_while("reading ...", || Film::all(recording));
    let at = at.map(nanos);
    let mut shown = Shown::new(film, at.unwrap_or_default());
    shown.beyond = at.filter(|at| *at > shown.player.length);
    let mut state = State::new(pane);
    shown.show(&mut state);
    live(&mut state, &mut shown)
}

/// Prints one frame of a recording as text: of its end, or of a moment.
///
/// # Errors
/// It is no recording (a [`Damage`](thermocline_trace::part::Damage)), or the frame cannot be
/// printed.
pub fn once(folder: &Path, at: Option<Duration>, pane: Pane, size: FrameSize) -> anyhow::Result<()> {
    let film = Film::at(Recording::open(folder)?, at);
    let length = film.length();
    let mut shown = Shown::new(film, at.map_or(length, nanos));
    shown.beyond = at.map(nanos).filter(|at| *at > length);
    let mut state = State::new(pane);
    shown.show(&mut state);
    print(text(&state, size)?)
}

/// A recording on the screen.
struct Shown {
    film: Film,
    player: Player,
    /// The moment that was asked for, if that is beyond the end.
    beyond: Option<Nanos>,
    /// The moment on the screen.
    on: Option<usize>,
    /// When time was last looked at.
    looked: Instant,
    tell: SyncSender<String>,
    told: Receiver<String>,
    /// Whether an explanation is awaited.
    asked: bool,
}

impl Shown {
    fn new(film: Film, at: Nanos) -> Shown {
        let (tell, told) = sync_channel(1);
        let player = Player::new(at, film.length());
        Shown { film, player, beyond: None, on: None, looked: Instant::now(), tell, told, asked: false }
    }

    /// Brings the state to where the player is.
    fn show(&mut self, state: &mut State) {
        let n = self.film.number(self.player.at);
        let at = self.film.moment(n).map_or(self.player.at, |moment| moment.at);
        let mut told = self.film.told(n);
        if let Some(beyond) = self.beyond.filter(|_| self.player.is_at_end()) {
            let beyond = Duration::from_nanos(beyond.0);
            told.0 =
                format!("this is the end: {} is beyond it; {}", humantime::format_duration(beyond), told.0);
        }
        state.playback = Some(Playback {
            name: self.film.recording().folder().display().to_string(),
            at,
            of: self.player.length,
            untimed: self.film.recording().untimed().is_some(),
            clock: self.film.clock(at),
            playing: self.player.playing,
            ended: self.player.is_at_end(),
            speed: self.player.speed,
            told,
        });
        if self.on.replace(n) != Some(n)
            && let Some((reading, rates, decisions)) = self.film.frame(n)
        {
            state.stands(reading, rates, decisions);
        }
    }

    /// What is recorded of a page, where the engine's state is not known.
    fn recorded(&self, n: usize, entry: &Entry) -> String {
        let all = self.film.moment(n).into_iter().flat_map(|moment| &moment.decisions);
        let found: Vec<Decision> = all.filter(|found| found.page == entry.page).copied().collect();
        let head = "what the engine knew of the page at this moment is unknown; recorded of it lately:\n";
        head.to_owned() + &decisions(&found)
    }
}

impl Feed for Shown {
    fn news(&mut self, state: &mut State) -> bool {
        let now = Instant::now();
        self.player.passes(now.duration_since(self.looked));
        self.looked = now;
        let mut stale = false;
        if let Ok(text) = self.told.try_recv() {
            self.asked = false;
            state.over = Some(Over::Explained(text, 0));
            stale = true;
        }
        if self.on != Some(self.film.number(self.player.at)) {
            self.show(state);
            stale = true;
        }
        stale
    }

    /// Replays from the start, in a thread of its own.
    fn explain(&mut self, entry: &Entry) -> Result<Option<String>, String> {
        let n = self.on.unwrap_or_default();
        let Some(moment) = self.film.moment(n).filter(|moment| moment.known.is_some()) else {
            return Ok(Some(self.recorded(n, entry)));
        };
        if self.asked {
            return Err("a question is still being answered; try again".to_owned());
        }
        let (steps, page, tell) = (moment.steps, entry.page, self.tell.clone());
        let folder = self.film.recording().folder().to_owned();
        let run = move || {
            let opened = Recording::open(&folder).map_err(|damage| damage.to_string());
            let told = opened.and_then(|recording| engine::explain(&recording, steps, page));
            let told = told.unwrap_or_else(|why| format!("the page cannot be explained: {why}"));
            // A screen that has gone needs no answer.
            let _ = tell.try_send(told);
        };
        let started = std::thread::Builder::new().name("explain".to_owned()).spawn(run);
        started.context("cannot start the thread that replays").map_err(|error| format!("{error:#}"))?;
        self.asked = true;
        Ok(Some("replaying up to this moment ...".to_owned()))
    }

    fn turn(&mut self, turn: Turn, state: &mut State) {
        self.player.turn(turn);
        self.beyond = None;
        self.show(state);
    }
}

#[cfg(test)]
mod tests;
