//! A machine whose memory is all in one tier, as most are: `record` and `plan`, with no
//! configuration, say how much DRAM its program needs, and are held to what the program does.

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
    // What the hottest part of the memory serves at least, and no more than it does serve: hotcold
    // has nearly all of the memory and of the accesses.
    for point in plan["points"].as_array().unwrap() {
        let of_memory =
            point["dram_pages"].as_f64().unwrap() / (plan["memory"]["seen"].as_f64().unwrap() / 4096.0);
        let low = point["share"]["low"].as_f64().unwrap();
        let truth = if of_memory < 0.2 { 4.5 * of_memory } else { 0.9 + (of_memory - 0.2) / 8.0 };
        assert!(low <= truth + 0.05, "{of_memory:.2} of the memory serve {truth:.2}: {point}");
        // If all were alike, 30 % of the memory would serve as much.
        let is_told = !(0.29..0.31).contains(&of_memory) || low > 0.4;
        assert!(is_told, "DAMON's regions hardly tell hot from cold: {point}");
    }
}

#[test]
fn what_is_hot_is_told_without_tiers_on_6_12() {
    what_is_hot_is_told_without_tiers(Line::Stable);
}

#[test]
fn what_is_hot_is_told_without_tiers_on_the_newest() {
    where_time_is_no_matter(|| what_is_hot_is_told_without_tiers(Line::Newest));
}
