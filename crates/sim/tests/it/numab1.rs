//! Ordinary NUMA balancing (`numab1`): what counts as private and as local, and the pace of scans
//! that follows from it, by hand.

use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run};
use thermocline_sim::scenario::Setup;

/// Pages of a scan: 256 MiB.
const SCAN: u64 = 65_536;

/// Four threads on node 0 that write all over a GiB of node 1, for some seconds.
fn after(seconds: u64) -> Report {
    let changes = [
        "process.0.footprint=1GiB".to_owned(),
        "process.0.place=[{node=1}]".to_owned(),
        "process.0.threads=4".to_owned(),
        "machine.cost.scan_mark_ns=0".to_owned(),
        "machine.cost.scan_skip_ns=0".to_owned(),
        format!("limit={seconds}s"),
    ];
    let setup = Setup::preset("remote-8g", &changes).expect("the preset can be made smaller");
    run(&setup, Arm { manager: ManagerName::Numab1, mode: ModeName::Event, seed: 1 }).expect("it runs")
}

/// A GiB is four scans. They cost nothing here: a scan's cost would put off its thread's next one.
///
/// 1. Threads ask each second, so scans are at 1, 2, 3, 4 s. Every fault is a page's first, so
///    private, and remote: the period doubles, and the next scan is put off to 6 s.
/// 2. Scans at 6, 8, 10, 12 s. Between the ends of the two passes three quarters of the faults are
///    local (those of the first pass's last scan come after its end), and a quarter of these are
///    by the thread that faulted before: 7 of 10 are local and 4 of 10 private, one slot more,
///    2200 ms.
/// 3. Scans at 14.2, 16.4, 18.6, 20.8 s. All are local, a quarter private: three slots, 2860 ms.
/// 4. Scans at 23.7, 26.5, 29.4 s.
#[test]
fn scans_come_when_they_do_by_hand() {
    for (seconds, scans) in
        [(5, 4), (7, 5), (13, 8), (14, 8), (15, 9), (18, 10), (20, 11), (23, 12), (25, 13), (28, 14)]
    {
        let counters = after(seconds).counters;
        assert_eq!(counters.numa_pte_updates, scans * SCAN, "after {seconds} s");
        assert_eq!(counters.numa_hint_faults, scans * SCAN, "after {seconds} s");
        assert_eq!(counters.numa_hint_faults_local, (scans - 4) * SCAN, "after {seconds} s");
        assert_eq!(counters.numa_pages_migrated, 4 * SCAN);
    }
}

/// Node 0 has room for a quarter: what does not fit stays, and counts as a failed migration, after
/// which the period doubles whatever else has happened.
#[test]
fn a_full_node_slows_the_scans_down() {
    let changes = [
        "process.0.footprint=1GiB",
        "process.0.place=[{node=1}]",
        "process.0.threads=4",
        "machine.node.0.memory=256MiB",
        "machine.min_free=\"1MiB\"",
        "machine.cost.scan_mark_ns=0",
        "machine.cost.scan_skip_ns=0",
        "limit=23s",
    ];
    let setup = Setup::preset("remote-8g", &changes.map(str::to_owned)).expect("it can be smaller");
    let arm = Arm { manager: ManagerName::Numab1, mode: ModeName::Event, seed: 1 };
    let report = run(&setup, arm).expect("it runs");
    // Passes end at 4 s and, with scans each 2 s, at 12 s: 1000, 2000, 4000 ms.
    assert_eq!((report.processes[0].scan_passes, report.processes[0].scan_period_ms), (2, 4000));
    let moved = report.counters.numa_pages_migrated;
    assert!((40_000..65_536).contains(&moved), "most of 256 MiB: {moved}");
}
