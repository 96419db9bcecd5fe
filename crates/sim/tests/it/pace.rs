//! The engine paces the scans of the simulated kernel as it does those of a live one.

use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run};
use thermocline_sim::scenario::Setup;

/// Four threads, which take one scan step a second between them, on 8 GiB of which 6 GiB fit.
const ZIPF: &str = r#"
    name = "zipf"
    summary = "8 GiB, of which 6 GiB are in DRAM"
    machine = "cxl-2tier"

    [[process]]
    name = "zipf"
    threads = 4
    node = "cpu"
    footprint = "8GiB"
    place = [{ node = "top" }, { node = "low" }]
    compute_ns = 200.0
    pattern = { kind = "zipf", exponent = 0.99, accesses = 120_000_000 }
"#;

fn simulate(manager: &str, changes: &[&str]) -> Report {
    let machine = ["machine.node.0.memory=\"6GiB\""];
    let changes: Vec<String> = machine.iter().chain(changes).map(|change| (*change).to_owned()).collect();
    let setup = Setup::parse("zipf", ZIPF, &changes).expect("a sound scenario");
    let manager = ManagerName::parse(manager).expect("a manager");
    run(&setup, Arm { manager, mode: ModeName::Event, seed: 7 }).expect("it runs and keeps its books")
}

#[test]
fn memory_that_threads_are_to_scan_in_ten_seconds_is_scanned_so_and_then_at_its_period() {
    let adaptive = "thermocline:adaptive";
    let paced = simulate(adaptive, &[]);
    // The step of a machine as large as this, and for the whole run.
    let fixed = simulate(adaptive, &["config.kernel.scan_size_mb=48", "config.kernel.scan_size_max_mb=48"]);
    let numab2 = simulate("numab2", &[]);
    let passes = |report: &Report| report.processes[0].scan_passes;
    println!("passes: {} {} {}", passes(&paced), passes(&fixed), passes(&numab2));
    // 48 MB a second, and what is passed over eight times as fast, are a pass a minute.
    assert!(passes(&fixed) <= 1);
    assert!(passes(&paced) >= passes(&numab2) / 2);
    assert!(paced.counters.pgpromote_success > 0, "the kernel promotes a little in a renewal");
    assert_eq!(fixed.counters.pgpromote_success, 0);
    let seconds = |report: &Report| report.time_s.expect("it is done");
    let none = seconds(&simulate("none", &[]));
    let gain = |report: &Report| none - seconds(report);
    println!("of {none} s, saved: {} {} {}", gain(&paced), gain(&fixed), gain(&numab2));
    // By a step that does not follow what is seen, nothing is found in time.
    assert!(gain(&paced) > 0.7 * gain(&numab2) && gain(&fixed) < 0.1 * gain(&numab2));
}

#[test]
fn beside_a_scope_that_is_excluded_the_kernel_promotes_nothing() {
    let report = simulate(
        "thermocline:adaptive",
        &["config.scope=[{ name = \"other\", command = \"other\", exclude = true }]"],
    );
    assert_eq!(report.counters.pgpromote_success, 0);
    assert!(report.processes[0].scan_passes > 0, "steps are larger instead");
}
