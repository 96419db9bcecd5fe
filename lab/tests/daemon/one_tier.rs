//! A machine whose memory is all in one tier, as most are: `record` and `plan`, with no
//! configuration, say how much DRAM its program needs, and are held to what the program does.

use thermocline_lab::{Line, Machine, ThpMode};

use super::{MIB, Run, number, where_time_is_no_matter, with_damon_settings};

/// Memory of hotcold, whose hot fifth takes nine tenths of the accesses.
const FOOTPRINT_MIB: u64 = 192;
/// Accesses a second: few enough that an accessed bit tells how hot a page is.
const RATE: u64 = 100_000;

fn what_is_hot_is_told_without_tiers(line: Line, layout: &str) {
    let mut run = Run::new(line, [1024, 128, 512], ThpMode::Never, 300)
        .env("MIB", FOOTPRINT_MIB)
        .env("RATE", RATE)
        .env("LAYOUT", layout)
        .env("SECONDS_ON", 80);
    run.machine = Machine::of_sizes(&[1024 * MIB]);
    run.guest = run.guest.machine(run.machine.clone());
    let Some(outcome) = run.run(&with_damon_settings(include_str!("one_tier.sh"))) else { return };
    println!("{}", run.text("recorded"));
    assert_eq!((number(&outcome, "run_status"), number(&outcome, "record_status")), (1, 0));
    let plan = run.json("plan.json");
    assert_eq!(plan["source"], "regions", "{plan}");
    println!("{plan}\nchecks {}", plan["checks"]);
    // Hotcold has nearly all of the memory and of the accesses.
    for point in plan["points"].as_array().unwrap() {
        let of_memory =
            point["dram_pages"].as_f64().unwrap() / (plan["memory"]["seen"].as_f64().unwrap() / 4096.0);
        let of = |end: &str| point["share"][end].as_f64().unwrap_or_else(|| panic!("{end} of {point}"));
        let truth = if of_memory < 0.2 { 4.5 * of_memory } else { 0.9 + (of_memory - 0.2) / 8.0 };
        println!("{of_memory:.2} of the memory serve {truth:.2}: {}", point["share"]);
        // All of the hot fifth is alike. Which pages are hotter than hot is told by the shortest
        // checks alone, with which an emulated kernel is late.
        let off = if of_memory < 0.15 { 0.25 } else { 0.1 };
        let is_near = (of("likely") - truth).abs() <= off;
        assert!(is_near, "{of_memory:.2} of the memory serve {truth:.2}: {point}");
        let within = of("low") - 0.05 <= truth && truth <= of("high") + 0.05;
        assert!(within, "{of_memory:.2} of the memory serve {truth:.2}: {point}");
    }
}

#[test]
fn what_is_hot_is_told_without_tiers_on_6_12() {
    what_is_hot_is_told_without_tiers(Line::Stable, "scattered");
}

#[test]
fn what_is_hot_in_one_piece_is_told_without_tiers_on_6_12() {
    where_time_is_no_matter(|| what_is_hot_is_told_without_tiers(Line::Stable, "contiguous"));
}

#[test]
fn what_is_hot_is_told_without_tiers_on_the_newest() {
    where_time_is_no_matter(|| what_is_hot_is_told_without_tiers(Line::Newest, "scattered"));
}
