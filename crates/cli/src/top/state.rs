//! What the screen knows: readings and decisions go in, rates come out. No clock, no I/O.

use std::collections::VecDeque;

use thermocline_core::units::Nanos;

use super::input::Action;
use super::rates::{self, Rates};
use super::reading::{Decided, Entry, Reading};
use crate::args::Pane;

/// Decisions that are kept.
pub const DECISIONS_KEPT: usize = 1000;

/// What lies over the panes.
#[derive(Clone, Debug, PartialEq)]
pub enum Over {
    /// The keys.
    Help,
    /// Why a page did or did not move, and the first line shown.
    Explained(String, usize),
}

/// What came from the daemon.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The newest reading.
    pub reading: Option<Reading>,
    /// Rates up to it.
    pub rates: Rates,
    /// The latest decisions, oldest first.
    pub decisions: VecDeque<Entry>,
    /// Why there are no decisions, if so.
    pub undecided: Option<String>,
    /// Why the daemon does not answer, if so.
    pub gone: Option<String>,
}

/// Where a user is in a pane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The selected row.
    pub row: usize,
    /// The order, an index into [`Pane::orders`].
    pub order: usize,
}

/// Where in a recording the screen is.
#[derive(Clone, Debug)]
pub struct Playback {
    /// The recording.
    pub name: String,
    /// The moment, since its start.
    pub at: Nanos,
    /// How long it is.
    pub of: Nanos,
    /// Whether its times are no time but an order.
    pub untimed: bool,
    /// The wall clock at the moment, if it is known.
    pub clock: Option<String>,
    /// Whether it goes on.
    pub playing: bool,
    /// Whether it is at the end.
    pub ended: bool,
    /// How many times as fast as it was.
    pub speed: u32,
    /// What is to be said of the figures, and whether it is bad.
    pub told: (String, bool),
}

/// All that the screen shows.
#[derive(Debug)]
pub struct State {
    live: Live,
    frozen: Option<Live>,
    /// The pane that keys go to.
    pub pane: Pane,
    places: [Place; 5],
    /// Rows are shown if they contain this.
    pub filter: String,
    /// Whether keys go to the filter.
    pub typing: bool,
    /// What lies over the panes.
    pub over: Option<Over>,
    /// Whether the user wants to leave.
    pub leaving: bool,
    /// Where in a recording it is, if it is one that is shown.
    pub playback: Option<Playback>,
}

impl State {
    /// At the start, with `pane` in front.
    pub fn new(pane: Pane) -> State {
        State {
            live: Live::default(),
            frozen: None,
            pane,
            places: [Place::default(); 5],
            filter: String::new(),
            typing: false,
            over: None,
            leaving: false,
            playback: None,
        }
    }

    /// What is shown: the newest, or what there was when the screen was paused.
    pub fn shown(&self) -> &Live {
        self.frozen.as_ref().unwrap_or(&self.live)
    }

    /// Whether the screen stands still.
    pub fn is_paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// Takes a reading. `None`: the daemon has just started.
    pub fn read(&mut self, reading: Option<Reading>) {
        let live = &mut self.live;
        live.gone = None;
        let (Some(before), Some(now)) = (&live.reading, &reading) else {
            live.rates = Rates::default();
            live.reading = reading;
            return;
        };
        if !rates::continues(before, now) {
            // Another run: what was counted and decided before does not belong to it.
            live.rates = Rates::default();
            live.decisions.clear();
        } else if let Some(rates) = Rates::between(before, now) {
            live.rates = rates;
        }
        // Of the same snapshot once more, how late the loop is may still be new.
        live.reading = reading;
    }

    /// Takes decisions, or why there are none.
    pub fn decided(&mut self, decided: Result<Decided, String>) {
        match decided {
            Ok(found) => {
                self.live.undecided = None;
                // A selected decision stays selected while newer ones come in above it.
                let place = self.places[Pane::Decisions as usize].row;
                if place > 0 && self.frozen.is_none() {
                    let above = found.decisions.iter().filter(|entry| self.is_wanted(entry)).count();
                    self.places[Pane::Decisions as usize].row = place + above;
                }
                self.live.decisions.extend(found.decisions);
                let beyond = self.live.decisions.len().saturating_sub(DECISIONS_KEPT);
                self.live.decisions.drain(..beyond);
            }
            Err(why) => self.live.undecided = Some(why),
        }
    }

    /// Shows a moment of a recording.
    pub fn stands(&mut self, reading: Reading, rates: Rates, decisions: Vec<Entry>) {
        self.live = Live { reading: Some(reading), rates, decisions: decisions.into(), ..Live::default() };
    }

    /// The daemon does not answer. What it said last stays, and is told to be old.
    pub fn gone(&mut self, why: String) {
        self.live.gone = Some(why);
        self.live.rates = Rates::default();
    }

    /// Where the user is in a pane.
    pub fn place(&self, pane: Pane) -> Place {
        self.places[pane as usize]
    }

    /// The name of the order of a pane's rows.
    pub fn order(&self, pane: Pane) -> &'static str {
        let orders = pane.orders();
        orders.get(self.place(pane).order % orders.len().max(1)).copied().unwrap_or_default()
    }

    /// Whether a row with these words is shown.
    pub fn passes(&self, words: &[&str]) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || words.iter().any(|word| word.to_lowercase().contains(&wanted))
    }

    /// The decisions that are shown, newest first.
    pub fn decisions(&self) -> Vec<&Entry> {
        self.shown().decisions.iter().rev().filter(|entry| self.is_wanted(entry)).collect()
    }

    fn is_wanted(&self, entry: &Entry) -> bool {
        let page = || format!("{}:{:#x}", entry.page.pid.0, entry.address());
        self.filter.is_empty() || self.passes(&[&entry.what, entry.cause(), &entry.why, &page()])
    }

    /// Does what a key asks for; `rows` is the number of rows of the pane in front. Returns the
    /// decision that is to be explained, if any.
    pub fn act(&mut self, action: Action, rows: usize) -> Option<Entry> {
        let last = rows.saturating_sub(1);
        let row = self.place(self.pane).row.min(last);
        match action {
            Action::Quit => self.leaving = true,
            Action::Close => {
                if self.over.take().is_none() {
                    self.filter.clear();
                }
            }
            Action::Help => self.over = Some(Over::Help),
            Action::Pause => {
                self.frozen = if self.frozen.is_some() { None } else { Some(self.live.clone()) };
            }
            Action::Time(_) => {}
            Action::Pane(pane) => self.pane = pane,
            Action::Next(step) => {
                let to = (self.pane as usize as isize + step).rem_euclid(Pane::ALL.len() as isize);
                self.pane = Pane::ALL[to as usize];
            }
            Action::Sort => self.places[self.pane as usize].order += 1,
            Action::Filter => self.typing = true,
            Action::Type(c) => self.filter.push(c),
            Action::Erase => drop(self.filter.pop()),
            Action::Typed => self.typing = false,
            Action::Move(by) => match &mut self.over {
                Some(Over::Explained(text, first)) => {
                    let last = text.lines().count().saturating_sub(1);
                    *first = first.saturating_add_signed(by).min(last);
                }
                _ => self.places[self.pane as usize].row = row.saturating_add_signed(by).min(last),
            },
            Action::Explain => {
                if self.pane == Pane::Decisions {
                    return self.decisions().get(row).map(|entry| (*entry).clone());
                }
            }
        }
        None
    }
}
