//! A share comes back: what a hog holds above its own goes down for who lacks some of theirs.

use thermocline_sim::mode::ModeName;

use crate::caps::{dram_mib, show, two};
use crate::evidence::figure;
use crate::truths::simulate;

const SHARE_MIB: u64 = 24;

#[test]
fn a_share_makes_a_hog_give_way_to_its_owner() {
    let run = |share: &str| {
        let setup = two(&format!("cgroup = \"/p\"{share}"));
        simulate(&setup, "thermocline:adaptive", ModeName::Event, 7)
    };
    let without = run("");
    let shared = run(&format!(", top_tier_share_mib = {SHARE_MIB}"));
    for (name, report) in [("without", &without), ("shared", &shared)] {
        show(name, report);
    }
    assert_eq!(figure(&without, "demotion_done"), 0);
    assert!(dram_mib(&shared, "p") > dram_mib(&without, "p"), "the server has what it wants");
    assert!(shared.time_s < without.time_s, "{:?} and {:?}", shared.time_s, without.time_s);
    // The hog gives what the server wants of its share, and no more.
    let gave = 96 - dram_mib(&shared, "hog");
    assert!((1..=SHARE_MIB + 4).contains(&gave), "{gave} MiB of {SHARE_MIB}");
    assert!(figure(&shared, "demotion_done") <= (SHARE_MIB + 4) * 256);
}
