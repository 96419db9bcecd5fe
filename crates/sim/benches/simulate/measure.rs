//! What a run costs.

use rustix::time::{ClockId, clock_gettime};
use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, RunError, run};
use thermocline_sim::scenario::Setup;

use crate::limit::PAGES;

/// CPU time of this thread in seconds; what others take does not count.
pub(crate) fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a run has cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// Memory at its peak, above what there was before.
    pub(crate) bytes: f64,
    pub(crate) faults: f64,
}

/// A field of /proc/self/status, in bytes.
fn status_bytes(field: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux tells of every process");
    let line = text.lines().find(|l| l.starts_with(field)).expect("every process has the field");
    let kib: f64 = line.split_ascii_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib * 1024.0
}

fn cost(setup: &Setup, manager: &str, mode: ModeName) -> Result<Cost, Box<dyn std::error::Error>> {
    let manager = ManagerName::parse(manager)?;
    // Resets the peak of the resident set, of this process alone.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = status_bytes("VmRSS:");
    let start = cpu_s();
    let report = run(setup, Arm { manager, mode, seed: 1 }).map_err(|e: RunError| e.to_string())?;
    Ok(Cost {
        seconds: cpu_s() - start,
        bytes: status_bytes("VmHWM:") - before,
        faults: report.counters.numa_hint_faults as f64,
    })
}

/// A preset in event mode.
pub(crate) fn scenario(
    name: &str,
    changes: &[String],
    manager: &str,
) -> Result<Cost, Box<dyn std::error::Error>> {
    cost(&Setup::preset(name, changes)?, manager, ModeName::Event)
}

/// Chunks of 1 GiB in so much memory, two thirds of it DRAM, with so many visits of ten accesses a
/// page.
pub(crate) fn of_size(gib: u64, visits: u64) -> Result<Cost, Box<dyn std::error::Error>> {
    let changes = [
        format!("machine.node.1.memory=\"{}GiB\"", gib * 2 / 3),
        format!("machine.node.2.memory=\"{gib}GiB\""),
        format!("process.0.footprint=\"{gib}GiB\""),
        format!("process.0.pattern.visits={visits}"),
        "process.0.pattern.accesses_per_page=10".to_owned(),
    ];
    scenario("chunks-192g", &changes, "numab2")
}

/// Time of an access in exact mode, uniform over 50 million pages, with the engine attached: what
/// more accesses cost more.
pub(crate) fn exact_ns_per_access() -> Result<f64, Box<dyn std::error::Error>> {
    let seconds =
        |accesses: u64| cost(&uniform(accesses)?, "thermocline:adaptive", ModeName::Exact).map(|c| c.seconds);
    const FEW: u64 = 20_000_000;
    const MANY: u64 = 220_000_000;
    Ok((seconds(MANY)? - seconds(FEW)?) * 1e9 / (MANY - FEW) as f64)
}

fn uniform(accesses: u64) -> Result<Setup, Box<dyn std::error::Error>> {
    let kib = PAGES * 4;
    let text = format!(
        "name = \"uniform\"\nsummary = \"\"\nmachine = \"bergamo-cxl\"\n[[process]]\nname = \"p\"\nthreads = 1\n\
         node = 1\nfootprint = \"{kib}KiB\"\nplace = [{{ node = 1 }}, {{ node = 2 }}]\n\
         pattern = {{ kind = \"uniform\", accesses = {accesses} }}\n"
    );
    Ok(Setup::parse("uniform", &text, &[])?)
}
