//! Work that may hang on another process, done aside so that whoever needs it waits for a bounded time only.
//!
//! Most of what the kernel tells of a process's memory takes that process's mmap lock, and somebody may hold the lock for ever: a thread that
//! faults on a mapping of a dead network file system while another one waits to map something. A call that waits for it cannot be ended. So it is made on
//! a thread of its own kind; where it does not come back in time, the thread is left to it, the process is set aside, and another thread takes the next call.
//! That the call returns at last is the sign that the process can be asked again: nobody has to try.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thermocline_core::units::Pid;

use crate::root::{Root, read_optional};

/// Threads of one [`Aside`] that may be left to calls which do not return; beyond that nothing is tried until one does.
const LEFT_MAX: usize = 8;
/// Messages that wait to be told.
const NEWS_MAX: usize = 64;

/// What there is to tell of processes that were set aside.
static NEWS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Calls given up, ever.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// The process keeps whoever asks for it waiting: it was set aside, or too many others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process {} keeps whoever looks at its memory waiting", .0.0)]
pub struct Hung(pub Pid);

impl From<Hung> for io::Error {
    fn from(hung: Hung) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, hung)
    }
}

/// What has been set aside since the last call, a sentence each.
pub fn news() -> Vec<String> {
    std::mem::take(&mut *lock(&NEWS))
}

/// Calls that did not return in time since the start.
pub fn given_up() -> u64 {
    GIVEN_UP.load(Ordering::Relaxed)
}

type Job = Box<dyn FnOnce() + Send>;

/// Makes calls that may hang.
pub struct Aside {
    root: Root,
    /// What the calls are for, in words.
    what: &'static str,
    /// How long a call may take.
    bound: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The thread that waits for a call.
    hand: Option<Sender<Job>>,
    left: Vec<Left>,
}

/// A call that was given up.
struct Left {
    pid: Pid,
    returned: Arc<AtomicBool>,
}

/// Marks a call as returned when it is dropped, also where the call panics.
struct OnReturn(Arc<AtomicBool>);

impl Drop for OnReturn {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("what", &self.what).finish_non_exhaustive()
    }
}

impl Aside {
    /// For calls that are to return within `bound`; `what` says what they are for, as in "while {what}".
    pub fn new(root: &Root, what: &'static str, bound: Duration) -> Aside {
        Aside { root: root.clone(), what, bound, state: Mutex::default() }
    }

    /// What `work`, which looks at or changes the memory of `pid`, returns.
    ///
    /// # Errors
    /// It does not return in time, or an earlier one of this process has not returned yet.
    pub fn ask<T: Send + 'static>(
        &self,
        pid: Pid,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hung> {
        let mut state = lock(&self.state);
        state.left.retain(|left| !left.returned.load(Ordering::Acquire));
        if state.left.len() >= LEFT_MAX || state.left.iter().any(|left| left.pid == pid) {
            return Err(Hung(pid));
        }
        let (tell, told) = sync_channel(1);
        let returned = Arc::new(AtomicBool::new(false));
        let mark = OnReturn(Arc::clone(&returned));
        let job = Box::new(move || {
            let result = work();
            drop(mark);
            // Whoever asked may have given up.
            let _ = tell.send(result);
        });
        let hand = match state.hand.take() {
            Some(hand) => hand,
            None => hand().map_err(|_| Hung(pid))?,
        };
        hand.send(job).map_err(|_| Hung(pid))?;
        match told.recv_timeout(self.bound) {
            Ok(result) => {
                state.hand = Some(hand);
                Ok(result)
            }
            // The thread ends when its call returns, because nobody has its other end any more.
            Err(RecvTimeoutError::Timeout) => {
                state.left.push(Left { pid, returned });
                self.tell(pid);
                Err(Hung(pid))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Hung(pid)),
        }
    }

    fn tell(&self, pid: Pid) {
        GIVEN_UP.fetch_add(1, Ordering::Relaxed);
        // The name, unlike the command line, is read without the process's mmap lock.
        let comm = read_optional(&self.root.proc.join(pid.0.to_string()).join("comm")).ok().flatten();
        let comm: String = comm.unwrap_or_default().trim_end().escape_default().collect();
        let mut news = lock(&NEWS);
        if news.len() < NEWS_MAX {
            news.push(format!(
                "process {} ({comm}) is set aside until it lets its memory be looked at: it kept us waiting for {} ms while {}",
                pid.0,
                self.bound.as_millis(),
                self.what
            ));
        }
    }
}

/// A thread that makes calls until its other end is dropped.
fn hand() -> io::Result<Sender<Job>> {
    let (give, jobs) = channel::<Job>();
    std::thread::Builder::new().name("aside".to_owned()).spawn(move || jobs.iter().for_each(|job| job()))?;
    Ok(give)
}

/// No value behind these locks is ever half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::time::Instant;

    use super::*;

    fn aside() -> Aside {
        Aside::new(&Root::at("/nonexistent"), "a test looks at it", Duration::from_millis(200))
    }

    /// A call that returns when the sender is dropped.
    fn hangs() -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (end, until): (Sender<()>, Receiver<()>) = channel();
        (end, move || until.recv().unwrap_or_default())
    }

    #[test]
    fn a_process_that_hangs_is_set_aside_until_its_call_returns_and_others_go_on() {
        let aside = aside();
        assert_eq!(aside.ask(Pid(1), || 5), Ok(5));
        let (end, call) = hangs();
        assert_eq!(aside.ask(Pid(4_000_007), call), Err(Hung(Pid(4_000_007))));
        assert_eq!(aside.ask(Pid(1), || 6), Ok(6));
        let start = Instant::now();
        assert_eq!(aside.ask(Pid(4_000_007), || ()), Err(Hung(Pid(4_000_007))));
        assert!(start.elapsed() < Duration::from_millis(150), "it is not waited for twice");
        assert!(news().iter().any(|told| told.contains("process 4000007 ")) && given_up() > 0);
        drop(end);
        let start = Instant::now();
        while aside.ask(Pid(4_000_007), || ()).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_that_are_left_behind_are_bounded() {
        let aside = Aside::new(&Root::at("/nonexistent"), "testing", Duration::from_millis(5));
        let mut ends = Vec::new();
        for pid in 0..LEFT_MAX as u32 {
            let (end, call) = hangs();
            ends.push(end);
            assert!(aside.ask(Pid(pid), call).is_err());
        }
        assert_eq!(aside.ask(Pid(100), || 1), Err(Hung(Pid(100))), "nothing more is tried");
        ends.clear();
        let start = Instant::now();
        while aside.ask(Pid(100), || 1).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_call_that_panics_is_no_end_of_all() {
        let aside = aside();
        assert!(aside.ask(Pid(1), || panic!("as a test wants")).is_err());
        // To tell of the panic may take longer than a call may.
        let start = Instant::now();
        while aside.ask(Pid(1), || 2) != Ok(2) {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
    }
}
