//! Streams of loads, one per processor: measure the bandwidth of the modelled machine.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use thermocline_core::units::PAGES_PER_MIB;
use thermocline_linux::source::lab_clock::VcpuTime;

use super::modelled::clock;

const LINE_WORDS: u64 = 8;
const WORDS_PER_MIB: usize = (PAGES_PER_MIB * 512) as usize;

/// The result of all streams together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Streams {
    /// Bytes of all in modelled time, GB/s.
    pub gbps: f64,
    /// Each of them.
    pub streams: Vec<Stream>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Its processor.
    pub cpu: usize,
    /// What it read in modelled time, GB/s.
    pub gbps: f64,
    /// Modelled time of each 64 bytes, ns.
    pub ns_per_line: f64,
    /// Of that, time in the queues for bandwidth, ns.
    pub queueing_ns_per_line: f64,
}

/// Runs a thread on each of `threads` processors that reads its own block of `mib` MiB from front
/// to back, `sweeps` times to warm up and `sweeps` times measured; none ends before all have been
/// measured.
///
/// # Errors
/// When there are fewer processors, or no modelled time.
pub fn run(mib: u32, threads: usize, sweeps: u32) -> anyhow::Result<Streams> {
    ensure!(mib > 0 && threads > 0 && sweeps > 0, "--mib, --threads and --sweeps must be at least 1");
    let allowed = sched_getaffinity(None).context("cannot find the processors")?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).take(threads).collect();
    ensure!(cpus.len() == threads, "{threads} threads need as many processors; there are {}", cpus.len());
    let (start, measured) = (Barrier::new(threads), AtomicUsize::new(0));
    let streams = thread::scope(|scope| {
        let running: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                scope.spawn({
                    let (start, measured) = (&start, &measured);
                    move || stream(cpu, mib, sweeps, start, (measured, threads))
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a stream does not panic"))
            .collect::<anyhow::Result<Vec<Stream>>>()
    })?;
    Ok(Streams { gbps: streams.iter().map(|stream| stream.gbps).sum(), streams })
}

fn stream(
    cpu: usize,
    mib: u32,
    sweeps: u32,
    start: &Barrier,
    (measured, threads): (&AtomicUsize, usize),
) -> anyhow::Result<Stream> {
    let block: Vec<AtomicU64> =
        (0..mib as usize * WORDS_PER_MIB).map(|word| AtomicU64::new(word as u64)).collect();
    let own = own_clock(cpu);
    // The others wait here too, even if this one fails.
    start.wait();
    let own = own.inspect_err(|_| {
        measured.fetch_add(1, Ordering::Relaxed);
    })?;
    let sweep = || std::hint::black_box(block.iter().fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed)));
    for _ in 0..sweeps {
        sweep();
    }
    let before = own();
    for _ in 0..sweeps {
        sweep();
    }
    let after = own();
    measured.fetch_add(1, Ordering::Relaxed);
    while measured.load(Ordering::Relaxed) < threads {
        sweep();
    }
    let (before, after) = (before?, after?);
    let queueing = |time: &VcpuTime| time.nodes.iter().map(|node| node.queueing_ns).sum::<u64>();
    let lines = (block.len() as u64 / LINE_WORDS * u64::from(sweeps)) as f64;
    let ns = after.ns.saturating_sub(before.ns) as f64;
    Ok(Stream {
        cpu,
        gbps: lines * 64.0 / ns,
        ns_per_line: ns / lines,
        queueing_ns_per_line: queueing(&after).saturating_sub(queueing(&before)) as f64 / lines,
    })
}

/// Binds the calling thread to a processor; returns the reader of that processor's clock.
fn own_clock(cpu: usize) -> anyhow::Result<impl Fn() -> anyhow::Result<VcpuTime>> {
    let mut here = CpuSet::new();
    here.set(cpu);
    sched_setaffinity(None, &here).with_context(|| format!("cannot run on processor {cpu}"))?;
    let clock =
        clock()?.context("this is no guest with modelled time: start it with lab run --misses --samples")?;
    Ok(move || clock.read()?.into_iter().nth(cpu).with_context(|| format!("processor {cpu} has no clock")))
}
