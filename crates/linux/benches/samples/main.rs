//! `cargo bench -p thermocline-linux --bench samples`: what a hardware sample costs on its way from
//! the ring to the engine.
//!
//! Rings of the default size, generated: loads that missed, of random pages of a slow node, 30 % of
//! them useful (S1: 29 %) or all; some records reach over the ring's end. The way of a sample:
//! record, decoding, judgement with node and scope, access; and from there through records and rule
//! of the engine. The bar: 200 ns of user CPU a sample, with the engine. Arm SPE's packets take the
//! same way behind a decoder of their own. A sample that names a frame and no process takes a look
//! into the reverse map besides. Adds its figures to `results.json` in `target/bench`; the exit
//! status is 1 where a bar does not hold.

mod frames;
mod rings;

// Other measurements use more of it.
#[allow(dead_code)]
#[path = "../../../core/benches/observe/report.rs"]
mod report;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};
use thermocline_core::access::{Access, Evidence, NoMappings};
use thermocline_core::config::{Config, RuleName};
use thermocline_core::engine::Engine;
use thermocline_core::units::{Nanos, NodeId, Pid};
use thermocline_linux::source::hwsample::record::{Record, decode};
use thermocline_linux::source::hwsample::spe;
use thermocline_linux::source::hwsample::useful::{Judge, Sighting, Tally};
use thermocline_linux::sys::perf::ring::Scratch;

use crate::report::{Bar, Failure, Figure};
use crate::rings::{Rings, SEED};

/// User CPU time that a sample may take.
const LIMIT_NS: f64 = 200.0;
/// Accesses handed to the engine at once, as the daemon does.
const BATCH: usize = 1024;
/// Processes in scope, of which samples come.
const PROCESSES: u32 = 500;
const ROUNDS: usize = 15;

fn main() -> ExitCode {
    report::run(run)
}

fn run(folder: &Path) -> Result<bool, Failure> {
    println!("samples of generated rings, seed {SEED}; CPU time, median of {ROUNDS} rounds\n");
    let mut figures = Vec::new();
    for (name, useful_percent) in [("30 % useful", 30), ("all useful", 100)] {
        let rings = Rings::perf(useful_percent);
        let judged = median(|| ns_a_sample(|judge| read(&rings, judge, Nanos(0), |_| {})));
        let engine = median(|| with_engine(&rings));
        figures.push(figure(format!("hardware sample, {name}: to an access"), judged));
        figures.push(figure(format!("hardware sample, {name}: to the rule"), engine));
    }
    let spe = Rings::spe();
    let judged = median(|| ns_a_sample(|judge| read_spe(&spe, judge)));
    figures.push(figure("Arm SPE sample: to an access".to_owned(), judged));
    match frames::Frames::new() {
        Ok(mut frames) => {
            let scope = scope();
            let found = median(|| {
                let start = cpu_ns();
                let accesses = frames.resolve(BATCH, &scope);
                (cpu_ns() - start) / accesses as f64
            });
            figures.push(figure("sample without a process: from its frame to its page".to_owned(), found));
        }
        Err(why) => println!("left out: what a look into the reverse map costs: {why}"),
    }
    report::print(&figures);
    let results = report::write(folder, &figures)?;
    println!("\nwritten: {}", results.display());
    Ok(figures.iter().all(Figure::holds))
}

fn figure(name: String, ns: f64) -> Figure {
    Figure {
        name,
        value: ns,
        unit: "ns/sample",
        reference: Some(LIMIT_NS),
        ratio: Some(ns / LIMIT_NS),
        bar: Some(Bar::AtMost(1.0)),
    }
}

fn median(measure: impl FnMut() -> f64) -> f64 {
    let mut values: Vec<f64> = std::iter::repeat_with(measure).take(ROUNDS).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time in ns for each sample that `work` says to have read.
fn ns_a_sample(work: impl FnOnce(&Judge) -> Tally) -> f64 {
    let judge = rings::judge();
    let start = cpu_ns();
    let tally = work(&judge);
    (cpu_ns() - start) / tally.taken as f64
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn scope() -> BTreeSet<Pid> {
    (0..PROCESSES).map(|n| Pid(1000 + 7 * n)).collect()
}

/// Reads all rings as the source does, `later` than they were written.
fn read(rings: &Rings, judge: &Judge, later: Nanos, mut full: impl FnMut(&[Access])) -> Tally {
    let (mut tally, mut scratch) = (Tally::default(), Scratch::default());
    let mut accesses = Vec::with_capacity(BATCH);
    let scope = scope();
    for waiting in rings.waiting() {
        waiting.read(usize::MAX, &mut scratch, |record| {
            let Ok(Record::Sample(mut raw)) = decode(record) else { return };
            raw.time = raw.time.plus(later);
            let judged = judge.judge(&Sighting::from(&raw), |pid| scope.contains(&pid));
            tally.count(&judged);
            accesses.extend(judged);
            if accesses.len() == BATCH {
                full(&accesses);
                accesses.clear();
            }
        });
    }
    tally
}

fn read_spe(rings: &Rings, judge: &Judge) -> Tally {
    let mut tally = Tally::default();
    let mut accesses = Vec::with_capacity(BATCH);
    for waiting in rings.waiting() {
        spe::decode(waiting.first, |sample| {
            let judged = judge.judge(&Sighting::of_spe(sample, Some(Pid(1000)), Nanos(1), 0), |_| true);
            tally.count(&judged);
            accesses.extend(judged);
            if accesses.len() == BATCH {
                accesses.clear();
            }
        });
    }
    tally
}

fn with_engine(rings: &Rings) -> f64 {
    let mut config = Config::default();
    config.rule.name = RuleName::InterArrival;
    let mut engine = Engine::new(&config, rings::topology()).expect("the defaults suit two nodes");
    // The records of all pages are there before the clock starts.
    let show = |engine: &mut Engine, accesses: &[Access]| {
        engine.observe(Evidence::Accesses { batch: accesses, mappings: &NoMappings });
    };
    let judge = rings::judge();
    read(rings, &judge, Nanos(0), |accesses| show(&mut engine, accesses));
    assert!(engine.topology().is_lower(NodeId(1)), "samples of the slow node are what is measured");
    // Later than any two samples of a hot page are apart: few pages are hot.
    ns_a_sample(|judge| read(rings, judge, Nanos::from_s(60), |accesses| show(&mut engine, accesses)))
}
