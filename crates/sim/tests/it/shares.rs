//! A share comes back: what a hog holds above its own goes down for who lacks some of theirs.

use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::scenario::Setup;

use crate::caps::{TWO, dram_mib};
use crate::evidence::{figure, small};
use crate::truths::simulate;

const SHARE_MIB: u64 = 24;

fn with(share: &str) -> Setup {
    let scopes = format!("config.scope=[{{ cgroup = \"/p\"{share} }}, {{ cgroup = \"/\" }}]");
    small(TWO, &["machine.node.0.memory=\"112MiB\"", &scopes])
}

#[test]
fn a_share_makes_a_hog_give_way_to_its_owner() {
    let run = |share: &str| -> Report { simulate(&with(share), "thermocline:adaptive", ModeName::Event, 7) };
    let without = run("");
    let shared = run(&format!(", top_tier_share_mib = {SHARE_MIB}"));
    for (name, report) in [("without", &without), ("shared", &shared)] {
        println!(
            "{name}: hog {} MiB, server {} MiB of DRAM, slowdown {:.3}, demoted {}",
            dram_mib(report, "hog"),
            dram_mib(report, "p"),
            report.slowdown().expect("it finishes"),
            figure(report, "demotion_done")
        );
    }
    assert_eq!(figure(&without, "demotion_done"), 0);
    assert!(dram_mib(&shared, "p") > dram_mib(&without, "p"), "the server has what it wants");
    assert!(shared.time_s < without.time_s, "{:?} and {:?}", shared.time_s, without.time_s);
    // The hog gives what the server wants of its share, and no more.
    let gave = 96 - dram_mib(&shared, "hog");
    assert!((1..=SHARE_MIB + 4).contains(&gave), "{gave} MiB of {SHARE_MIB}");
    assert!(figure(&shared, "demotion_done") <= (SHARE_MIB + 4) * 256);
}
