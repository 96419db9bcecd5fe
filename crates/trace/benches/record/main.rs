//! `cargo bench -p thermocline-trace`: what recording costs, and how fast a recording is replayed.
//!
//! Simulated runs are recorded, which gives the bytes on disk for each piece of evidence: all files
//! but those of the engine's decisions and moves, and all files. Frames follow pages in the
//! simulator; how much it is with frames at random stands beside it.
//!
//! Then the evidence is recorded once more from memory, as fast as it goes, and the CPU time of the
//! process is measured, that of the thread that writes included. Last, the recording is replayed
//! with its own configuration: reading, and deciding on it. Each of the two alone stands beside it.
//!
//! The bars: 8 bytes a piece without decisions, 300 ns a piece (3 % of a core at 100,000 pieces a
//! second), 5 million pieces replayed a second. Writes `results.json` to `target/bench`; the exit
//! status is 1 where a bar does not hold.

#[path = "../../../core/benches/observe/report.rs"]
#[allow(dead_code, reason = "this bench does not use all of it")]
mod report;
mod simulated;

use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;

use report::{Bar, Failure, Figure};
use rustix::time::{ClockId, clock_gettime};
use thermocline_core::access::Evidence;
use thermocline_core::config::{RuleChoice, RuleName};
use thermocline_core::driver::Driver;
use thermocline_core::engine::Engine;
use thermocline_core::machine::Machine;
use thermocline_core::moves::Batch;
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::{Nanos, Pfn};
use thermocline_sim::scenario::Setup;
use thermocline_trace::piece::Piece;
use thermocline_trace::reader::Recording;
use thermocline_trace::recorder::Recorder;
use thermocline_trace::replay::{Recorded, Replay, Steps, replay};
use thermocline_trace::writer::{About, Limits};

const SEED: u64 = 7;
const BYTES: f64 = 8.0;
const RECORD_NS: f64 = 300.0;
const REPLAY_RATE: f64 = 5e6;
const SCENARIOS: [&str; 2] = ["zipf-8g", "redis-memtier"];

fn main() -> ExitCode {
    report::run(run)
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn run(folder: &Path) -> Result<bool, Failure> {
    let mut figures = Vec::new();
    for name in SCENARIOS {
        figures.extend(measure(folder, name)?);
    }
    report::print(&figures);
    println!("\nwritten: {}", report::write(folder, &figures)?.display());
    Ok(figures.iter().all(Figure::holds))
}

fn patient() -> Limits {
    Limits { backlog_bytes: None, ..Limits::default() }
}

fn measure(folder: &Path, name: &str) -> Result<Vec<Figure>, Failure> {
    let (first, again) = (folder.join(format!("{name}.trace")), folder.join(format!("{name}.again.trace")));
    for old in [&first, &again] {
        if old.exists() {
            std::fs::remove_dir_all(old)?;
        }
    }
    let setup = Setup::preset(name, &[])?;
    let choice = RuleChoice::Rule(RuleName::Adaptive);
    let summary = simulated::record(&setup, choice, SEED, &first, patient())?;
    let recording = Recording::open(&first)?;
    let pieces = summary.stats.pieces as f64;
    println!("{name}: {pieces} pieces in {} events, {} bytes", summary.events, summary.stats.bytes);

    let start = cpu_ns();
    let mut steps = Steps::new(recording.read());
    let steps: Vec<Recorded> = std::iter::from_fn(|| steps.next_step()).collect();
    let read_rate = pieces / (cpu_ns() - start) * 1e9;
    let engine_rate = pieces / engine_ns(&recording, &steps)? * 1e9;
    let about = About { settings: Vec::new(), topology: recording.topology().clone() };
    let mut recorder = Recorder::start(&again, about, patient(), false)?;
    let start = cpu_ns();
    for step in &steps {
        let mut machine = Played(step);
        let mut recorded = recorder.over(&mut machine);
        let Ok(()) = recorded.poll(step.step.time, step.step.due, &mut |_| ());
        let Ok(_) = recorded.nodes(&mut |_| ());
        recorded.submit(step.batches.clone());
    }
    recorder.finish();
    let record_ns = (cpu_ns() - start) / pieces;
    let scattered = scattered(&again, recording.topology(), steps)? as f64 / pieces;

    let config = recording.config()?;
    let start = cpu_ns();
    let done = replay(&recording, &config, &|config| Ok(config), &mut |_, _| ())?;
    let rate = done.pieces as f64 / (cpu_ns() - start) * 1e9;
    assert_eq!(done.followed.batches_apart, 0, "the replay decides as recorded");

    let figure = |what: &str, value, unit, reference: f64, ratio: f64, bar| Figure {
        name: format!("{what}: {name}"),
        value,
        unit,
        reference: Some(reference),
        ratio: Some(ratio),
        bar: Some(bar),
    };
    let own = |table: &str| ["decisions", "moves", "demands"].contains(&table);
    let files = recording.parts().iter().flat_map(|part| &part.files);
    let decided: u64 = files.filter(|file| own(&file.table)).map(|file| file.bytes).sum();
    let bytes = (summary.stats.bytes - decided) as f64 / pieces;
    let all = summary.stats.bytes as f64 / pieces;
    Ok(vec![
        Figure::plain(format!("recording, on disk, with decisions: {name}"), all, "bytes/piece"),
        Figure::plain(format!("recording, frames at random: {name}"), scattered, "bytes/piece"),
        figure("recording, on disk", bytes, "bytes/piece", BYTES, bytes / BYTES, Bar::AtMost(1.0)),
        figure("recording, CPU", record_ns, "ns/piece", RECORD_NS, record_ns / RECORD_NS, Bar::AtMost(1.0)),
        Figure::plain(format!("replay, reading alone: {name}"), read_rate, "pieces/s"),
        Figure::plain(format!("replay, the engine alone: {name}"), engine_rate, "pieces/s"),
        figure("replay", rate, "pieces/s", REPLAY_RATE, rate / REPLAY_RATE, Bar::AtLeast(1.0)),
    ])
}

/// CPU time of an engine that decides on steps that are in memory.
fn engine_ns(recording: &Recording, steps: &[Recorded]) -> Result<f64, Failure> {
    let config = recording.config()?;
    let engine = Engine::new(&config, recording.topology().clone())?;
    let mut driver = Driver::new(engine, &config).sparing_nothing();
    let mut machine = Replay::default();
    let mut spent = 0.0;
    for step in steps {
        machine.load(step.clone());
        let start = cpu_ns();
        let Ok(_) = driver.step(step.step.time, &mut machine);
        for piece in &step.between {
            piece.show(&mut |evidence| driver.observe(evidence));
        }
        spent += cpu_ns() - start;
    }
    Ok(spent)
}

/// Bytes of the evidence if each page of an access is in a frame of its own, anywhere.
fn scattered(folder: &Path, topology: &Topology, steps: Vec<Recorded>) -> Result<u64, Failure> {
    std::fs::remove_dir_all(folder)?;
    let frames: u64 = topology.nodes.iter().map(|node| node.capacity_pages).sum();
    let about = About { settings: Vec::new(), topology: topology.clone() };
    let mut recorder = Recorder::start(folder, about, patient(), false)?;
    for mut step in steps {
        for piece in step.polled.iter_mut().chain(&mut step.between) {
            let Piece::Accesses(batch, _) = piece else { continue };
            for access in batch {
                let page = access.page.map_or(0, |page| page.vpn ^ u64::from(page.pid.0) << 40);
                access.pfn = access.pfn.map(|_| Pfn(mix(page) % frames));
            }
        }
        let Ok(()) = recorder.over(&mut Played(&step)).poll(step.step.time, step.step.due, &mut |_| ());
    }
    Ok(recorder.finish().stats.bytes)
}

/// The finaliser of SplitMix64.
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// A machine that reports a step's evidence again.
struct Played<'a>(&'a Recorded);

impl Machine for Played<'_> {
    type Error = Infallible;

    fn poll(&mut self, _: Nanos, _: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), Infallible> {
        for piece in self.0.polled.iter().chain(&self.0.between) {
            piece.show(observe);
        }
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        for piece in &self.0.read {
            piece.show(observe);
        }
        Ok(self.0.nodes.as_deref().unwrap_or_default())
    }

    fn submit(&mut self, _: Vec<Batch>) {}
}
