//! Work on separate threads, each with a connection, and its report.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::distribution::part;
use super::{Session, Summary, Target, connect};
use crate::programs::say;

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// How soon a signal is noticed.
const NAP: Duration = Duration::from_millis(50);

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Interval { seconds: f64, ops: u64, ops_per_s: f64, errors: u64, wrong: u64 },
    Summary(&'a Summary),
}

/// Work in progress on separate threads.
pub(super) struct Job {
    shared: Arc<Shared>,
    workers: Vec<thread::JoinHandle<()>>,
    limit: Option<Duration>,
    started: Instant,
}

#[derive(Default)]
pub(super) struct Shared {
    stop: Arc<AtomicBool>,
    over: AtomicBool,
    pub(super) ops: AtomicU64,
    errors: AtomicU64,
    wrong: AtomicU64,
    last_error: std::sync::Mutex<Option<String>>,
}

impl Job {
    /// Starts a thread for each of the target's connections; `work` gets its number.
    pub(super) fn start(
        target: &Target,
        stop: Arc<AtomicBool>,
        seconds: Option<u64>,
        work: impl Fn(&Shared, &Target, u32) + Clone + Send + 'static,
    ) -> Job {
        let shared = Arc::new(Shared { stop, ..Shared::default() });
        let workers = (0..target.connections)
            .map(|n| {
                let (shared, target, work) = (shared.clone(), target.clone(), work.clone());
                thread::spawn(move || work(&shared, &target, n))
            })
            .collect();
        Job { shared, workers, limit: seconds.map(Duration::from_secs), started: Instant::now() }
    }

    /// Prints a line periodically until all is done, the time is over or a signal arrives.
    pub(super) fn watch(self, every: Duration, out: &mut impl Write) -> anyhow::Result<Summary> {
        let counts = || {
            [&self.shared.ops, &self.shared.errors, &self.shared.wrong]
                .map(|count| count.load(Ordering::Relaxed))
        };
        let (mut then, mut before) = (self.started, [0; 3]);
        let mut said = Ok(());
        while said.is_ok()
            && !self.workers.iter().all(|worker| worker.is_finished())
            && !self.shared.stopped()
        {
            thread::sleep(NAP);
            if then.elapsed() >= every {
                let (seconds, now) = (then.elapsed().as_secs_f64(), counts());
                let [ops, errors, wrong] = [0, 1, 2].map(|i| now[i] - before[i]);
                let ops_per_s = ops as f64 / seconds;
                said = say(out, &Line::Interval { seconds, ops, ops_per_s, errors, wrong });
                (then, before) = (Instant::now(), now);
            }
            if self.limit.is_some_and(|limit| self.started.elapsed() >= limit) {
                break;
            }
        }
        self.shared.over.store(true, Ordering::Relaxed);
        let seconds = self.started.elapsed().as_secs_f64();
        for worker in self.workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker thread panicked"))?;
        }
        said?;
        let [ops, errors, wrong] = [&self.shared.ops, &self.shared.errors, &self.shared.wrong]
            .map(|count| count.load(Ordering::Relaxed));
        let last_error = self.shared.last_error.lock().ok().and_then(|mut last| last.take());
        let summary = Summary { seconds, ops, errors, wrong, last_error };
        say(out, &Line::Summary(&summary))?;
        Ok(summary)
    }
}

impl Shared {
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.over.load(Ordering::Relaxed)
    }

    /// Runs `act` on each batch of the keys of connection `number` in turn; a failed batch is tried
    /// again.
    pub(super) fn each_batch(
        &self,
        target: &Target,
        number: u32,
        act: impl Fn(&mut dyn Session, &Range<u32>) -> anyhow::Result<u64>,
    ) {
        let keys = part(target, number);
        let mut session = None;
        let mut next = keys.start;
        while next < keys.end && !self.stopped() {
            let batch = next..keys.end.min(next.saturating_add(target.pipeline));
            if self.attempt(target, &mut session, batch.len(), |session| act(session, &batch)) {
                next = batch.end;
            }
        }
    }

    /// Runs one batch of `ops` commands, which returns the number of wrong values. After a failure
    /// the connection is opened again.
    pub(super) fn attempt(
        &self,
        target: &Target,
        session: &mut Option<Box<dyn Session>>,
        ops: usize,
        act: impl FnOnce(&mut dyn Session) -> anyhow::Result<u64>,
    ) -> bool {
        let open = session.take().map_or_else(|| connect(target), Ok);
        let done = open.and_then(|mut open| {
            let wrong = act(open.as_mut())?;
            *session = Some(open);
            Ok(wrong)
        });
        match done {
            Ok(wrong) => {
                self.ops.fetch_add(ops as u64 - wrong, Ordering::Relaxed);
                self.wrong.fetch_add(wrong, Ordering::Relaxed);
                true
            }
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut last) = self.last_error.lock() {
                    *last = Some(format!("{error:#}"));
                }
                thread::sleep(RETRY);
                false
            }
        }
    }
}
