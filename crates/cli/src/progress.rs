//! Progress of long work on a terminal. Ctrl-C ends the work, and what is done so far is kept.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::output::{draw, tell};
use crate::recorded::bytes;

/// Time between two states of a progress bar.
const EVERY: Duration = Duration::from_millis(100);

/// Counts runs, and shows their number on standard error if that is a terminal.
#[derive(Debug)]
pub struct Progress {
    /// Set by Ctrl-C.
    pub stop: Arc<AtomicBool>,
    all: u64,
    done: AtomicU64,
    shown: bool,
}

impl Progress {
    /// For `all` runs.
    ///
    /// # Errors
    /// Ctrl-C cannot be caught.
    pub fn new(all: u64) -> anyhow::Result<Progress> {
        let stop = Arc::new(AtomicBool::new(false));
        // A second Ctrl-C ends the program at once.
        signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone()))
            .context("cannot catch Ctrl-C")?;
        let progress =
            Progress { stop, all, done: AtomicU64::new(0), shown: std::io::stderr().is_terminal() };
        progress.show(0);
        Ok(progress)
    }

    /// A run is done.
    pub fn one(&self) {
        self.show(self.done.fetch_add(1, Ordering::Relaxed) + 1);
    }

    /// Whether Ctrl-C was pressed.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn show(&self, done: u64) {
        if self.shown {
            let bar = (30 * done / self.all.max(1)) as usize;
            draw(format_args!("\r[{:<30}] {done} of {} runs", "#".repeat(bar.min(30)), self.all));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            clear();
        }
        if self.stopped() {
            tell!("stopped; what follows is what was done so far");
        }
    }
}

/// How much of an input was read, on standard error if that is a terminal.
#[derive(Debug)]
pub struct Bytes {
    what: &'static str,
    /// Bytes of all of it, where that is known.
    all: Option<u64>,
    shown: bool,
    next: Instant,
}

impl Bytes {
    /// While `what` is done with `all` bytes.
    pub fn new(what: &'static str, all: Option<u64>) -> Bytes {
        Bytes { what, all, shown: std::io::stderr().is_terminal(), next: Instant::now() }
    }

    /// So many bytes have been read.
    pub fn show(&mut self, done: u64) {
        if !self.shown || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        let read = bytes(done);
        match self.all {
            None => draw(format_args!("\r{} ... {read}   ", self.what)),
            Some(all) => {
                let bar = (u128::from(done) * 30 / u128::from(all.max(1))).min(30) as usize;
                draw(format_args!("\r{} [{:<30}] {read} of {}   ", self.what, "#".repeat(bar), bytes(all)));
            }
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if self.shown {
            clear();
        }
    }
}

/// Shows `what` on a terminal while `work` runs.
pub fn shown_while<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    draw(format_args!("\r{what}"));
    let done = work();
    clear();
    done
}

/// Clears the progress line.
fn clear() {
    draw(format_args!("\r{:78}\r", ""));
}
