//! Ensures that the daemon ends when it is asked to, with every setting restored, even if its loop
//! hangs.
//!
//! Normally the loop ends and restores the settings itself. A thread watches that this happens in
//! time. If it does not, or a second signal asks for haste, the thread restores the settings and
//! ends the process. A thread that is blocked in a system call stays until that call returns.

use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thermocline_core::units::Nanos;
use thermocline_linux::actuator::{Deputy, RestoreReport};
use thermocline_linux::machine::now;

use crate::output::{self, tell};

/// Signals that end the daemon. In a terminal SIGHUP is one too: it means that the terminal is
/// gone.
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// The controlling terminal. It can be opened only if the process has one.
const TERMINAL: &str = "/dev/tty";
/// How long the loop may take to end.
const BOUND: Duration = Duration::from_secs(10);
/// Time between two checks of the loop.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Exit status after a second signal.
const EXIT_HURRIED: i32 = 130;
/// Exit status of a panic.
const EXIT_PANIC: i32 = 101;

/// State that the loop and the thread share.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// A signal has come.
    stop: Arc<AtomicBool>,
    /// A signal asks to reload the configuration.
    reload: Arc<AtomicBool>,
    common: Arc<Common>,
}

#[derive(Debug)]
struct Common {
    panicked: AtomicBool,
    /// When the session ends, ns.
    end: AtomicU64,
    deputy: Mutex<Option<Deputy>>,
}

impl Default for Common {
    fn default() -> Common {
        Common { panicked: AtomicBool::new(false), end: AtomicU64::new(u64::MAX), deputy: Mutex::default() }
    }
}

/// Why the thread does not wait for the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The loop has not ended in time.
    Late,
    /// A second signal came.
    Hurry,
    /// The loop has panicked, and has not ended in time.
    Panicked,
}

impl Ending {
    /// Handles signals from here on, and watches this thread, which will run the loop.
    ///
    /// # Errors
    /// Signals cannot be handled, or the thread cannot be started.
    pub fn watch() -> anyhow::Result<Ending> {
        let ending = Ending::default();
        let hurried = Arc::new(AtomicBool::new(false));
        let mut signals = SIGNALS.to_vec();
        if std::fs::File::open(TERMINAL).is_ok() {
            signals.push(SIGHUP);
        } else {
            signal_hook::flag::register(SIGHUP, Arc::clone(&ending.reload))
                .context("cannot handle signals")?;
        }
        for &signal in &signals {
            // While the thread ends the process, another signal ends it at once. The next start or
            // `restore` then restores the remaining settings.
            signal_hook::flag::register_conditional_shutdown(signal, EXIT_HURRIED, Arc::clone(&hurried))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&ending.stop)))
                .context("cannot handle signals")?;
        }
        let signals = Signals::new(signals).context("cannot handle signals")?;
        let (common, main) = (Arc::clone(&ending.common), thread::current().id());
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == main {
                common.panicked.store(true, Ordering::Relaxed);
            }
            hook(panic);
        }));
        let theirs = ending.clone();
        thread::Builder::new()
            .name("ending".to_owned())
            .spawn(move || theirs.serve(signals, &hurried))
            .context("cannot start the thread that sees to the end")?;
        Ok(ending)
    }

    /// Whether a signal has asked the daemon to end.
    pub fn is_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether a signal has asked for a reload since the last call.
    pub fn is_reload_asked(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Acts like a signal.
    #[cfg(test)]
    pub fn ask(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Sets the latest time at which the session ends.
    pub fn at(&self, end: Nanos) {
        self.common.end.store(end.0, Ordering::Relaxed);
    }

    /// Sets the deputy, which restores the settings if the loop does not. It replaces the previous
    /// deputy.
    pub fn set_deputy(&self, deputy: Option<Deputy>) {
        *self.common.deputy.lock().unwrap_or_else(PoisonError::into_inner) = deputy;
    }

    fn serve(&self, mut signals: Signals, hurried: &AtomicBool) {
        let (mut asked, mut came) = (None, 0);
        loop {
            thread::sleep(LOOK_EVERY);
            came += signals.pending().count();
            let panicked = self.common.panicked.load(Ordering::Relaxed);
            let over = now().0 >= self.common.end.load(Ordering::Relaxed);
            if asked.is_none() && (came > 0 || panicked || over) {
                asked = Some(Instant::now());
            }
            let late = asked.is_some_and(|asked| asked.elapsed() >= BOUND);
            let why = match (came > 1, late) {
                (true, _) => Why::Hurry,
                (false, true) if panicked => Why::Panicked,
                (false, true) => Why::Late,
                (false, false) => continue,
            };
            hurried.store(true, Ordering::Relaxed);
            self.end_now(why);
        }
    }

    /// Ends the process in the loop's place.
    fn end_now(&self, why: Why) -> ! {
        let mut deputy = self.common.deputy.lock().unwrap_or_else(PoisonError::into_inner).take();
        let report = deputy.as_mut().and_then(Deputy::restore);
        let status = status(why, report.as_ref());
        tell!("{}", words(why, report.as_ref()));
        output::settle();
        exit(status)
    }
}

fn status(why: Why, report: Option<&RestoreReport>) -> i32 {
    let complete = report.is_none_or(|report| report.is_complete() && report.log_failure.is_none());
    match (why, complete) {
        (Why::Hurry, _) => EXIT_HURRIED,
        (Why::Panicked, _) => EXIT_PANIC,
        (Why::Late, complete) => i32::from(!complete),
    }
}

fn words(why: Why, report: Option<&RestoreReport>) -> String {
    let why = match why {
        Why::Late => format!("the daemon did not end within {} s and is not waited for", BOUND.as_secs()),
        Why::Hurry => "a second signal came, and the daemon is not waited for".to_owned(),
        Why::Panicked => {
            format!("after a panic the daemon did not end within {} s; please report this", BOUND.as_secs())
        }
    };
    match report {
        Some(report) if !report.is_empty() => format!("{why}; settings put back in its place:\n{report}"),
        _ => format!("{why}; no setting was left to put back"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_whether_settings_are_back() {
        let back = RestoreReport::default();
        let open = RestoreReport { log_failure: Some("no space".to_owned()), ..RestoreReport::default() };
        assert_eq!([None, Some(&back), Some(&open)].map(|report| status(Why::Late, report)), [0, 0, 1]);
        assert_eq!((status(Why::Hurry, Some(&open)), status(Why::Panicked, None)), (130, 101));
        assert!(words(Why::Late, None).contains("no setting was left"));
        assert!(words(Why::Hurry, Some(&open)).contains("no space"));
    }
}
