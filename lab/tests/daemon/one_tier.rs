//! A machine whose memory is all in one tier, as most are: `record` and `plan`, with no
//! configuration, say how much DRAM its program needs, and are held to what the program does.

use serde_json::Value;
use thermocline_lab::{Line, Machine, ThpMode};

use super::{MIB, Run, number, where_time_is_no_matter, with_damon_settings};

/// Memory of hotcold, whose hot fifth takes nine tenths of the accesses.
const FOOTPRINT_MIB: u64 = 192;
/// Accesses a second: few enough that an accessed bit tells how hot a page is.
const RATE: u64 = 100_000;

fn what_is_hot_is_told_without_tiers(line: Line) {
    let mut run = Run::new(line, [1024, 128, 512], ThpMode::Never, 300)
        .env("MIB", FOOTPRINT_MIB)
        .env("RATE", RATE)
        .env("SECONDS_ON", 30);
    run.machine = Machine::of_sizes(&[1024 * MIB]);
    run.guest = run.guest.machine(run.machine.clone());
    let Some(outcome) = run.run(&with_damon_settings(include_str!("one_tier.sh"))) else { return };
    println!("{}", run.text("recorded"));
    assert_eq!((number(&outcome, "run_status"), number(&outcome, "record_status")), (1, 0));
    let plan = run.json("plan.json");
    assert_eq!(plan["source"], "regions", "{plan}");
    println!("{plan}");
}

#[test]
fn what_is_hot_is_told_without_tiers_on_6_12() {
    what_is_hot_is_told_without_tiers(Line::Stable);
}

#[test]
fn what_is_hot_is_told_without_tiers_on_the_newest() {
    where_time_is_no_matter(|| what_is_hot_is_told_without_tiers(Line::Newest));
}
