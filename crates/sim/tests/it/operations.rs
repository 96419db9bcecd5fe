//! Times of operations against arithmetic: numbers of operations, binomial percentiles, Little's
//! law, and what faults add.

use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::operations::OperationTimes;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run};
use thermocline_sim::scenario::Setup;

fn report(preset: &str, changes: &[&str], manager: ManagerName, mode: ModeName) -> Report {
    let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
    let setup = Setup::preset(preset, &changes).expect("the preset can be changed");
    run(&setup, Arm { manager, mode, seed: 1 }).expect("it runs")
}

fn times(report: &Report) -> OperationTimes {
    report.processes.iter().find_map(|p| p.operations.clone()).expect("a process has operations")
}

fn close(what: &str, found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() < within, "{what}: {found}, expected {expected}");
}

/// Half of 64 MiB in DRAM at 100 ns, half in CXL at 300 ns.
const HALF: [&str; 12] = [
    "process.0.footprint=64MiB",
    "process.0.threads=1",
    "process.0.place=[{node=\"top1\", size=\"32MiB\"}, {node=\"low\"}]",
    "process.0.lines_per_access=1.0",
    "process.0.compute_ns=0.0",
    "process.0.pattern.accesses=100_000_000",
    "process.0.accesses_per_operation=8.0",
    "machine.node.1.read_ns=[100.0, 100.0, 0.0]",
    "machine.node.2.read_ns=[300.0, 300.0, 0.0]",
    "process.0.store_share=0.0",
    "process.0.in_flight=1",
    "limit=5s",
];

#[test]
fn without_a_manager_times_are_binomial() {
    for mode in [ModeName::Exact, ModeName::Event] {
        let found = times(&report("redis-memtier", &HALF, ManagerName::None, mode));
        // Eight accesses of which X go to CXL take 800 + 200 X ns; X is binomial (8, 1/2), with
        // P(X <= 4) = 0.637, P(X <= 6) = 0.965 and P(X <= 7) = 0.996.
        close("mean", found.mean_us, 1.6, 0.001);
        close("median", found.p50_us, 1.6, 0.006);
        close("99 of 100", found.p99_us, 2.2, 0.006);
        close("999 of 1000", found.p99_9_us, 2.4, 0.006);
        close("a second", found.per_s, 625_000.0, 0.001);
        close("all", found.operations as f64, 3_125_000.0, 0.001);
    }
}

#[test]
fn requests_in_flight_are_operations_a_second_times_their_time() {
    for (in_flight, threads) in [(2, 2), (9, 1), (12, 4), (500, 1), (500, 4), (3_000_000, 1)] {
        let flight = format!("process.0.in_flight={in_flight}");
        let threads = format!("process.0.threads={threads}");
        let mut changes = HALF.to_vec();
        changes.extend([flight.as_str(), threads.as_str()]);
        let found = times(&report("redis-memtier", &changes, ManagerName::None, ModeName::Event));
        close(&flight, found.mean_us * found.per_s / 1e6, f64::from(in_flight), 0.01);
        assert!(found.p50_us <= found.p99_us && found.p99_us <= found.p99_9_us);
    }
}

#[test]
fn faults_and_scans_lengthen_the_tail() {
    let changes = ["process.1.pattern.operations=500_000", "process.0.footprint=64MiB"];
    let with = report("redis", &changes, ManagerName::Numab2, ModeName::Event);
    let without = times(&report("redis", &changes, ManagerName::None, ModeName::Event));
    let found = times(&with);
    // Of all operations, whose number is given.
    let all = f64::from(500_000);
    close("operations", found.operations as f64, all, 0.01);
    close("without", without.operations as f64, all, 0.01);
    close("a second", found.per_s, found.operations as f64 / with.time_s.expect("it ends"), 0.01);
    let faults_a_thousand = with.counters.numa_hint_faults as f64 / all * 1000.0;
    assert!(faults_a_thousand > 2.0, "{faults_a_thousand}");
    assert!(found.p99_9_us > without.p99_9_us, "{found:?} {without:?}");
}

#[test]
fn both_modes_agree() {
    let changes = ["process.1.pattern.operations=200_000", "process.0.footprint=64MiB"];
    let [exact, event] = [ModeName::Exact, ModeName::Event]
        .map(|mode| times(&report("redis", &changes, ManagerName::Numab2, mode)));
    close("operations", event.operations as f64, exact.operations as f64, 0.01);
    close("mean", event.mean_us, exact.mean_us, 0.02);
    close("median", event.p50_us, exact.p50_us, 0.02);
    close("99 of 100", event.p99_us, exact.p99_us, 0.05);
}
