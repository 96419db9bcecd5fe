//! `lab spill` as its users run it: which managers, finding cold ballast in DRAM and Redis on CXL,
//! distinguish the two.

use serde_json::Value;

use super::{lab, unavailable, where_time_is_no_matter};

/// Runs the experiment with these words; its runs.
fn spill(words: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.json");
    let (status, text) = lab(&[&["spill"], words, &["--json", file.to_str().unwrap()]].concat());
    assert_eq!(status, 0);
    assert!(text.contains("Redis on CXL at the end, MiB"), "{text}");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn of(run: &Value, name: &str) -> f64 {
    run["row"][name].as_f64().unwrap_or_else(|| panic!("{name} of {run}"))
}

/// Base pages of the ballast on CXL.
fn ballast_on_cxl(run: &Value, when: &str) -> f64 {
    run["row"]["neighbour"][when]["1"].as_f64().unwrap_or(0.0)
}

/// What must hold of every experiment, however long: `runs` are of one load and one spill,
/// dram-only, cxl-only and none first.
fn judge(runs: &[&Value]) {
    let [dram, cxl, none] = runs[..3] else { panic!("three runs without a manager: {runs:?}") };
    assert_eq!(
        (&dram["who"], &cxl["who"], &none["who"]),
        (&"dram-only".into(), &"cxl-only".into(), &"none".into())
    );
    let pages = |run: &Value| of(run, "footprint_pages");
    // The server's program and libraries are shared with whoever read them first, wherever that
    // was.
    assert!(of(dram, "dram_pages_after") > 0.9 * pages(dram), "{dram}");
    assert!(of(cxl, "dram_pages_after") < 0.1 * pages(cxl), "{cxl}");
    assert!((of(dram, "slowdown") - 1.0).abs() < 0.02, "{dram}");

    // The kernel keeps some of DRAM free and some for page tables: of so small a Redis more spills
    // than was asked for.
    let spilled = 1.0 - of(none, "dram_pages_before") / pages(none);
    let asked = none["spill"].as_f64().unwrap();
    assert!((asked - 0.1..asked + 0.25).contains(&spilled), "{spilled} of Redis spilled: {none}");
    assert_eq!((of(none, "promoted"), of(none, "demoted")), (0.0, 0.0), "{none}");
    let slowdown = |run: &Value| of(run, "slowdown");
    assert!(slowdown(dram) < slowdown(none) && slowdown(none) < slowdown(cxl), "{dram} {none} {cxl}");
    for run in &runs[3..] {
        // Nearly all that comes up is Redis': what of it is not in DRAM at the end has gone down
        // again, or others of its pages have.
        let gained = of(run, "dram_pages_after") - of(run, "dram_pages_before");
        let redis = of(run, "promoted") - gained;
        let ballast = ballast_on_cxl(run, "after") - ballast_on_cxl(run, "before");
        println!(
            "{}: Redis has {gained} pages more in DRAM; {} went down, {ballast} of ballast and {redis} of Redis",
            run["who"],
            of(run, "demoted")
        );
        if run["who"] == "thermocline" {
            // As soon as the kernel may demote it does so by itself where it is short of memory,
            // Redis as well as ballast.
            let kernel = run["row"]["demoted_by"]["kernel"].as_f64().unwrap();
            assert!(slowdown(run) < slowdown(none) && gained + kernel > 0.0, "{run}");
            assert!(run["row"]["promoted_by"]["thermocline"].as_u64().unwrap() > 500, "{run}");
            assert!(
                ballast + kernel > 500.0 && ballast + kernel > redis,
                "Redis went down instead of the ballast: {run}"
            );
        }
    }
}

/// Half of Redis spills, and latest makes what was set last, and lies on CXL, popular.
#[test]
fn cold_ballast_makes_room_for_redis() {
    where_time_is_no_matter(cold_ballast);
}

fn cold_ballast() {
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    let load = ["--loads", "latest", "--spill", "0.5", "--keys", "40000", "--ops", "30000"];
    let nobody = ["--managers", "dram-only,cxl-only,none", "--warmup-ops", "1000", "--no-felt"];
    // Demotion needs some seconds of idleness, however quick this machine is.
    let ours = ["--managers", "thermocline", "--warmup-ops", "300000"];
    let (nobody, ours) = (spill(&[&load[..], &nobody].concat()), spill(&[&load[..], &ours].concat()));
    assert!(nobody.iter().all(|run| run["row"]["felt_slowdown"].is_null()), "{nobody:?}");
    // What is felt is the host's time, and a test's host may be busy: only that it was measured is
    // certain.
    assert!(of(&ours[0], "felt_slowdown") > 0.5 && of(&ours[0], "felt_slowdown") < 5.0, "{ours:?}");
    judge(&nobody.iter().chain(&ours).collect::<Vec<_>>());
}

/// The whole table.
#[test]
fn every_manager_under_every_load() {
    if std::env::var_os("THERMOCLINE_SOAK").is_none() {
        return println!("skipped: THERMOCLINE_SOAK is not set");
    }
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    let runs = spill(&[]);
    assert!(runs.iter().all(|run| of(run, "felt_slowdown") > 0.5), "{runs:?}");
    for load in ["zipfian", "latest"] {
        for share in [0.37, 0.86] {
            let these = runs
                .iter()
                .filter(|run| run["load"] == load && [0.0, share].contains(&run["spill"].as_f64().unwrap()));
            judge(&these.collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_spills_nothing_is_refused() {
    for (words, reason) in [
        (&["spill", "--spill", "0"][..], "dram-only is the row for that"),
        (&["spill", "--spill", "1.5"], "not a share from 0 to 1"),
        (&["spill", "--managers", "cxl"], "cxl-only"),
        (&["spill", "--keys", "4000000"], "fewer --keys"),
        (&["spill", "--repeats", "0"], "needs --rows"),
    ] {
        let (status, text) = lab(words);
        assert!(status != 0 && text.contains(reason), "{words:?}: {text}");
    }
}
