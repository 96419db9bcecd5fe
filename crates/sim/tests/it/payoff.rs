//! What is worth a move depends on what gives way to it.

use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;

use crate::evidence::{figure, small};
use crate::truths::simulate;

/// 64 MiB on CXL, all pages of which are accessed alike for about a minute.
const ALIKE: &str = "threads = 1\nfootprint = \"64MiB\"\nplace = [{ node = 1 }]\n\
    pattern = { kind = \"uniform\", accesses = 250000000 }\n";
/// 112 MiB in DRAM.
const BESIDE: &str = "[[process]]\nname = \"beside\"\nnode = 0\nfootprint = \"112MiB\"\nbackground = true\n\
    place = [{ node = 0 }]\n";
const PAGES: u64 = 64 << 8;

/// Runs ALIKE beside others, on 128 MiB of DRAM. Promotions are so slow that in the first seconds,
/// while the budget is unknown, a sixth of it can go up. They are so dear that trials can promote
/// another fifth: half a percent of a minute, at 100 us a page.
fn run(beside: &str, law: bool) -> Report {
    let enabled = format!("config.payoff.enabled={law}");
    let more = [
        "machine.node.0.memory=\"128MiB\"",
        "config.admission.rate_limit_mbps=2",
        "config.payoff.move_ns=100000",
        "config.payoff.loan_s=5",
        "config.payoff.watch_s=10",
        &enabled,
    ];
    let report =
        simulate(&small(&format!("{ALIKE}{beside}"), &more), "thermocline:adaptive", ModeName::Event, 7);
    println!("{:?}\n{:?}", report.counters, report.notes);
    report
}

#[test]
fn idle_memory_gives_way_to_a_program_whose_pages_are_all_alike() {
    let idle = format!("{BESIDE}threads = 0\npattern = {{ kind = \"idle\" }}\n");
    let report = run(&idle, true);
    assert!(report.processes[0].pages[0] > PAGES * 9 / 10, "{:?}", report.processes);
}

#[test]
fn memory_that_is_accessed_as_often_does_not() {
    let alike = format!("{BESIDE}threads = 2\npattern = {{ kind = \"uniform\", accesses = 900000000 }}\n");
    let found = |law| {
        let report = run(&alike, law);
        (figure(&report, "refused.not_worth"), figure(&report, "proposed"))
    };
    let ((refused, proposed), (refused_without, _)) = (found(true), found(false));
    assert!(refused > proposed / 2, "{refused} of {proposed} are not worth it");
    assert_eq!(refused_without, 0);
}

#[test]
fn free_memory_costs_nothing() {
    let report = run("", true);
    assert!(report.processes[0].pages[0] > PAGES * 9 / 10, "{:?}", report.processes);
}
