//! The part of the demo that runs in the guest.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use thermocline_core::units::NodeId;
use thermocline_lab::programs::keys::{self, Distribution, Reading, Server, Summary, Target};
use thermocline_lab::programs::residency::data_range;
use thermocline_lab::programs::{read_json, write_json};
use thermocline_lab::truth::{Counts, GUEST_PORT, Plugin};

use super::line::{Live, heading};
use super::record::{Answers, PAGES, Plan, RECORDING, Recording, Room, Sample};
use crate::experiments::daemon::{Daemon, counter, family};
use crate::experiments::runner::PLAN;
use crate::experiments::within::{PROC, Started, address, free_dram, pages, slow_node, vmstat, widen};

const EVERY: Duration = Duration::from_secs(1);

/// Carries out the plan in `folder` and writes the recording beside it.
pub(crate) fn run(folder: &Path, daemon: &Path) -> anyhow::Result<()> {
    let plan: Plan = read_json(&folder.join(PLAN))?;
    // Debian boots with balancing between nodes on, which would move Redis before anything starts.
    fs::write("/proc/sys/kernel/numa_balancing", "0").context("cannot switch NUMA balancing off")?;
    let slow = slow_node()?;
    let mut redis = Started::start(Server::Redis, "on-slow-node")?;
    let (host, port) = address(Server::Redis);
    let target = Target {
        server: Server::Redis,
        address: (host.to_owned(), port),
        keys: plan.keys,
        value_bytes: plan.value_bytes,
        connections: 2,
        pipeline: 16,
    };
    println!("loading {} keys of {} bytes into Redis on the slow node", plan.keys, plan.value_bytes);
    let never = Arc::new(AtomicBool::new(false));
    keys::load(&target, never.clone(), &mut std::io::sink())?.check().context("loading Redis")?;
    widen(redis.pid())?;

    let daemon = daemon.to_owned();
    let recording = Demo { plan, slow, pid: redis.pid(), daemon, target }.record(&never)?;
    write_json(&folder.join(RECORDING), &recording)?;
    redis.end();
    Ok(())
}

struct Demo {
    plan: Plan,
    slow: NodeId,
    pid: u32,
    daemon: PathBuf,
    target: Target,
}

impl Demo {
    fn record(self, never: &Arc<AtomicBool>) -> anyhow::Result<Recording> {
        let range = data_range(Path::new(PROC), self.pid)?;
        let mut plugin = Plugin::connect(Path::new(GUEST_PORT))?;
        plugin.filter(Some((range.start, range.end)))?;
        let free = free_dram(self.slow)?;
        println!("{}", heading(&pages(self.pid)?, &free, self.slow));

        let stop = Arc::new(AtomicBool::new(false));
        let ops = Arc::new(AtomicU64::new(0));
        let load = self.load(&stop, &ops);
        plugin.start()?;
        let mut watch = Watch::new(&self, ops, plugin)?;
        watch.part(self.plan.before_s.saturating_sub(self.plan.before_window_s), None)?;
        let misses_before = watch.window(self.plan.before_window_s)?;
        let pages_before = pages(self.pid)?;
        let free = free_dram(self.slow)?;
        let promotions = vmstat("pgpromote_success")?;

        let started_at_s = watch.start.elapsed().as_secs_f64();
        let daemon = Daemon::start(Command::new(&self.daemon), Some(self.pid), None, None)?;
        watch.part(self.plan.with_s.saturating_sub(self.plan.window_s), Some(&daemon))?;
        watch.plugin.reset()?;
        watch.part(self.plan.window_s, Some(&daemon))?;
        let misses_after = watch.plugin.counts()?;
        watch.plugin.dump_pages(PAGES)?;
        watch.plugin.stop()?;
        stop.store(true, Ordering::Relaxed);
        let load = load.join().map_err(|_| anyhow::anyhow!("the load's thread panicked"))??;
        let last = daemon.end()?;
        let pages_after = pages(self.pid)?;
        let kernel_promotions = vmstat("pgpromote_success")? - promotions;

        println!("verifying every key");
        let verified = keys::verify(&self.target, never.clone(), &mut std::io::sink())?;
        let high = |node: NodeId| {
            let states = last["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
            let state = states.iter().find(|state| state["node"].as_u64() == Some(u64::from(node.0)));
            state.and_then(|state| state["watermarks"]["high_pages"].as_u64()).unwrap_or(0)
        };
        let room = free
            .into_iter()
            .map(|(node, free_pages)| (node, Room { free_pages, high_pages: high(node) }))
            .collect();
        Ok(Recording {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            slow: self.slow,
            range: (range.start, range.end),
            room,
            pages_before,
            pages_after,
            misses_before,
            misses_after,
            started_at_s,
            daemon: last,
            kernel_promotions,
            load: answers(&load),
            verified: answers(&verified),
            samples: watch.samples,
            plan: self.plan,
        })
    }

    /// Reads with zipfian popularity on separate threads until `stop`.
    fn load(
        &self,
        stop: &Arc<AtomicBool>,
        ops: &Arc<AtomicU64>,
    ) -> thread::JoinHandle<anyhow::Result<Summary>> {
        let reading = Reading {
            zipf: self.plan.zipf,
            distribution: Distribution::Zipfian,
            seconds: None,
            ops: None,
            every: EVERY,
            seed: 1,
            draws: 1,
        };
        let (target, stop, ops) = (self.target.clone(), Arc::clone(stop), Arc::clone(ops));
        thread::spawn(move || keys::run(&target, &reading, stop, &mut Rate { ops, line: Vec::new() }))
    }
}

/// Takes a sample a second.
struct Watch<'a> {
    demo: &'a Demo,
    ops: Arc<AtomicU64>,
    plugin: Plugin,
    live: Live,
    counts: Counts,
    faults: (Instant, u64),
    start: Instant,
    samples: Vec<Sample>,
}

impl Watch<'_> {
    fn new(demo: &Demo, ops: Arc<AtomicU64>, mut plugin: Plugin) -> anyhow::Result<Watch<'_>> {
        let counts = plugin.counts()?;
        let faults = (Instant::now(), vmstat("numa_hint_faults")?);
        let live = Live::new(demo.slow);
        Ok(Watch { demo, ops, plugin, live, counts, faults, start: Instant::now(), samples: Vec::new() })
    }

    /// Samples for this many seconds.
    fn part(&mut self, seconds: u64, daemon: Option<&Daemon>) -> anyhow::Result<()> {
        let begin = Instant::now();
        for second in 1..=seconds {
            thread::sleep((EVERY * second as u32).saturating_sub(begin.elapsed()));
            let sample = self.sample(daemon)?;
            println!("{}", self.live.line(&sample));
            self.samples.push(sample);
        }
        Ok(())
    }

    fn sample(&mut self, daemon: Option<&Daemon>) -> anyhow::Result<Sample> {
        let counts = self.plugin.counts()?;
        let since = counts.since(&self.counts);
        self.counts = counts;
        let (then, before) = self.faults;
        self.faults = (Instant::now(), vmstat("numa_hint_faults")?);
        let snapshot = daemon.map(Daemon::snapshot).unwrap_or_default();
        let nodes = (0..).map(NodeId);
        Ok(Sample {
            at_s: self.start.elapsed().as_secs_f64(),
            with: daemon.is_some(),
            pages: pages(self.demo.pid)?,
            misses: nodes.zip(since.nodes.iter().map(|node| node.misses())).collect(),
            ops_per_s: f64::from_bits(self.ops.load(Ordering::Relaxed)),
            hint_faults_per_s: (self.faults.1 - before) as f64 / then.elapsed().as_secs_f64(),
            promoted_pages: counter(&snapshot, "pgpromote_success"),
            refused: family(&snapshot, "refused"),
        })
    }

    /// Resets the counts and samples for this many seconds.
    fn window(&mut self, seconds: u64) -> anyhow::Result<Counts> {
        self.plugin.reset()?;
        self.part(seconds, None)?;
        Ok(self.plugin.counts()?)
    }
}

/// Takes the rate from each line that the load prints.
struct Rate {
    ops: Arc<AtomicU64>,
    line: Vec<u8>,
}

impl Write for Rate {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if self.line.ends_with(b"\n") {
            let line: Option<serde_json::Value> = serde_json::from_slice(&self.line).ok();
            if let Some(rate) = line.and_then(|line| line["ops_per_s"].as_f64()) {
                self.ops.store(rate.to_bits(), Ordering::Relaxed);
            }
            self.line.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn answers(summary: &Summary) -> Answers {
    Answers { right: summary.ops, wrong: summary.wrong, errors: summary.errors }
}
