//! The part of the experiment that runs in the guest.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use thermocline_core::units::NodeId;
use thermocline_lab::truth::{GUEST_PORT, Plugin};
use thermocline_lab::workload::residency::data_range;
use thermocline_lab::workload::{read_json, write_json};

use super::course::{COURSE, Course, Evidence, Moment, PLAN, Plan};
use crate::score::program::Whose;
use crate::score::running::{Running, nobody_moves, set_balancing};
use crate::within::{PROC, pages_within, vmstat, widen};

/// The node with the processors.
const HOME: NodeId = NodeId(0);
const SECOND: Duration = Duration::from_secs(1);
/// How long the program may take to fill its memory.
const FILL_MAX: Duration = Duration::from_secs(60);

/// Does what the plan in `folder` says and leaves the course beside it.
pub(crate) fn run(folder: &Path, daemon: &Path) -> anyhow::Result<()> {
    let plan: Plan = read_json(&folder.join(PLAN))?;
    nobody_moves()?;
    let (mut program, accesses) = start(&plan, folder)?;
    let pid = program.id();
    // Misses are counted whoever looks: it slows the program, and all are to have the same pace.
    let mut plugin = Plugin::connect(Path::new(GUEST_PORT))?;
    plugin.start()?;
    if plan.by == Evidence::Samples {
        plugin.sample(Some(plan.sample_every))?;
    }
    let (faults, done) = (vmstat("numa_hint_faults")?, accesses.load(Ordering::Relaxed));
    let started = Instant::now();
    let running = match plan.manager()? {
        Some(manager) => Running::start(&manager, &Whose::Process(pid), daemon, folder)?,
        None => {
            set_balancing(plan.balancing())?;
            Running::Kernel
        }
    };
    let data = data_range(Path::new(PROC), pid)?;
    let mut moments = Vec::new();
    for second in 0..=plan.seconds {
        thread::sleep((SECOND * second as u32).saturating_sub(started.elapsed()));
        let seen = running.snapshot();
        let samples = |name: &str| seen["hwsample"]["samples"][name].as_u64().unwrap_or(0);
        let by_node = pages_within(pid, &data)?;
        moments.push(Moment {
            at_s: started.elapsed().as_secs_f64(),
            home_pages: by_node.get(&HOME).copied().unwrap_or(0),
            pages: by_node.values().sum(),
            accesses: accesses.load(Ordering::Relaxed) - done,
            hint_faults: vmstat("numa_hint_faults")?.saturating_sub(faults),
            samples: samples("taken"),
            useful: samples("useful"),
        });
    }
    let ended = running.end()?;
    nobody_moves()?;
    let id = rustix::process::Pid::from_child(&program);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).context("cannot end hotcold")?;
    let status = program.wait().context("cannot wait for hotcold")?;
    ensure!(status.success(), "hotcold ended with {status}: it has lost data");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    write_json(&folder.join(COURSE), &Course { plan, kernel, daemon_cpu_s: ended.cpu_s, moments })
}

/// Starts the program on the far node, waits until its memory is filled and lets it have memory everywhere; its accesses are counted.
fn start(plan: &Plan, folder: &Path) -> anyhow::Result<(Child, Arc<AtomicU64>)> {
    let program = std::env::current_exe().context("cannot find this program")?.with_file_name("hotcold");
    let report = folder.join("report");
    let mut child = Command::new("on-node")
        .arg(plan.from.node().0.to_string())
        .arg(&program)
        .args(["--mib", &plan.mib.to_string(), "--seed", &plan.seed.to_string(), "--threads", "2"])
        .args(["--hot-share", "1", "--access-share", "1", "--write-share", "1", "--no-thp"])
        .args(["--report-every", "0.2", "--report"])
        .arg(&report)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}: build it with make lab-programs", program.display()))?;
    let out = child.stdout.take().context("hotcold's output is not piped")?;
    let accesses = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&accesses);
    thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if line["event"] == "interval" {
                sum.fetch_add(line["accesses"].as_u64().unwrap_or(0), Ordering::Relaxed);
            }
        }
    });
    let asked = Instant::now();
    while accesses.load(Ordering::Relaxed) == 0 {
        ensure!(
            child.try_wait().context("cannot wait for hotcold")?.is_none() && asked.elapsed() < FILL_MAX,
            "hotcold has not filled its memory within {FILL_MAX:?}"
        );
        thread::sleep(Duration::from_millis(50));
    }
    widen(child.id())?;
    Ok((child, accesses))
}
