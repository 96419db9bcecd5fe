//! `lab compare` as its users run it: programs under every manager.

use serde_json::Value;

use super::{lab, unavailable};

/// Those that need no settings.
const MANAGERS: [&str; 4] = ["none", "numab2", "damon", "thermocline"];
/// Part of the oracle's share of misses that the default configuration has DRAM serve.
const OF_ORACLE_MIN: f64 = 0.85;

/// A program under every manager, a summary for each in their order; `more` are options of `lab
/// compare`.
fn compared(program: &str, more: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("summaries.json");
    let managers = MANAGERS.join(",");
    let words = ["compare", program, "--managers", &managers, "--json", file.to_str().unwrap()];
    let (status, text) = lab(&[&words[..], more].concat());
    assert_eq!(status, 0);
    assert!(text.contains("guest seconds for each modelled one"));
    let summaries: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let names: Vec<&str> = summaries.iter().map(|summary| summary["manager"].as_str().unwrap()).collect();
    assert_eq!(names, MANAGERS);
    summaries
}

/// What must hold of every run, whoever manages.
fn judge(row: &Value) {
    let of = |name: &str| row[name].as_f64().unwrap();
    assert!(0.0 < of("dram_share") && of("dram_share") <= of("best_share") + 1e-9, "{row}");
    assert!(of("best_share") <= 1.0 && (0.0..=1.0 + 1e-9).contains(&of("oracle_share")), "{row}");
    // All on CXL costs 350 ns instead of 100 ns a miss, and the instructions cost something too.
    assert!((1.0..3.5).contains(&of("slowdown")) && of("best_slowdown") <= of("slowdown"), "{row}");
    // Two processors that wait for each miss hardly queue for 30 GB/s.
    assert!(of("queueing_share") < 0.02 && of("modelled_s") > 0.0, "{row}");
    assert!(of("instructions") > of("misses") && of("pattern_error") <= 0.01, "{row}");
    let share = of("capacity_pages") / of("footprint_pages");
    assert!((0.25..0.45).contains(&share), "DRAM for {share} of the program instead of a third");
}

#[test]
fn redis_is_served_by_dram_where_somebody_manages_and_who_moved_what_is_told() {
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    let summaries = compared(
        "redis",
        &["--repeats", "1", "--keys", "150000", "--warmup-ops", "300000", "--ops", "60000"],
    );
    let rows: Vec<&Value> = summaries.iter().map(|summary| &summary["runs"][0]).collect();
    rows.iter().for_each(|row| judge(row));
    let [none, numab2, damon, ours] = rows[..] else { panic!("a run of each: {rows:?}") };
    let of = |row: &Value, name: &str| row[name].as_f64().unwrap();
    let by = |row: &Value, whom: &str| {
        let of = |moved: &str| row[moved][whom].as_u64().unwrap();
        (of("promoted_by"), of("demoted_by"))
    };

    assert_eq!((of(none, "promoted"), of(none, "demoted"), of(none, "daemon_cpu")), (0.0, 0.0, 0.0));
    // How far managers get in the time that this machine takes to warm up is another matter.
    for row in [numab2, ours] {
        assert!(of(row, "dram_share") > of(none, "dram_share") + 0.1, "promotion is not seen: {row}");
        assert!(of(row, "slowdown") < of(none, "slowdown"), "fewer misses to CXL must cost less: {row}");
    }
    let (up, down) = by(numab2, "kernel");
    assert!(up > 500 && down > 500 && by(numab2, "thermocline") == (0, 0), "{numab2}");
    let (up, down) = by(ours, "thermocline");
    // The kernel promotes so little that it can only be for tasks to recompute their scan
    // periods.
    assert!(up > 500 && down > 500 && by(ours, "kernel").0 * 4 < up, "{ours}");
    assert!(of(ours, "daemon_cpu") > 0.0 && of(ours, "bpf_cpu") > 0.0, "{ours}");
    // With HMSDK's times DAMON may not get to move anything in so short a run.
    assert!(of(damon, "daemon_cpu") > 0.0 && by(damon, "thermocline") == (0, 0), "{damon}");
}

/// The published comparison: every program, three runs under every manager.
#[test]
fn every_program_under_every_manager() {
    if std::env::var_os("THERMOCLINE_SOAK").is_none() {
        return println!("skipped: THERMOCLINE_SOAK is not set");
    }
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    for program in ["redis", "memcached", "postgresql", "mariadb"] {
        let summaries = compared(program, &["--repeats", "3"]);
        summaries.iter().flat_map(|summary| summary["runs"].as_array().unwrap()).for_each(judge);
        let ours = &summaries[3];
        assert!(ours["oracle_share"].as_f64().unwrap() >= OF_ORACLE_MIN, "{program}: {ours}");
        // Nobody is certain to be better.
        let behind = &ours["behind"];
        if let (Some(by), Some(within)) = (behind["by"].as_f64(), behind["within"].as_f64()) {
            assert!(by <= within, "{program}: behind {}", behind);
        }
    }
}
