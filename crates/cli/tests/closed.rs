//! The closed loop: a simulated run is recorded, and the recording is a workload on which managers
//! come out as on the original.
//!
//! Tolerances, stated before anything was measured: the share of accesses that DRAM serves is
//! within 2 points under the best static placement, and within 5 points under each manager. They
//! hold where hint faults take little of the program's time, and no page is beyond their reach: the
//! programs here visit 50,000 pages a second. With 2 million, the faults slow the program down
//! while they come, and hot pages seem colder: see `the_band_contains_what_faults_hide`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const BEST_POINTS: f64 = 2.0;
const MANAGER_POINTS: f64 = 5.0;
const MANAGERS: [&str; 3] = ["none", "numab2", "thermocline:adaptive"];
/// What both the original and the recording are simulated with: 32 MiB of memory and 12 of DRAM,
/// scanned faster than by default, in proportion to its size.
const CHANGES: [&str; 8] = [
    "--set=machine.min_free=\"256KiB\"",
    "--set=machine.node.0.memory=\"12MiB\"",
    "--set=machine.node.1.memory=\"64MiB\"",
    "--set=kernel.scan_delay_ms=20",
    "--set=kernel.scan_size_mb=8",
    "--set=kernel.scan_period_min_ms=100",
    "--set=kernel.scan_period_max_ms=1000",
    "--set=config.kernel.scan_period_min_ms=100",
];

fn scenario(pattern: &str, compute_ns: f64) -> String {
    format!(
        "name = \"original\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nlimit = \"10min\"\n\
         [[process]]\nname = \"p\"\nnode = 0\nthreads = 1\nfootprint = \"32MiB\"\n\
         place = [{{ node = 1 }}]\ncompute_ns = {compute_ns:?}\npattern = {{ {pattern} }}\n"
    )
}

const HOT: &str = "kind = \"hotspot\", hot_share = 0.2, access_share = 0.9, accesses = 2_000_000";
const ZIPF: &str = "kind = \"zipf\", accesses = 2_000_000";

fn run(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_thermocline")).args(args).output().expect("it starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Records a simulated run of the pattern under a rule of ours.
fn record(dir: &Path, pattern: &str, compute_ns: f64) -> (String, String) {
    let (original, recording) = (dir.join("original.toml"), dir.join("it.trace"));
    fs::write(&original, scenario(pattern, compute_ns)).expect("it can be written");
    let (original, recording) = (original.display().to_string(), recording.display().to_string());
    let to = format!("--record={recording}");
    // Our configuration decides how the kernel scans here.
    let changes: Vec<&str> = CHANGES.iter().copied().filter(|change| !change.contains("=kernel.")).collect();
    let ours = ["--set=config.kernel.scan_delay_ms=20", "--set=config.kernel.scan_size_mb=8"];
    run(&[&["sim", &original, "--rule=adaptive", "--mode=event", &to][..], &changes, &ours].concat());
    (original, recording)
}

/// For each manager, the share of the accesses that DRAM served; then that of the best static
/// placement; in percent.
fn shares(scenario: &str) -> Vec<(String, f64)> {
    let managers = format!("--manager={}", MANAGERS.join(","));
    let output = run(&[&["compare", scenario, &managers, "--seeds=2", "--json"][..], &CHANGES].concat());
    let lines: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let lines = lines.as_array().expect("a list");
    let figure = |line: &Value, name: &str| {
        line["figures"][name]["mean"].as_f64().unwrap_or_else(|| panic!("{name} in {line}")) * 100.0
    };
    let managers = lines
        .iter()
        .map(|line| (line["manager"].as_str().expect("a name").to_owned(), figure(line, "top_share")));
    managers.chain([("best".to_owned(), figure(&lines[0], "static_top_share"))]).collect()
}

fn comes_out_alike(pattern: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let (original, recording) = record(dir.path(), pattern, 20_000.0);
    let (original, recorded) = (shares(&original), shares(&recording));
    assert_eq!(original.len(), MANAGERS.len() + 1);
    for ((name, original), (other, recorded)) in original.iter().zip(&recorded) {
        assert_eq!(name, other);
        let points = if name == "best" { BEST_POINTS } else { MANAGER_POINTS };
        assert!((original - recorded).abs() <= points, "{name}: {recorded} for {original}");
    }
}

#[test]
fn hot_and_cold_pages_come_out_alike() {
    comes_out_alike(HOT);
}

#[test]
fn pages_of_zipf_popularity_come_out_alike() {
    comes_out_alike(ZIPF);
}

#[test]
fn the_band_contains_what_faults_hide() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_, recording) = record(dir.path(), &HOT.replace("2_000_000", "40_000_000"), 200.0);
    // A fifth of the pages has nine tenths of the accesses.
    let output = run(&["plan", &recording, "--sizes=20%", "--json"]);
    let plan: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let share = &plan["points"][0]["share"];
    let end = |name: &str| share[name].as_f64().unwrap_or_else(|| panic!("{name} in {plan}"));
    assert!(end("low") <= 0.9 && 0.9 <= end("high") && end("likely") < 0.89, "{share}");
    let text = String::from_utf8_lossy(&run(&["plan", &recording]).stdout).into_owned();
    assert!(text.contains("hint faults slowed the program down while they came"), "{text}");
}

#[test]
fn a_scenario_may_name_a_recording() {
    let dir = tempfile::tempdir().expect("a folder");
    record(dir.path(), HOT, 20_000.0);
    let with = |footprint: &str| {
        let pattern = "pattern = { kind = \"recorded\", trace = \"it.trace\" }";
        let text = scenario("", 20_000.0).replace("pattern = {  }", pattern).replace("32MiB", footprint);
        let path = dir.path().join("beside.toml");
        fs::write(&path, text).expect("it can be written");
        let args = ["sim", path.to_str().expect("a plain path"), "--manager=none", "--json"];
        Command::new(env!("CARGO_BIN_EXE_thermocline")).args(args).output().expect("it starts")
    };
    let reports: Value = serde_json::from_slice(&with("32MiB").stdout).expect("it is JSON");
    assert_eq!(reports[0]["top_share"], 0.0, "{reports}");
    let refused = with("16MiB");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.contains("give footprint = \"33554432B\""), "{error}");
}
