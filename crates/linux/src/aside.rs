//! Calls that may hang on another process, made on separate threads so that the caller waits for a
//! bounded time only.
//!
//! Most of the kernel's information about a process's memory takes that process's mmap lock, which
//! may be held for ever: by a thread that faults on a mapping of a dead network file system while
//! another one waits to map something. A call that waits for it cannot be ended. So it is made on a
//! separate thread. If it does not return in time, the thread is abandoned, the process is set
//! aside, and another thread takes the next call. When the call returns at last, the process can be
//! asked again, so no retries are needed.
//!
//! A worker waits for its call ([`Aside::ask`]). The machine's loop has other work and fetches the
//! answer later ([`Later`]).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thermocline_core::units::Pid;

use crate::root::{Root, read_optional};

/// Calls of one [`Aside`] that may be pending; beyond that nothing is tried until one returns.
const OUT_MAX: usize = 64;
/// Bytes of a thread's stack: it reads a file, or makes a call, and no more.
const STACK_BYTES: usize = 256 << 10;
/// How long a thread waits for another call.
const IDLE: Duration = Duration::from_secs(10);
/// How long an answer is kept for its caller.
const KEPT: Duration = Duration::from_secs(10);
/// Maximum number of messages waiting to be reported.
const NEWS_MAX: usize = 64;

/// Messages about processes that were set aside.
static NEWS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Calls given up, ever.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// The process blocks its readers: it was set aside, or too many others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("process {} keeps whoever looks at its memory waiting", .0.0)]
pub struct Hung(pub Pid);

impl From<Hung> for io::Error {
    fn from(hung: Hung) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, hung)
    }
}

/// The processes set aside since the last call, a sentence each.
pub fn news() -> Vec<String> {
    std::mem::take(&mut *lock(&NEWS))
}

/// Calls that did not return in time since the start.
pub fn given_up() -> u64 {
    GIVEN_UP.load(Ordering::Relaxed)
}

type Job = Box<dyn FnOnce() + Send>;

/// Makes calls that may hang. Any number of threads may ask at once.
pub struct Aside {
    root: Root,
    /// The purpose of the calls, in words.
    what: &'static str,
    /// How long a call may take.
    bound: Duration,
    hands: Arc<Hands>,
}

/// The threads that make the calls.
#[derive(Default)]
struct Hands {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    out: Vec<Out>,
    closed: bool,
}

/// A call that has not returned.
struct Out {
    pid: Pid,
    returned: Arc<AtomicBool>,
    given_up: bool,
}

/// A call, and the channel of its answer.
#[derive(Debug)]
struct Call<T> {
    begun: Instant,
    returned: Arc<AtomicBool>,
    told: Receiver<T>,
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
    /// For calls that should return within `bound`; `what` is their purpose, as in "while {what}".
    pub fn new(root: &Root, what: &'static str, bound: Duration) -> Aside {
        Aside { root: root.clone(), what, bound, hands: Arc::default() }
    }

    /// Returns the result of `work`, which reads or changes the memory of `pid`.
    ///
    /// # Errors
    /// It does not return in time, or an earlier one of this process has not returned yet.
    pub fn ask<T: Send + 'static>(
        &self,
        pid: Pid,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hung> {
        let call = self.begin(pid, work)?;
        call.told.recv_timeout(self.bound).map_err(|error| {
            if error == RecvTimeoutError::Timeout {
                self.give_up(pid, &call.returned);
            }
            Hung(pid)
        })
    }

    /// Has a thread begin a call.
    fn begin<T: Send + 'static>(
        &self,
        pid: Pid,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Call<T>, Hung> {
        let mut state = lock(&self.hands.state);
        state.out.retain(|out| !out.returned.load(Ordering::Acquire));
        if state.out.len() >= OUT_MAX || state.out.iter().any(|out| out.pid == pid && out.given_up) {
            return Err(Hung(pid));
        }
        if state.idle <= state.jobs.len() {
            hand(&self.hands).map_err(|_| Hung(pid))?;
        }
        let (tell, told) = sync_channel(1);
        let returned = Arc::new(AtomicBool::new(false));
        let mark = OnReturn(Arc::clone(&returned));
        state.jobs.push_back(Box::new(move || {
            let result = work();
            drop(mark);
            // The caller may have given up.
            let _ = tell.send(result);
        }));
        state.out.push(Out { pid, returned: Arc::clone(&returned), given_up: false });
        self.hands.given.notify_one();
        Ok(Call { begun: Instant::now(), returned, told })
    }

    /// A call has not returned in time: sets its process aside until it does, and reports it.
    fn give_up(&self, pid: Pid, returned: &Arc<AtomicBool>) {
        let mut state = lock(&self.hands.state);
        for out in state.out.iter_mut().filter(|out| Arc::ptr_eq(&out.returned, returned)) {
            out.given_up = true;
        }
        drop(state);
        self.tell(pid);
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

impl Drop for Aside {
    fn drop(&mut self) {
        lock(&self.hands.state).closed = true;
        self.hands.given.notify_all();
    }
}

/// Starts a thread that makes calls.
fn hand(hands: &Arc<Hands>) -> io::Result<()> {
    let hands = Arc::clone(hands);
    let work = move || {
        while let Some(job) = next(&hands) {
            job();
        }
    };
    std::thread::Builder::new().name("aside".to_owned()).stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// The next job; `None` after a long time without one, or if none will come.
fn next(hands: &Hands) -> Option<Job> {
    let mut state = lock(&hands.state);
    loop {
        if let Some(job) = state.jobs.pop_front() {
            return Some(job);
        }
        if state.closed {
            return None;
        }
        state.idle += 1;
        let (locked, waited) = hands.given.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = locked;
        state.idle -= 1;
        if waited.timed_out() && state.jobs.is_empty() {
            return None;
        }
    }
}

/// The state of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// It has arrived.
    Here(T),
    /// Ask again later.
    NotYet,
    /// The process is set aside.
    Hung,
}

/// Calls whose answers are fetched later, for callers that must not wait: a call that does not
/// return at once continues on its thread, and a later request gets its answer.
#[derive(Debug)]
pub struct Later<T> {
    aside: Aside,
    /// How long the first request waits for the answer.
    patience: Duration,
    /// By process and when it started: another process with the same number has other answers.
    waiting: BTreeMap<(Pid, u64), Call<T>>,
}

impl<T: Send + 'static> Later<T> {
    /// For calls for which the first request waits `patience`, and which are given up after the
    /// bound of `aside`.
    pub fn new(aside: Aside, patience: Duration) -> Later<T> {
        Later { aside, patience, waiting: BTreeMap::new() }
    }

    /// Returns the result of `work`, which reads the memory of the process with this number and
    /// start time; starts the call if necessary.
    pub fn ask(
        &mut self,
        (pid, start_time): (Pid, u64),
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Answer<T> {
        let key = (pid, start_time);
        let (call, patience) = match self.waiting.remove(&key) {
            Some(call) => (call, Duration::ZERO),
            None => match self.aside.begin(pid, work) {
                Ok(call) => (call, self.patience),
                Err(Hung(_)) => return Answer::Hung,
            },
        };
        match call.told.recv_timeout(patience) {
            Ok(told) => Answer::Here(told),
            Err(RecvTimeoutError::Disconnected) => Answer::Hung,
            Err(RecvTimeoutError::Timeout) if call.begun.elapsed() >= self.aside.bound => {
                self.aside.give_up(pid, &call.returned);
                Answer::Hung
            }
            Err(RecvTimeoutError::Timeout) => {
                self.tidy();
                self.waiting.insert(key, call);
                Answer::NotYet
            }
        }
    }

    /// Whether asking again returns something other than [`Answer::NotYet`], or starts a call.
    pub fn is_ready(&self, key: (Pid, u64)) -> bool {
        self.waiting.get(&key).is_none_or(|call| {
            call.returned.load(Ordering::Acquire) || call.begun.elapsed() >= self.aside.bound
        })
    }

    /// Discards earlier calls: answers about the process must come from calls made after this.
    pub fn forget(&mut self, pid: Pid) {
        self.waiting.retain(|(of, _), _| *of != pid);
    }

    /// Gives up hanging calls that are not asked for again, and drops answers that were not
    /// fetched.
    fn tidy(&mut self) {
        let Later { aside, waiting, .. } = self;
        waiting.retain(|(pid, _), call| match call.begun.elapsed() {
            age if age < aside.bound.max(KEPT) => true,
            _ => {
                if call.told.try_recv().err() == Some(TryRecvError::Empty) {
                    aside.give_up(*pid, &call.returned);
                }
                false
            }
        });
    }
}

/// Returns the result of `work`, run on a separate thread; `None` if it does not return within
/// `bound`. For calls that may hang on something other than a process.
pub(crate) fn within<T: Send + 'static>(
    bound: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = sync_channel(1);
    let work = move || {
        // The caller may have given up.
        let _ = tell.send(work());
    };
    std::thread::Builder::new().name("within".to_owned()).spawn(work).ok()?;
    told.recv_timeout(bound).ok()
}

/// No value behind these locks is ever half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

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
        for pid in 0..OUT_MAX as u32 {
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
        // Reporting the panic may take longer than the bound of a call.
        let start = Instant::now();
        while aside.ask(Pid(1), || 2) != Ok(2) {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_asks_waits_for_no_other_asker() {
        let aside = Arc::new(aside());
        let (end, call) = hangs();
        let other = {
            let aside = Arc::clone(&aside);
            std::thread::spawn(move || aside.ask(Pid(4_000_011), call))
        };
        while lock(&aside.hands.state).out.is_empty() {
            std::thread::yield_now();
        }
        let start = Instant::now();
        assert_eq!(aside.ask(Pid(1), || 5), Ok(5));
        assert!(start.elapsed() < Duration::from_millis(150), "{:?}", start.elapsed());
        assert!(other.join().unwrap().is_err());
        drop(end);
    }

    #[test]
    fn an_answer_that_is_late_is_fetched_and_a_process_that_hangs_costs_its_patience_once() {
        let aside = Aside::new(&Root::at("/nonexistent"), "a test asked", Duration::from_millis(300));
        let mut later = Later::new(aside, Duration::from_millis(20));
        assert_eq!(later.ask((Pid(1), 7), || 5), Answer::Here(5));
        let (late, hung) = ((Pid(2), 7), (Pid(4_000_013), 7));
        let (end, call) = hangs();
        let slow = move || {
            call();
            6
        };
        assert_eq!(later.ask(late, slow), Answer::NotYet);
        drop(end);
        let start = Instant::now();
        let answer = loop {
            match later.ask(late, || 0) {
                Answer::NotYet => assert!(start.elapsed() < Duration::from_secs(20)),
                answer => break answer,
            }
        };
        // A very busy machine may have taken too long.
        assert!(matches!(answer, Answer::Here(6) | Answer::Hung), "{answer:?}");

        let (end, call) = hangs();
        let never = move || {
            call();
            0
        };
        assert_eq!(later.ask(hung, never), Answer::NotYet);
        let (start, mut asked) = (Instant::now(), 0);
        while later.ask(hung, || 1) == Answer::NotYet {
            asked += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(asked > 3 && start.elapsed() < Duration::from_secs(20), "{asked} asked");
        assert!(news().iter().any(|told| told.contains("process 4000013 ")));
        assert_eq!(later.ask(hung, || 1), Answer::Hung);
        assert_eq!(later.ask((Pid(3), 7), || 8), Answer::Here(8));
        drop(end);
    }

    #[test]
    fn what_was_asked_before_is_no_answer_for_who_must_know_anew() {
        let aside = Aside::new(&Root::at("/nonexistent"), "a test asked", Duration::from_secs(60));
        let mut later = Later::new(aside, Duration::from_millis(1));
        let (end, call) = hangs();
        let before = move || {
            call();
            "before"
        };
        assert_eq!(later.ask((Pid(5), 1), before), Answer::NotYet);
        drop(end);
        later.forget(Pid(5));
        let start = Instant::now();
        loop {
            match later.ask((Pid(5), 1), || "after") {
                Answer::NotYet => assert!(start.elapsed() < Duration::from_secs(20)),
                answer => break assert_eq!(answer, Answer::Here("after")),
            }
        }
    }

    #[test]
    fn what_hangs_on_no_process_is_left_as_well() {
        let (end, call) = hangs();
        assert_eq!(within(Duration::from_millis(20), call), None);
        assert_eq!(within(Duration::from_secs(20), || 3), Some(3));
        drop(end);
    }
}
