//! `numab2` against what S0 printed of mainline.

use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run};
use thermocline_sim::scenario::Setup;

/// (latency, threshold) in ms, as sampled in S0's cover letter.
const PRINTED: [(u64, u64); 7] = [
    (20_620, 1125),
    (56_185, 1125),
    (98_710, 1250),
    (148_871, 1375),
    (182_891, 1625),
    (369_415, 1875),
    (630_745, 2000),
];

/// `chunks-192g` at a sixteenth of its memory and as long as S0's run: what matters here is the
/// time.
fn long_run() -> Report {
    let changes = [
        "machine.node.1.memory=\"8GiB\"",
        "machine.node.2.memory=\"8GiB\"",
        "process.0.footprint=\"12GiB\"",
        "process.0.pattern.chunk=\"64MiB\"",
        "process.0.pattern.accesses_per_page=400",
        "process.0.pattern.visits=800",
    ];
    let setup =
        Setup::preset("chunks-192g", &changes.map(str::to_owned)).expect("the preset can be made smaller");
    run(&setup, Arm { manager: ManagerName::Numab2, mode: ModeName::Event, seed: 1 }).expect("it runs")
}

#[test]
fn the_threshold_rises_by_a_step_a_minute_to_twice_the_reference_and_stays() {
    let report = long_run();
    assert!(report.time_s > Some(640.0), "{:?}", report.time_s);
    let course = &report.notes.threshold_course;
    let values: Vec<u64> = course.iter().map(|(_, threshold)| *threshold).collect();
    assert_eq!(values[..8], [1125, 1250, 1375, 1500, 1625, 1750, 1875, 2000]);
    assert!(values[8..].iter().all(|t| *t == 2000) && values.len() > 9, "{values:?}");
    for pair in course.windows(2) {
        // The first fault after a minute adjusts it, and a visit that finds nothing marked takes a
        // second.
        assert!((60_000..70_000).contains(&(pair[1].0 - pair[0].0)), "{pair:?}");
    }
    // Each pair that was printed occurs, at a time not before its latency.
    let start = course[0].0;
    for (latency, threshold) in PRINTED {
        let end = course.iter().find(|(_, t)| *t > threshold).map_or(u64::MAX, |(at, _)| at - start);
        assert!(latency <= end, "{latency} ms cannot have passed at threshold {threshold}, over at {end} ms");
    }
    // And the latencies that the model sees reach as far as those did.
    let longest = report.notes.latencies.iter().map(|(_, latency, _)| *latency).max();
    assert!(longest > Some(20_000), "{longest:?}");
    for (at, latency, threshold) in &report.notes.latencies {
        assert!(latency <= at, "marked before the start: {at} {latency} {threshold}");
    }
}
