//! The kernel's managers: DAMON promotes what is hot, with no other user of DAMON; then NUMA
//! balancing. Everything is put back.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, soak, where_time_is_no_matter, with_damon_settings, with_settings};

/// hotcold, of which a fifth is hot. It fits into DRAM: where pages stay is DAMON's choice alone.
const FOOTPRINT_MIB: u64 = 96;
const PAGES_PER_MIB: u64 = 256;
/// Hot pages in DRAM at the end, and how far they must be ahead of the cold ones. Most come within
/// seconds. Cold ones may come along, as a page that was never looked at counts as young; they go
/// down again when they are cold_ms old.
const HOT_MIN: f64 = 0.5;
const AHEAD_MIN: f64 = 0.3;

fn hot_pages_come_by_damon(line: Line) {
    let run = Run::new(line, [640, 128, 512], ThpMode::Never, 400)
        .env("MIB", FOOTPRINT_MIB)
        .env("SECONDS_ON", if soak() { 60 } else { 20 });
    let Some(outcome) = run.run(&with_damon_settings(include_str!("damon.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let (judged, last) = (run.verdict("judged"), run.json("last"));
    println!("damon {}\nkernel {}\n{:?}", last["damon"], last["kernel_moves"], judged.moved);
    println!(
        "hot pages in DRAM {:.1} %, cold {:.1} %",
        judged.hot_in_dram * 100.0,
        judged.cold_in_dram * 100.0
    );
    assert_eq!((number("refused"), number("daemon_status"), number("killed")), (1, 0, 1));
    assert_eq!(last["manager"], "damon");
    assert!(judged.hot_in_dram >= HOT_MIN, "hot pages stay on the slow node");
    assert!(judged.hot_in_dram >= judged.cold_in_dram + AHEAD_MIN, "hot pages are not told from cold ones");

    // Who moved what: all of it was DAMON, by its count and by the kernel's.
    let promoted = &last["moved"]["promoted"];
    assert_eq!((number("kernel_promoted"), promoted["kernel"].as_u64()), (0, Some(0)));
    assert_eq!(promoted["thermocline"], 0);
    let by_damon = |direction: &str| last["moved"][direction]["damon"].as_u64().unwrap();
    let moved = judged.moved.unwrap();
    assert!(moved.promoted.pages > FOOTPRINT_MIB * PAGES_PER_MIB / 20);
    // Programs other than hotcold have pages as well, and what DAMON moves between the last look
    // and the end is in the kernel's count alone.
    assert!(by_damon("promoted") + by_damon("promoted") / 20 >= moved.promoted.pages, "moves are not told");
    assert!(by_damon("promoted") + by_damon("demoted") <= number("migrated"), "more is told than was moved");

    // The kernel's other manager, on the same pages.
    let numab2 = run.json("numab2");
    let promoted = numab2["moved"]["promoted"]["kernel"].as_u64().unwrap();
    println!("numab2: {}", numab2["moved"]);
    assert_eq!((number("numab2_status"), &numab2["manager"]), (0, &"numab2".into()));
    assert!(promoted > 0 && promoted <= number("numab2_promoted"), "{numab2}");
    assert_eq!(numab2["moved"]["promoted"]["damon"], 0);
}

#[test]
fn hot_pages_come_by_damon_on_6_12() {
    where_time_is_no_matter(|| hot_pages_come_by_damon(Line::Stable));
}

#[test]
fn hot_pages_come_by_damon_on_the_newest() {
    hot_pages_come_by_damon(Line::Newest);
}

/// Of three of hotcold, those that may move do, and of the others not a page: excluded, and allowed
/// the other way round.
fn filters_are_by_cgroup(line: Line) {
    let allows = matches!(line, Line::Newest);
    let run = Run::new(line, [640, 128, 512], ThpMode::Never, 400)
        .env("MIB", 48)
        .env("ALLOWS", if allows { "1" } else { "" })
        .env("SECONDS_MOST", 60)
        .env("SECONDS_AFTER", if soak() { 30 } else { 3 });
    let Some(outcome) = run.run(&with_damon_settings(include_str!("damon-cgroups.sh"))) else { return };
    let number = |name| number(&outcome, name);
    assert_eq!(
        (number("refused"), number("excluding_status"), number("allowing_status"), number("ended")),
        (1, 0, 0, 1)
    );
    let verdict = |phase: &str, name: &str| {
        let verdict = run.verdict(&format!("judged-{phase}-{name}"));
        let moved = verdict.moved.clone().unwrap().all.pages;
        let hot = verdict.hot_in_dram;
        println!("{phase} {name}: hot pages in DRAM {:.1} %, {moved} pages moved", hot * 100.0);
        (verdict.hot_in_dram, moved)
    };
    let moves = |phase: &str, name: &str| {
        let (hot_in_dram, moved) = verdict(phase, name);
        assert!(hot_in_dram >= HOT_MIN && moved > 0, "{phase} {name}: hot pages stay on the slow node");
    };
    let stays = |phase: &str, name: &str| {
        assert_eq!(verdict(phase, name).1, 0, "{phase} {name}: pages moved that were not to")
    };
    stays("excluding", "a");
    moves("excluding", "b");
    stays("excluding", "c");
    moves("allowing", "a");
    stays("allowing", "b");
    // Older kernels can be kept to one cgroup alone.
    if allows { moves("allowing", "c") } else { stays("allowing", "c") }
}

#[test]
fn filters_are_by_cgroup_on_6_12() {
    where_time_is_no_matter(|| filters_are_by_cgroup(Line::Stable));
}

#[test]
fn filters_are_by_cgroup_on_the_newest() {
    where_time_is_no_matter(|| filters_are_by_cgroup(Line::Newest));
}

fn managers_take_over(line: Line) {
    let run = Run::new(line, [640, 128, 512], ThpMode::Never, 300).one_processor();
    let Some(outcome) = run.run(&with_settings(include_str!("switch.sh"))) else { return };
    assert_eq!(number(&outcome, "daemon_status"), 0);
    // To damon, thermocline and observe; in vain to damon, which takes over nothing.
    assert_eq!(number(&outcome, "switches"), 3, "{}", run.text("daemon-errors"));
}

#[test]
fn managers_take_over_from_each_other_on_6_12() {
    managers_take_over(Line::Stable);
}

#[test]
fn managers_take_over_from_each_other_on_the_newest() {
    where_time_is_no_matter(|| managers_take_over(Line::Newest));
}
