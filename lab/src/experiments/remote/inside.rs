//! The part of the experiment that runs in the guest.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use thermocline_core::units::NodeId;
use thermocline_lab::programs::residency::data_range;
use thermocline_lab::programs::{read_json, write_json};
use thermocline_lab::truth::{GUEST_PORT, Plugin};

use super::course::{COURSE, Course, Evidence, Moment, Plan};
use crate::experiments::runner::PLAN;
use crate::experiments::score::counted::Counted;
use crate::experiments::score::program::Whose;
use crate::experiments::score::running::{Running, nobody_moves, set_balancing};
use crate::experiments::within::{PROC, pages_within, vmstat, widen};

/// The node with the processors.
const HOME: NodeId = NodeId(0);
const SECOND: Duration = Duration::from_secs(1);

/// Carries out the plan in `folder` and writes the course beside it.
pub(crate) fn run(folder: &Path, daemon: &Path) -> anyhow::Result<()> {
    let plan: Plan = read_json(&folder.join(PLAN))?;
    nobody_moves()?;
    let mut program = start(&plan, folder)?;
    let pid = program.child.id();
    // Misses are counted for every kind of evidence: it slows the program, and all runs should have
    // the same pace.
    let mut plugin = Plugin::connect(Path::new(GUEST_PORT))?;
    plugin.start()?;
    if plan.by == Evidence::Samples {
        plugin.sample(Some(plan.sample_every))?;
    }
    let (faults, done) = (vmstat("numa_hint_faults")?, program.count.load(Ordering::Relaxed));
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
            accesses: program.count.load(Ordering::Relaxed) - done,
            hint_faults: vmstat("numa_hint_faults")?.saturating_sub(faults),
            samples: samples("taken"),
            useful: samples("useful"),
        });
    }
    let ended = running.end()?;
    nobody_moves()?;
    program.end()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    write_json(&folder.join(COURSE), &Course { plan, kernel, daemon_cpu_s: ended.cpu_s, moments })
}

/// Starts the program on the far node, and allows it memory everywhere once its own is filled.
fn start(plan: &Plan, folder: &Path) -> anyhow::Result<Counted> {
    let [node, mib, seed] =
        [plan.from.node().0.into(), u64::from(plan.mib), plan.seed].map(|number| number.to_string());
    let load = ["--mib", &mib, "--seed", &seed, "--threads", "2"];
    let uniform = ["--hot-share", "1", "--access-share", "1", "--write-share", "1"];
    let program =
        Counted::hotcold(&["on-node", &node], &[&load[..], &uniform].concat(), &folder.join("report"))?;
    widen(program.child.id())?;
    Ok(program)
}
