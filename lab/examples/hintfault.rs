//! Shows what the hint-fault source sees, and checks it against the kernel.
//!
//! `hintfault [--seconds N] [--ring-kib N] [--poll-ms N] [--restamp] [--no-run-time]
//! [--kernel-stamp]
//! [--only PID] [--without PID] [--only-cgroup FOLDER] [--without-cgroup FOLDER]`
//!
//! A line a second, then a summary in JSON. With `--kernel-stamp` each latency is compared with the
//! kernel's own, and some frames with pagemap's.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thermocline_core::config;
use thermocline_core::units::{NodeId, Pid};
use thermocline_linux::pagemap::Pagemap;
use thermocline_linux::source::hintfault::{Event, HintFault, HintFaultSource, Options, Scope};

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    seconds: u64,
    poll: Duration,
    options: Options,
    scope: Scope,
    only: Vec<Pid>,
    without: Vec<Pid>,
}

fn main() -> Result<(), Failure> {
    let arguments = arguments()?;
    let compare = arguments.options.kernel_stamp;
    let mut source = HintFaultSource::open(arguments.options, &arguments.scope)?;
    for &pid in &arguments.only {
        source.include(pid, true)?;
    }
    for &pid in &arguments.without {
        source.exclude(pid, true)?;
    }
    let mut seen = Seen { compare, ..Seen::default() };
    // Faults go on while we look: the kernel's count is taken between two of ours.
    let (earliest, vmstat, before) = (source.stats()?, hint_faults()?, source.stats()?);
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
        "seen_at_most": late.seen - earliest.seen,
        "filtered": late.filtered - before.filtered,
        "passed": late.submitted + late.dropped - before.submitted - before.dropped,
        "stats": source.stats()?,
        "daemon_cpu_s": cpu,
        "daemon_ns_per_fault": cpu * 1e9 / (seen.faults.max(1) as f64),
        "programs_ns_and_runs": run_times,
        "latency_ms": percentiles(&mut seen.latencies_ms),
        "kernel_stamp": seen.agreement(),
        "exits": seen.exits,
        "execs": seen.execs,
        "huge": seen.huge,
        "by_node": seen.by_node,
        "by_accessor": seen.by_accessor.iter().map(|(n, f)| (format!("{n:?}"), *f)).collect::<BTreeMap<_, _>>(),
        "frames": [seen.frames_right, seen.frames_wrong, seen.frames_unknown],
    });
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

fn arguments() -> Result<Arguments, Failure> {
    let config = config::HintFault::default();
    let mut options = Options { measure_run_time: true, ..Options::from_config(&config, cpu_nodes()) };
    let (mut seconds, mut poll_ms) = (10, 20);
    let (mut scope, mut only, mut without) = (Scope::whole_machine(), Vec::new(), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or(format!("{flag} needs a value"));
        match flag.as_str() {
            "--seconds" => seconds = value()?.parse()?,
            "--ring-kib" => options.ring_bytes = value()?.parse::<u32>()? << 10,
            "--poll-ms" => poll_ms = value()?.parse()?,
            "--only" => only.push(Pid(value()?.parse()?)),
            "--without" => without.push(Pid(value()?.parse()?)),
            "--only-cgroup" => scope.cgroups.push(value()?.into()),
            "--without-cgroup" => scope.excluded_cgroups.push(value()?.into()),
            "--restamp" => options.stamps.restamp = true,
            "--kernel-stamp" => options.kernel_stamp = true,
            "--no-run-time" => options.measure_run_time = false,
            _ => return Err(format!("{flag}: no such flag").into()),
        }
    }
    scope.listed = !only.is_empty();
    scope.exclusions = !without.is_empty();
    scope.all = only.is_empty() && scope.cgroups.is_empty();
    Ok(Arguments { scope, only, without, seconds, poll: Duration::from_millis(poll_ms), options })
}

/// Faults whose frame is looked up in pagemap: one in so many.
const FRAME_CHECK_EVERY: u64 = 256;

#[derive(Default)]
struct Seen {
    /// Whether the kernel tells its stamps.
    compare: bool,
    faults: u64,
    huge: u64,
    exits: u64,
    execs: u64,
    by_node: BTreeMap<u16, u64>,
    by_accessor: BTreeMap<Option<u16>, u64>,
    frames_right: u64,
    frames_wrong: u64,
    /// Not told: on old kernels it is not known at first where frames begin.
    frames_unknown: u64,
    latencies_ms: Vec<f64>,
    /// Latest fault of each thread.
    latest: HashMap<u32, HintFault>,
    /// Faults that the kernel told its stamp of: the fault, the kernel's clock then, its stamp.
    stamped: Vec<(HintFault, u64, u64)>,
    /// The kernel's clock: time in ns, and jiffies.
    clock: Vec<(u64, u64)>,
}

impl Seen {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Fault(fault) => self.fault(fault),
            Event::Stamp(told) => {
                self.clock.push((told.time.0, told.jiffies));
                if let (Some(stamp), Some(fault)) = (told.stamp, self.latest.get(&told.tid)) {
                    self.stamped.push((*fault, told.jiffies, stamp));
                    self.latest.remove(&told.tid);
                }
            }
            Event::Exec(_) => self.execs += 1,
            Event::Exit(_) => self.exits += 1,
        }
    }

    fn fault(&mut self, fault: &HintFault) {
        let raw = &fault.raw;
        self.faults += 1;
        self.huge += u64::from(raw.pmd);
        if let Some(latency) = fault.latency.filter(|_| self.latencies_ms.len() < 4_000_000) {
            self.latencies_ms.push(latency.time.0 as f64 / 1e6);
        }
        if !self.compare {
            return;
        }
        self.latest.insert(raw.tid, *fault);
        *self.by_node.entry(raw.node.0).or_default() += 1;
        *self.by_accessor.entry(fault.accessor.map(|n| n.0)).or_default() += 1;
        if self.faults.is_multiple_of(FRAME_CHECK_EVERY) {
            let entry = Pagemap::open(Path::new("/proc"), raw.pid).and_then(|map| map.entry(raw.vpn));
            if let Ok(Some(entry)) = entry {
                match raw.pfn {
                    None => self.frames_unknown += 1,
                    told if told == entry.pfn() => self.frames_right += 1,
                    Some(_) => self.frames_wrong += 1,
                }
            }
        }
    }

    /// How far our stamps are from the kernel's, by the kernel's own clock.
    ///
    /// Our stamp is when the scan came to the page's table; the kernel's is in jiffies, which
    /// advance every few milliseconds, and late when the machine is busy. So what counts is how far
    /// the kernel's stamp is from the jiffies between that table and the next.
    fn agreement(&mut self) -> Value {
        self.clock.sort_unstable();
        let (Some(first), Some(last)) = (self.clock.first().copied(), self.clock.last().copied()) else {
            return Value::Null;
        };
        let rate = (last.1 - first.1) as f64 * 1e9 / (last.0 - first.0).max(1) as f64;
        let hz = [100u64, 250, 300, 1000]
            .into_iter()
            .min_by_key(|h| (*h as f64 - rate).abs() as u64)
            .unwrap_or(250);
        let ms = |jiffies: u64| jiffies * 1000 / hz;
        let (mut by_clock, mut by_time, mut unknown, mut older) = (Vec::new(), Vec::new(), 0u64, 0u64);
        for (fault, jiffies, stamp) in &self.stamped {
            // Linux 6.12 include/linux/mm.h: the stamp is jiffies in ms, cut to its field (21 bits
            // on Debian's kernels).
            let kernel = ms(*jiffies).wrapping_sub(*stamp) & ((1 << 21) - 1);
            if fault.raw.time.0 < first.0 + kernel * 1_000_000 {
                older += 1;
                continue;
            }
            let Some(latency) = fault.latency else {
                unknown += 1;
                continue;
            };
            by_time.push(latency.time.0 as f64 / 1e6 - kernel as f64);
            let ours = fault.raw.time.0 - latency.time.0;
            let next = self.clock.partition_point(|&(time, _)| time <= ours);
            // The clock is read right after our stamp: `next` belongs to the same table, the one
            // after it to the next.
            let (earliest, latest) = (next.saturating_sub(1), (next + 1).min(self.clock.len() - 1));
            let stamped = ms(*jiffies) - kernel;
            let before = ms(self.clock[earliest].1).saturating_sub(stamped) as f64;
            let after = stamped.saturating_sub(ms(self.clock[latest].1)) as f64;
            by_clock.push(before.max(after));
        }
        let compared = by_clock.len() as u64 + unknown;
        let within = |ms: f64| by_clock.iter().filter(|&&d| d <= ms).count() as f64 / compared.max(1) as f64;
        json!({
            "hz": hz,
            "compared": compared,
            "without_ours": unknown,
            "marked_before_us": older,
            "same": within(0.0),
            "within_4ms": within(4.0),
            "within_8ms": within(8.0),
            "within_100ms": within(100.0),
            "difference_ms": percentiles(&mut by_time),
        })
    }
}

fn percentiles(values: &mut [f64]) -> Value {
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
