//! `lab share` as its users run it: a share brings Redis what it has alone, and the hog keeps the
//! rest.

use serde_json::Value;

use super::{lab, unavailable, where_time_is_no_matter};

/// MiB of DRAM that a run may miss or have more: batches of reclaim, the daemon and page tables.
const SLACK_MIB: f64 = 24.0;

fn of(run: &Value, name: &str) -> f64 {
    run["row"][name].as_f64().unwrap_or_else(|| panic!("{name} of {run}"))
}

/// MiB of the hog in DRAM.
fn hog_mib(run: &Value, when: &str) -> f64 {
    run["row"]["neighbour"][when]["0"].as_f64().unwrap_or(0.0) / 256.0
}

#[test]
fn a_share_beside_a_hog_is_as_good_as_dram_alone() {
    where_time_is_no_matter(|| shares("6.12", "uniform"));
}

#[test]
fn so_it_is_beside_one_that_sweeps() {
    where_time_is_no_matter(|| shares("6.12", "sweep"));
}

#[test]
fn so_it_is_on_the_newest() {
    where_time_is_no_matter(|| shares("newest", "uniform"));
}

fn shares(kernel: &str, hog: &str) {
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.json");
    let words = ["share", "--kernel", kernel, "--hog", hog, "--managers", "alone,none,thermocline,shared"];
    let (status, text) = lab(&[&words[..], &["--json", file.to_str().unwrap()]].concat());
    assert_eq!(status, 0);
    println!("{text}");
    let runs: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let [alone, none, without, shared] = &runs[..] else { panic!("four runs: {runs:?}") };
    assert!(of(none, "dram_share") < 0.5 * of(alone, "dram_share"), "the hog leaves DRAM: {none}");
    assert!(of(shared, "dram_share") >= 0.95 * of(alone, "dram_share"), "{shared}");
    assert!(of(shared, "dram_share") > of(without, "dram_share"), "{without}");
    // The hog keeps what Redis has no share of.
    let gave = hog_mib(shared, "before") - hog_mib(shared, "after");
    let share = of(shared, "footprint_pages") / 256.0 * 0.5;
    assert!(gave <= share + SLACK_MIB, "{gave} MiB for a share of {share}");
    assert!(shared["row"]["hog_accesses"].as_u64().unwrap() > 0);
}
