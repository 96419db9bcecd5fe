//! The scenarios of the lab: managers rank here as they do there, on a stock kernel.

use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run};
use thermocline_sim::scenario::Setup;

/// From the worst to the best in the lab; on hotcold the first two are alike there.
const RANKS: [&str; 4] = ["none", "damon", "numab2", "thermocline:adaptive"];

/// DRAM's share of the accesses after the warm-up, of what the best static placement would have
/// had: two runs are the same until the shorter one ends.
fn share_in_window(preset: &str, operations: &str, manager: &str, warmup: u64, end: u64) -> f64 {
    let report = |count: u64| {
        let setup =
            Setup::preset(preset, &[format!("process.1.pattern.{operations}={count}")]).expect("a preset");
        run(
            &setup,
            Arm { manager: ManagerName::parse(manager).expect("a manager"), mode: ModeName::Event, seed: 1 },
        )
        .expect("it runs and keeps its books")
    };
    let (before, all) = (report(warmup), report(end));
    let top = |report: &Report| report.top_share.expect("it accesses memory");
    let served = top(&all) * end as f64 - top(&before) * warmup as f64;
    served / (end - warmup) as f64 / all.oracle.expect("it is done").static_top_share
}

fn ranks(preset: &str, operations: &str, warmup: u64, end: u64) {
    let shares = RANKS.map(|manager| share_in_window(preset, operations, manager, warmup, end));
    println!("{preset}: {shares:?}");
    assert!(shares.is_sorted_by(|worse, better| worse + 0.002 < *better), "{preset}: {RANKS:?} {shares:?}");
    assert!(shares[3] <= 1.01, "nobody is better than the best static placement where nothing changes");
}

#[test]
fn managers_of_redis_rank_as_in_the_lab() {
    ranks("lab-redis", "operations", 1_500_000, 1_800_000);
}

#[test]
fn managers_of_hotcold_rank_as_in_the_lab() {
    ranks("lab-hotcold", "accesses", 100_000_000, 130_000_000);
}
