//! Demotion: cold pages leave a full node 0 to make room, and no program has to wait for it.

use thermocline_lab::{Line, ThpMode};

use super::{MIB, Run, number, soak, where_time_is_no_matter, with_settings};

const NODE_0_MIB: u64 = 512;
/// What is free on node 0 at first: less than the daemon's goal.
const FREE_MIB: u64 = 16;
/// hotcold, of which a fifth is hot.
const FOOTPRINT_MIB: u64 = 200;
const PAGE: u64 = 4096;

/// `way` is how the kernel is asked for it.
fn cold_memory_makes_room(line: Line, way: &str) {
    let run = Run::new(line, [NODE_0_MIB, 128, 1024], ThpMode::Never, 600)
        .env("WAY", way)
        .env("MIB", FOOTPRINT_MIB)
        .env("FREE_MIB", FREE_MIB)
        .env("SECONDS_ON", if soak() { 90 } else { 15 });
    let Some(outcome) = run.run(&with_settings(include_str!("demotion.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let (judged, last) = (run.verdict("judged"), run.json("last"));
    let (counters, kernel) = (&last["counters"], &last["kernel_moves"]);
    let counter = |name: &str| counters[name].as_u64().unwrap();
    println!("demoter {}\nkernel {kernel}\nnodes {}\ncounters {counters}", last["demoter"], last["nodes"]);
    println!("hot pages in DRAM {:.1} %, {:?}", judged.hot_in_dram * 100.0, judged.moved);

    assert_eq!(number("daemon_status"), 0);
    assert!(number("free_before") <= FREE_MIB + 4, "node 0 is not full");
    // The goal: the high watermark, what admission leaves free (16 MiB, but at most 1 % of the
    // node), and 2 % of the node.
    let node = &last["nodes"][0];
    let pages = |name: &str| node[name].as_u64().unwrap();
    let high = node["watermarks"]["high_pages"].as_u64().unwrap();
    let managed = pages("managed_pages");
    let goal = high + (16 * MIB / PAGE).min(managed / 100) + managed / 50;
    println!("free {} MiB of {} MiB that are promised", pages("free_pages") >> 8, goal >> 8);
    assert!(pages("free_pages") * 10 >= goal * 9, "the goal is not met");
    assert!(counter("demotion_done") > 0 && counter("pgpromote_success") > 0);
    // What went down at our command is the kernel's count too, less what programs were made to
    // demote.
    let commanded = number("commanded");
    let told = counter("demotion_done") + kernel["pgdemote_direct"].as_u64().unwrap();
    assert!(told.abs_diff(commanded) * 100 <= commanded, "{told} of {commanded}");
    let hot = FOOTPRINT_MIB / 5;
    assert!(judged.hot_in_dram >= 0.5, "of {hot} MiB that are hot");
    assert!(number("cold_down") * 10 >= hot * 3, "room came from elsewhere");
    // A cpuset keeps its memory where it is, but for what the kernel demotes for its own reasons:
    // 6.12 does not heed cpusets then.
    let own: u64 =
        ["direct", "proactive"].map(|who| kernel[format!("pgdemote_{who}")].as_u64().unwrap()).iter().sum();
    let own = own + number("by_itself");
    let gone = number("kept_before").saturating_sub(number("kept_after"));
    println!("gone from the cpuset: {gone} MiB; demoted by the kernel itself: {own} pages");
    assert!(gone * MIB <= own * PAGE + MIB);
    let by_generations = way == "generations";
    assert_eq!(last["demoter"]["kept_by_cpuset"].as_u64().unwrap() > 0, by_generations, "it was passed over");
    assert_eq!(last["demoter"]["agings"].as_u64().unwrap() > 0, by_generations);
    // Programs hardly ever had to demote for themselves.
    assert!(kernel["pgdemote_direct"].as_u64().unwrap() * 100 <= commanded, "{kernel}");
    assert_eq!(number("killed"), 1);
}

#[test]
fn cold_memory_makes_room_on_6_12() {
    cold_memory_makes_room(Line::Stable, "generations");
}

#[test]
fn cold_memory_makes_room_on_6_1() {
    where_time_is_no_matter(|| cold_memory_makes_room(Line::Debian12, "generations"));
}

#[test]
fn cold_memory_makes_room_on_6_18() {
    where_time_is_no_matter(|| cold_memory_makes_room(Line::Longterm, "generations"));
}

#[test]
fn cold_memory_makes_room_on_the_newest() {
    where_time_is_no_matter(|| cold_memory_makes_room(Line::Newest, "generations"));
}

/// 6.12 cannot be asked so.
#[test]
fn cold_memory_makes_room_by_the_node_on_the_newest() {
    cold_memory_makes_room(Line::Newest, "node");
}
