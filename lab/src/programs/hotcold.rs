//! A program with known behaviour: a share of its pages takes a share of its accesses, and every
//! byte is known.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::ValueEnum;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::Serialize;
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use super::hot_set::{HotLayout, HotSet, below};
use super::memory::{Mismatch, STAMP_WORDS, StampedMemory};
use super::report::Report;
use super::{say, write_json};

/// Accesses between two checks of the clock and of the stop flag.
const BATCH: u32 = 1024;
/// How soon a signal is noticed.
const NAP: Duration = Duration::from_millis(50);

/// Lines of 64 bytes in a page.
const PAGE_LINES: u64 = 64;
const LINE_WORDS: u64 = 8;

/// The order in which pages are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// At random, hot pages more often.
    Random,
    /// Each line of all memory alike, from front to back, again and again; no page is hot.
    Sweep,
}

/// What to do; the command line's meaning, see `hotcold --help`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Size in MiB.
    pub mib: u32,
    /// Share (0 to 1) of the pages that are hot.
    pub hot_share: f64,
    /// Share (0 to 1) of the accesses that go to hot pages.
    pub access_share: f64,
    /// Share (0 to 1) of the accesses that write.
    pub write_share: f64,
    /// The order of the accesses.
    pub order: Order,
    /// How hot grains lie.
    pub hot_layout: HotLayout,
    /// Pages that are hot or cold together.
    pub grain_pages: u32,
    /// How often hot pages are replaced, and which share (0 to 1) of them; `None` for never.
    pub drift: Option<(Duration, f64)>,
    /// Accesses a second of all threads together; 0 for as fast as possible.
    pub rate: u64,
    /// When to end; `None` for at a signal.
    pub seconds: Option<u64>,
    /// Threads that access.
    pub threads: u32,
    /// Seed of the shuffle and the accesses.
    pub seed: u64,
    /// Time between two lines of output.
    pub every: Duration,
    /// The file for the [`Report`].
    pub report: Option<PathBuf>,
}

/// Summary of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Seconds of accesses.
    pub seconds: f64,
    /// Accesses.
    pub accesses: u64,
    /// Those to pages that were hot at the time.
    pub hot_accesses: u64,
    /// Sets of hot pages that were in force.
    pub phases: usize,
    /// Words checked against their stamps: every read, and at the end every word.
    pub words_verified: u64,
}

/// A line of output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Ready { pid: u32, base: u64, pages: u32, hot_pages: u32, seed: u64, init_seconds: f64 },
    Interval { at_s: f64, accesses: u64, hot_accesses: u64, phase: usize },
    Drift { time: Nanos, phase: usize },
    Summary(&'a Summary),
}

struct Shared {
    memory: StampedMemory,
    set: HotSet,
    /// Where the window of hot grains starts.
    start: AtomicU32,
    accesses: AtomicU64,
    hot_accesses: AtomicU64,
    done: AtomicBool,
}

/// Runs until the time is over or `stop` is set, writing lines of JSON to `out`.
///
/// # Errors
/// When the plan is impossible, output fails, or [data was lost](Mismatch).
pub fn run(plan: &Plan, stop: &AtomicBool, out: &mut impl Write) -> anyhow::Result<Summary> {
    for (name, share) in [("hot", plan.hot_share), ("access", plan.access_share), ("write", plan.write_share)]
    {
        ensure!((0.0..=1.0).contains(&share), "--{name}-share {share} is not between 0 and 1");
    }
    ensure!(plan.threads >= 1, "--threads must be at least 1");
    ensure!(!plan.every.is_zero(), "--report-every must be more than 0");
    let pages = u64::from(plan.mib) * PAGES_PER_MIB;
    let set = HotSet::new(pages, plan.grain_pages, plan.hot_share, plan.hot_layout, plan.seed)?;
    let before = Instant::now();
    let memory = StampedMemory::new(pages as u32);
    let mut report = Report {
        pid: std::process::id(),
        base: memory.base(),
        pages: memory.pages(),
        hot_share: plan.hot_share,
        access_share: plan.access_share,
        hot_layout: plan.hot_layout,
        grain_pages: plan.grain_pages,
        seed: plan.seed,
        phases: vec![now()],
        hot_ranges: set.hot_ranges(0),
    };
    publish(plan, &report)?;
    let ready = Line::Ready {
        pid: report.pid,
        base: report.base,
        pages: report.pages,
        hot_pages: set.hot_pages(),
        seed: plan.seed,
        init_seconds: before.elapsed().as_secs_f64(),
    };
    say(out, &ready)?;

    let shared = Arc::new(Shared {
        memory,
        set,
        start: AtomicU32::new(0),
        accesses: AtomicU64::new(0),
        hot_accesses: AtomicU64::new(0),
        done: AtomicBool::new(false),
    });
    let started = Instant::now();
    let workers: Vec<_> = (0..plan.threads)
        .map(|number| {
            let (shared, plan) = (shared.clone(), plan.clone());
            thread::spawn(move || {
                let written = work(&shared, &plan, number);
                shared.done.store(true, Ordering::Relaxed);
                written
            })
        })
        .collect();
    let watched = watch(plan, &shared, stop, &mut report, out);
    let seconds = started.elapsed().as_secs_f64();
    shared.done.store(true, Ordering::Relaxed);
    let mut written = Vec::new();
    for worker in workers {
        written.push(worker.join().map_err(|_| anyhow::anyhow!("a worker thread panicked"))??);
    }
    watched?;
    shared.memory.check_all(|page| written.iter().map(|writes| u64::from(writes[page as usize])).sum())?;

    let accesses = shared.accesses.load(Ordering::Relaxed);
    let writes: u64 = written.iter().flatten().map(|&writes| u64::from(writes)).sum();
    let summary = Summary {
        seconds,
        accesses,
        hot_accesses: shared.hot_accesses.load(Ordering::Relaxed),
        phases: report.phases.len(),
        words_verified: accesses - writes + pages * (u64::from(STAMP_WORDS) + 1),
    };
    say(out, &Line::Summary(&summary))?;
    Ok(summary)
}

/// Prints a line periodically and moves the hot set when due, until the end.
fn watch(
    plan: &Plan,
    shared: &Shared,
    stop: &AtomicBool,
    report: &mut Report,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut next = plan.every;
    let (mut accesses_before, mut hot_before) = (0, 0);
    let mut next_drift = plan.drift.map(|(every, _)| started + every);
    while !stop.load(Ordering::Relaxed) && !shared.done.load(Ordering::Relaxed) {
        thread::sleep(NAP);
        if let (Some(at), Some((every, share))) = (next_drift, plan.drift)
            && Instant::now() >= at
        {
            let start = shared.set.moved(shared.start.load(Ordering::Relaxed), shared.set.step(share));
            shared.start.store(start, Ordering::Relaxed);
            report.phases.push(now());
            report.hot_ranges = shared.set.hot_ranges(start);
            publish(plan, report)?;
            say(out, &Line::Drift { time: now(), phase: report.phases.len() - 1 })?;
            next_drift = Some(at + every);
        }
        if started.elapsed() < next {
            continue;
        }
        next += plan.every;
        let accesses = shared.accesses.load(Ordering::Relaxed);
        let hot = shared.hot_accesses.load(Ordering::Relaxed);
        let line = Line::Interval {
            at_s: started.elapsed().as_secs_f64(),
            accesses: accesses - accesses_before,
            hot_accesses: hot - hot_before,
            phase: report.phases.len() - 1,
        };
        say(out, &line)?;
        (accesses_before, hot_before) = (accesses, hot);
        if plan.seconds.is_some_and(|seconds| started.elapsed() >= Duration::from_secs(seconds)) {
            break;
        }
    }
    Ok(())
}

/// One thread's accesses; returns how often it wrote to each page.
fn work(shared: &Shared, plan: &Plan, number: u32) -> Result<Vec<u32>, Mismatch> {
    let mut rng = Pcg64Mcg::seed_from_u64(plan.seed ^ u64::from(number + 1) << 32);
    let set = &shared.set;
    let mut written = vec![0u32; shared.memory.pages() as usize];
    // One random number serves a whole access: 32 bits for the page, 9 for the word, 12 and 11 for
    // the two choices.
    let hot_below = (plan.access_share * 4096.0).round() as u64;
    let write_below = (plan.write_share * 2048.0).round() as u64;
    let started = Instant::now();
    let mut batches = 0u64;
    let lines = u64::from(shared.memory.pages()) * PAGE_LINES;
    let mut line = lines * u64::from(number) / u64::from(plan.threads);
    while !shared.done.load(Ordering::Relaxed) {
        let start = shared.start.load(Ordering::Relaxed);
        let mut hot_accesses = 0;
        for _ in 0..BATCH {
            let random = rng.next_u64();
            let (index, word) = (random as u32, (random >> 32) as u32 & 511);
            let (page, word) = if plan.order == Order::Sweep {
                line = (line + 1) % lines;
                ((line / PAGE_LINES) as u32, (line % PAGE_LINES * LINE_WORDS) as u32)
            } else if random >> 41 & 4095 < hot_below {
                hot_accesses += 1;
                (set.hot_page(start, below(index, set.hot_pages())), word)
            } else {
                (set.cold_page(start, below(index, set.cold_pages())), word)
            };
            if random >> 53 < write_below {
                shared.memory.write(page);
                written[page as usize] += 1;
            } else {
                shared.memory.check(page, word.min(STAMP_WORDS - 1))?;
            }
        }
        batches += 1;
        shared.accesses.fetch_add(u64::from(BATCH), Ordering::Relaxed);
        shared.hot_accesses.fetch_add(hot_accesses, Ordering::Relaxed);
        pace(plan, started, batches, &shared.done);
    }
    Ok(written)
}

/// Sleeps until this thread's `batches` are due at its part of the rate.
fn pace(plan: &Plan, started: Instant, batches: u64, done: &AtomicBool) {
    if plan.rate == 0 {
        return;
    }
    let due = (batches * u64::from(BATCH) * u64::from(plan.threads)) as f64 / plan.rate as f64;
    while !done.load(Ordering::Relaxed) {
        let early = due - started.elapsed().as_secs_f64();
        if early <= 0.0 {
            break;
        }
        thread::sleep(Duration::from_secs_f64(early).min(NAP));
    }
}

fn publish(plan: &Plan, report: &Report) -> anyhow::Result<()> {
    plan.report.as_deref().map_or(Ok(()), |path| write_json(path, report))
}

/// CLOCK_MONOTONIC.
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::super::read_json;
    use super::*;

    fn plan() -> Plan {
        Plan {
            mib: 8,
            hot_share: 0.2,
            access_share: 0.9,
            write_share: 0.25,
            order: Order::Random,
            hot_layout: HotLayout::Scattered,
            grain_pages: 1,
            drift: None,
            rate: 0,
            seconds: Some(1),
            threads: 2,
            seed: 42,
            every: Duration::from_secs(1),
            report: None,
        }
    }

    #[test]
    fn accesses_are_shared_out_as_asked_and_drift_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        let drift = Some((Duration::from_millis(400), 0.5));
        let plan = Plan { drift, report: Some(path.clone()), ..plan() };
        let mut out = Vec::new();
        let summary = run(&plan, &AtomicBool::new(false), &mut out).unwrap();
        let share = summary.hot_accesses as f64 / summary.accesses as f64;
        assert!((share - 0.9).abs() < 0.01, "{share} of {} accesses", summary.accesses);
        let report: Report = read_json(&path).unwrap();
        assert_eq!((report.pages, report.phases.len()), (2048, 3));
        assert_eq!(report.is_hot().unwrap().iter().filter(|&&hot| hot).count(), 410);
        let lines = String::from_utf8(out).unwrap();
        assert!(lines.lines().next().unwrap().contains(r#""event":"ready""#), "{lines}");
        assert_eq!(lines.lines().filter(|line| line.contains(r#""event":"drift""#)).count(), 2);
        assert!(lines.lines().last().unwrap().contains(r#""event":"summary""#), "{lines}");
    }

    #[test]
    fn a_sweep_reads_and_writes_every_page_and_none_is_hot() {
        let plan = Plan { order: Order::Sweep, ..plan() };
        let summary = run(&plan, &AtomicBool::new(false), &mut Vec::new()).unwrap();
        assert_eq!(summary.hot_accesses, 0);
        assert!(summary.accesses > 2048 * PAGE_LINES, "{} accesses", summary.accesses);
    }

    #[test]
    fn the_rate_is_kept() {
        let summary =
            run(&Plan { rate: 100_000, ..plan() }, &AtomicBool::new(false), &mut Vec::new()).unwrap();
        // Being late is the machine's fault, being early would be ours: at most one batch per
        // thread.
        assert!(
            summary.accesses <= (summary.seconds * 100_000.0) as u64 + 2 * u64::from(BATCH),
            "{summary:?}"
        );
        assert!(summary.accesses > 10_000, "{summary:?}");
    }

    #[test]
    fn a_stop_ends_it_and_a_bad_plan_is_refused() {
        let stop = AtomicBool::new(true);
        let summary = run(&Plan { seconds: None, ..plan() }, &stop, &mut Vec::new()).unwrap();
        assert!(summary.seconds < 10.0);
        for bad in
            [Plan { hot_share: 1.5, ..plan() }, Plan { threads: 0, ..plan() }, Plan { mib: 0, ..plan() }]
        {
            assert!(run(&bad, &stop, &mut Vec::new()).is_err());
        }
    }
}
