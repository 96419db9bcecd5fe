//! What may happen to a daemon at work: nothing of it costs a page, a program or a setting, and
//! what was not seen is counted.

use serde_json::Value;
use thermocline_lab::{Line, ThpMode};

use super::{Run, number, where_time_is_no_matter, with_settings};

/// How long it stands still, s, and how long it is starved.
const STOPPED_S: u64 = 30;
const STARVED_S: u64 = 8;

/// Every candidate and every move has ended in one way, by the daemon's last word.
fn all_is_accounted_for(last: &Value) {
    let counters = &last["counters"];
    let count = |name: &str| counters[name].as_u64().unwrap();
    let sum = |name: &str| -> u64 {
        counters[name].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum()
    };
    let gauges = last["gauges"].as_array().unwrap();
    let waiting: u64 =
        gauges.iter().filter(|g| g["name"] == "queue_length").map(|g| g["value"].as_u64().unwrap()).sum();
    let one_by_one = ["dropped", "merged", "queue_evicted", "exited", "issued"].map(count);
    let went = one_by_one.iter().sum::<u64>() + sum("refused") + sum("expired") + waiting;
    assert_eq!(count("proposed") + count("returned"), went, "{counters}");
    assert_eq!(count("issued"), count("moved") + sum("failed") + count("lost"), "{counters}");
}

fn trouble_loses_nothing(line: Line) {
    let run = Run::new(line, [640, 128, 512], ThpMode::Never, 500)
        .env("STOPPED_S", STOPPED_S)
        .env("STARVED_S", STARVED_S);
    let Some(outcome) = run.run(&with_settings(include_str!("trouble.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let last = run.json("last");
    println!("{}\n{}{}", last["counters"], run.text("unplugging"), run.text("daemon-errors"));
    assert_eq!(number("daemon_status"), 0);
    // Half a minute of hint faults does not fit into 64 KiB.
    assert!(number("dropped") > 0, "what it could not see is not counted");
    assert!(number("throttled") > 0, "it was not starved");
    // Blocks that hold what the kernel cannot move stay.
    assert!(number("gone") > 0, "all memory stayed: {}", run.text("unplugging"));
    all_is_accounted_for(&last);
}

#[test]
fn trouble_loses_nothing_on_6_12() {
    trouble_loses_nothing(Line::Stable);
}

#[test]
fn trouble_loses_nothing_on_the_newest() {
    where_time_is_no_matter(|| trouble_loses_nothing(Line::Newest));
}
