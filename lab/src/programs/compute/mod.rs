//! Programs that the field compares on: random updates, and two searches of a graph.
//!
//! Each does its work again and again until it is stopped, reports how much it has done, and checks
//! its results.

pub mod bc;
pub mod bfs;
pub mod graph;
pub mod gups;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;

use super::say;

/// How soon a signal and the end of the time are noticed.
const NAP: Duration = Duration::from_millis(20);

/// Work that can be done again and again.
pub trait Work {
    /// Does a part of it, and counts in `progress` as it goes.
    fn step(&mut self, progress: &Progress);

    /// Checks what all steps so far have computed.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self) -> anyhow::Result<()>;
}

/// Accesses so far, for another thread to read: updates of a table, edges of a graph.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    /// Counts `accesses` more. Only one thread counts.
    pub fn add(&self, accesses: u64) {
        self.0.store(self.get() + accesses, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Summary of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Seconds of work.
    pub seconds: f64,
    /// Accesses, as [`Progress`] counts them.
    pub accesses: u64,
    /// Steps, all of them checked.
    pub steps: u64,
}

/// A line of output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Ready { pid: u32 },
    Interval { at_s: f64, accesses: u64 },
    Summary(&'a Summary),
}

/// Works until `seconds` are over or `stop` is set, and to the end of the step that runs then.
/// Writes a line of JSON at the start, one each time `every` has passed, and one at the end.
///
/// # Errors
/// When output fails or a result is wrong.
pub fn run(
    work: &mut (impl Work + Send),
    every: Duration,
    seconds: Option<u64>,
    stop: &AtomicBool,
    out: &mut impl Write,
) -> anyhow::Result<Summary> {
    ensure!(!every.is_zero(), "--report-every must be more than 0");
    say(out, &Line::Ready { pid: std::process::id() })?;
    let (progress, over) = (Progress::default(), AtomicBool::new(false));
    let started = Instant::now();
    let (watched, steps) = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut steps = 0;
            while !over.load(Ordering::Relaxed) {
                work.step(&progress);
                steps += 1;
            }
            steps
        });
        let watched = watch(&progress, started, every, seconds, stop, out);
        over.store(true, Ordering::Relaxed);
        (watched, worker.join())
    });
    watched?;
    let steps = steps.ok().context("the worker panicked")?;
    let summary = Summary { seconds: started.elapsed().as_secs_f64(), accesses: progress.get(), steps };
    work.check()?;
    say(out, &Line::Summary(&summary))?;
    Ok(summary)
}

fn watch(
    progress: &Progress,
    started: Instant,
    every: Duration,
    seconds: Option<u64>,
    stop: &AtomicBool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let (mut next, mut before) = (every, 0);
    let over = || seconds.is_some_and(|seconds| started.elapsed() >= Duration::from_secs(seconds));
    while !stop.load(Ordering::Relaxed) && !over() {
        thread::sleep(NAP.min(every));
        if started.elapsed() >= next {
            let accesses = progress.get();
            say(out, &Line::Interval { at_s: started.elapsed().as_secs_f64(), accesses: accesses - before })?;
            (next, before) = (started.elapsed() + every, accesses);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_what_was_done_and_checks_it() {
        let mut work = gups::Gups::new(1, gups::Skew { hot_share: 0.1, access_share: 0.9 }, 7).unwrap();
        let (stop, mut out) = (AtomicBool::new(false), Vec::new());
        let summary = run(&mut work, Duration::from_millis(50), Some(1), &stop, &mut out).unwrap();
        let lines: Vec<serde_json::Value> = std::str::from_utf8(&out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["event"], "ready");
        let reported: u64 = lines.iter().filter_map(|line| line["accesses"].as_u64()).sum();
        assert!(reported > summary.accesses, "{reported}: the intervals and the summary");
        assert!(reported <= 2 * summary.accesses);
        assert_eq!(lines.last().unwrap()["steps"], summary.steps);
    }
}
