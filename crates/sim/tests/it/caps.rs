//! A cap holds: what a scope has in DRAM above it goes down, and makes room for who waits.

use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::scenario::Setup;

use crate::evidence::{figure, small};
use crate::truths::simulate;

/// A hog that sweeps through its memory, most of DRAM, again and again; beside it a server whose
/// hot quarter is on CXL.
const TWO: &str = "threads = 1\nfootprint = \"32MiB\"\nplace = [{ node = 1 }]\n\
    pattern = { kind = \"phases\", repeat = 1, step = [{ how = \"random\", accesses = 40000000, region = [\
    { from = 0.0, to = 0.25, weight = 0.9 }, { from = 0.25, to = 1.0, weight = 0.1 }] }] }\n\
    [[process]]\nname = \"hog\"\nthreads = 1\nnode = 0\nfootprint = \"96MiB\"\nbackground = true\n\
    together = true\nplace = [{ node = 0 }]\npattern = { kind = \"stream\", passes = 100000.0 }\n";

const CAP_MIB: u64 = 32;

/// The two, on 112 MiB of DRAM; `first` is a scope with its limit, and all else is in another.
pub fn two(first: &str) -> Setup {
    let scopes = format!("config.scope=[{{ {first} }}, {{ cgroup = \"/\" }}]");
    small(TWO, &["machine.node.0.memory=\"112MiB\"", &scopes])
}

fn with(hog: &str) -> Setup {
    two(&format!("cgroup = \"/hog\"{hog}"))
}

/// MiB in DRAM at the end.
pub fn dram_mib(report: &Report, name: &str) -> u64 {
    report.processes.iter().find(|process| process.name == name).expect("a process").pages[0] / 256
}

/// Shows who has how much in the end.
pub fn show(name: &str, report: &Report) {
    println!(
        "{name}: hog {} MiB, server {} MiB of DRAM, slowdown {:.3}, demoted {}",
        dram_mib(report, "hog"),
        dram_mib(report, "p"),
        report.slowdown().expect("it finishes"),
        figure(report, "demotion_done")
    );
}

#[test]
fn a_hog_above_its_cap_gives_way_to_who_waits() {
    let run = |hog: &str, rate: &str| {
        let mut setup = with(hog);
        setup.scenario.config.demotion.scope_rate_mbps = rate.parse().expect("a number");
        simulate(&setup, "thermocline:adaptive", ModeName::Event, 7)
    };
    let free = run("", "128");
    let stopped = run(&format!(", top_tier_cap_mib = {CAP_MIB}"), "0");
    let capped = run(&format!(", top_tier_cap_mib = {CAP_MIB}"), "128");
    for (name, report) in [("free", &free), ("stopped", &stopped), ("capped", &capped)] {
        show(name, report);
    }
    assert_eq!((figure(&free, "demotion_done"), figure(&stopped, "demotion_done")), (0, 0));
    let held = dram_mib(&capped, "hog");
    assert!((CAP_MIB - 4..=CAP_MIB + 4).contains(&held), "{held} MiB of {CAP_MIB}");
    assert!(dram_mib(&stopped, "hog") > 80, "a cap alone takes nothing away");
    assert!(dram_mib(&capped, "p") > dram_mib(&free, "p"), "what it gave is used");
    assert!(capped.time_s < free.time_s, "{:?} and {:?}", capped.time_s, free.time_s);
    // Each page goes down once, but for what is promoted into the few MiB below the cap.
    let excess = (96 - CAP_MIB) * 256;
    assert!(figure(&capped, "demotion_done") < 2 * excess, "{}", figure(&capped, "demotion_done"));
}
