//! Asks the daemon in a thread of its own, so that a slow answer does not keep the keys.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use super::Feed;
use super::reading::{Decided, Entry, Reading};
use super::recording::Turn;
use super::state::State;
use crate::daemon::socket::{Request, ask};
use crate::verb::explain::explain;

/// What the daemon said.
#[derive(Debug)]
pub enum News {
    /// Figures and decisions.
    Read(Box<Option<Reading>>, Result<Decided, String>),
    /// It does not answer.
    Gone(String),
    /// Why a page did or did not move.
    Explained(String),
}

/// A handle to the thread.
#[derive(Debug)]
pub struct Poll {
    news: Receiver<News>,
    pages: SyncSender<(u32, u64)>,
}

/// Follows a daemon's figures and its decisions.
#[derive(Debug)]
pub struct Follower {
    socket: PathBuf,
    since: u64,
    pid: Option<u32>,
}

impl Follower {
    /// Of the daemon behind `socket`.
    pub fn new(socket: &Path) -> Follower {
        Follower { socket: socket.to_owned(), since: 0, pid: None }
    }

    /// Asks once.
    ///
    /// # Errors
    /// No daemon answers, or it is of a version that this one does not understand.
    pub fn look(&mut self) -> anyhow::Result<News> {
        let reading = Reading::of(&ask(&self.socket, &Request::Status { as_text: false })?)?;
        let pid = reading.as_ref().map(|reading| reading.pid);
        if pid != self.pid {
            (self.pid, self.since) = (pid, 0);
        }
        let decided = self.decisions().map_err(|error| format!("no decisions: {error:#}"));
        Ok(News::Read(Box::new(reading), decided))
    }

    fn decisions(&mut self) -> anyhow::Result<Decided> {
        let mut found = self.ask_for_decisions()?;
        // The journal is a younger one: another manager took over.
        if found.next < self.since {
            self.since = 0;
            found = self.ask_for_decisions()?;
        }
        self.since = found.next;
        Ok(found)
    }

    fn ask_for_decisions(&self) -> anyhow::Result<Decided> {
        let answer = ask(&self.socket, &Request::Decisions { since: self.since })?;
        Decided::deserialize(answer).context("they cannot be read by this version; restart the daemon")
    }
}

impl Poll {
    /// Asks every so often from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(mut follower: Follower, every: Duration) -> anyhow::Result<Poll> {
        let (tell, news) = sync_channel(4);
        let (pages, asked) = sync_channel::<(u32, u64)>(1);
        let run = move || {
            loop {
                let said = match asked.recv_timeout(every) {
                    Ok((pid, address)) => {
                        let told = explain(&follower.socket, pid.to_string(), Some(address), false);
                        News::Explained(told.unwrap_or_else(|error| format!("{error:#}")))
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        follower.look().unwrap_or_else(|error| News::Gone(format!("{error:#}")))
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if tell.send(said).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("poll".to_owned())
            .spawn(run)
            .context("cannot start the thread that asks the daemon")?;
        Ok(Poll { news, pages })
    }
}

impl Feed for Poll {
    fn news(&mut self, state: &mut State) -> bool {
        self.news.try_iter().map(|news| take(state, news)).count() > 0
    }

    fn explain(&mut self, entry: &Entry) -> Result<Option<String>, String> {
        let asked = self.pages.try_send((entry.page.pid.0, entry.address()));
        asked.map(|()| None).map_err(|_| "a question is still being answered; try again".to_owned())
    }

    fn turn(&mut self, _: Turn, _: &mut State) {}
}

/// Passes news on to the state.
pub fn take(state: &mut State, news: News) {
    use super::state::Over;

    match news {
        News::Read(reading, decided) => {
            state.read(*reading);
            state.decided(decided);
        }
        News::Gone(why) => state.gone(why),
        News::Explained(text) => state.over = Some(Over::Explained(text, 0)),
    }
}
