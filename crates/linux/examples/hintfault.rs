//! Shows what the hint-fault source sees, and checks it against the kernel.
//!
//! `hintfault [--seconds N] [--ring-kib N] [--poll-ms N] [--restamp] [--kernel-stamp] [--no-run-time]`
//!
//! A line a second, then a summary in JSON. With `--kernel-stamp` each latency is compared with the kernel's own.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use thermocline_core::config;
use thermocline_core::units::NodeId;
use thermocline_linux::source::hintfault::decode::RawStamp;
use thermocline_linux::source::hintfault::{Event, HintFault, HintFaultSource, Options, Scope};

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    seconds: u64,
    poll: Duration,
    options: Options,
}

fn main() -> Result<(), Failure> {
    let arguments = arguments()?;
    let mut source = HintFaultSource::open(arguments.options, &Scope::whole_machine())?;
    let mut seen = Seen::default();
    let (vmstat, before) = (hint_faults()?, source.stats()?);
    let (start, cpu) = (Instant::now(), cpu_seconds()?);
    println!("attached");
    for second in 1..=arguments.seconds {
        let (faults, stats) = (seen.faults, source.stats()?);
        while start.elapsed() < Duration::from_secs(second) {
            source.wait(arguments.poll)?;
            source.poll(usize::MAX, |event| seen.event(&event));
        }
        let now = source.stats()?;
        println!(
            "{second:>4} s {:>8} faults/s {:>8} dropped/s {:>6} scan records",
            seen.faults - faults,
            now.dropped - stats.dropped,
            now.scans - stats.scans
        );
    }
    let cpu = cpu_seconds()? - cpu;
    // Faults go on while we look: the kernel's count is taken between two of ours.
    let early = source.stats()?;
    let vmstat = hint_faults()? - vmstat;
    let late = source.stats()?;
    source.poll(usize::MAX, |event| seen.event(&event));
    let run_times: HashMap<_, _> =
        source.run_times()?.into_iter().map(|(n, r)| (n, [r.run_time_ns, r.runs])).collect();
    let summary = json!({
        "seconds": arguments.seconds,
        "vmstat_hint_faults": vmstat,
        "seen_at_least": early.seen - before.seen,
        "seen_at_most": late.seen - before.seen,
        "stats": source.stats()?,
        "daemon_cpu_s": cpu,
        "daemon_ns_per_fault": cpu * 1e9 / (seen.faults.max(1) as f64),
        "programs_ns_and_runs": run_times,
        "latency_ms": percentiles(&mut seen.latencies_ms),
        "kernel_stamp": seen.agreement(),
    });
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

fn arguments() -> Result<Arguments, Failure> {
    let config = config::HintFault::default();
    let mut options = Options { measure_run_time: true, ..Options::from_config(&config, cpu_nodes()) };
    let (mut seconds, mut poll_ms) = (10, 20);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or(format!("{flag} needs a number"));
        match flag.as_str() {
            "--seconds" => seconds = value()?.parse()?,
            "--ring-kib" => options.ring_bytes = value()?.parse::<u32>()? << 10,
            "--poll-ms" => poll_ms = value()?.parse()?,
            "--restamp" => options.stamps.restamp = true,
            "--kernel-stamp" => options.kernel_stamp = true,
            "--no-run-time" => options.measure_run_time = false,
            _ => return Err(format!("{flag}: no such flag").into()),
        }
    }
    Ok(Arguments { seconds, poll: Duration::from_millis(poll_ms), options })
}

#[derive(Default)]
struct Seen {
    faults: u64,
    latencies_ms: Vec<f64>,
    /// Latest fault of each thread.
    latest: HashMap<u32, HintFault>,
    /// Faults that the kernel told its stamp of.
    stamps: Vec<(HintFault, RawStamp)>,
}

impl Seen {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Fault(fault) => {
                self.faults += 1;
                if let Some(latency) = fault.latency.filter(|_| self.latencies_ms.len() < 4_000_000) {
                    self.latencies_ms.push(latency.time.0 as f64 / 1e6);
                }
                self.latest.insert(fault.raw.tid, *fault);
            }
            Event::Stamp(stamp) => {
                if let Some(fault) = self.latest.remove(&stamp.tid).filter(|_| self.stamps.len() < 1_000_000)
                {
                    self.stamps.push((fault, *stamp));
                }
            }
            Event::Exec(_) | Event::Exit(_) => {}
        }
    }

    /// How far our latencies are from those that the kernel computes from its own stamps.
    fn agreement(&self) -> serde_json::Value {
        let (Some((_, first)), Some((_, last))) = (self.stamps.first(), self.stamps.last()) else {
            return serde_json::Value::Null;
        };
        let seconds = last.time.since(first.time).0 as f64 / 1e9;
        let hz = (last.jiffies - first.jiffies) as f64 / seconds.max(1e-9);
        let hz =
            [100u64, 250, 300, 1000].into_iter().min_by_key(|h| (*h as f64 - hz).abs() as u64).unwrap_or(250);
        let (mut differences, mut unknown, mut older) = (Vec::new(), 0u64, 0u64);
        for (fault, stamp) in &self.stamps {
            // Linux 6.12 include/linux/mm.h: the stamp is jiffies in ms, cut to its field (21 bits on Debian's kernels).
            let kernel = (stamp.jiffies * 1000 / hz).wrapping_sub(stamp.stamp) & ((1 << 21) - 1);
            match fault.latency {
                // Marked before we were there to see.
                _ if fault.raw.time.0 < first.time.0 + kernel * 1_000_000 => older += 1,
                Some(ours) => differences.push(ours.time.0 as f64 / 1e6 - kernel as f64),
                None => unknown += 1,
            }
        }
        let within = |ms: f64| {
            differences.iter().filter(|d| d.abs() <= ms).count() as f64
                / (differences.len() as u64 + unknown).max(1) as f64
        };
        json!({
            "hz": hz,
            "compared": differences.len(),
            "without_ours": unknown,
            "marked_before_us": older,
            "within_5ms": within(5.0),
            "within_10ms": within(10.0),
            "within_20ms": within(20.0),
            "within_100ms": within(100.0),
            "difference_ms": percentiles(&mut differences.clone()),
        })
    }
}

fn percentiles(values: &mut [f64]) -> serde_json::Value {
    values.sort_by(f64::total_cmp);
    let at =
        |share: f64| values.get(((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1)));
    json!({ "min": at(0.0), "p1": at(0.01), "p10": at(0.1), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0) })
}

/// numa_hint_faults of /proc/vmstat.
fn hint_faults() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/vmstat")?;
    let value = text.lines().find_map(|l| l.strip_prefix("numa_hint_faults "));
    Ok(value
        .ok_or("/proc/vmstat has no numa_hint_faults: this kernel has no NUMA balancing")?
        .trim()
        .parse()?)
}

/// CPU time of this process so far.
fn cpu_seconds() -> Result<f64, Failure> {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(usage.tv_sec as f64 + usage.tv_nsec as f64 / 1e9)
}

/// The node of each CPU.
fn cpu_nodes() -> Vec<NodeId> {
    let node_of = |cpu: &Path| {
        let entries = std::fs::read_dir(cpu).ok()?;
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        names.filter_map(|n| n.strip_prefix("node")?.parse().ok()).next().map(NodeId)
    };
    let cpus = (0..).map(|cpu| Path::new("/sys/devices/system/cpu").join(format!("cpu{cpu}")));
    cpus.take_while(|cpu| cpu.exists()).map(|cpu| node_of(&cpu).unwrap_or_default()).collect()
}
