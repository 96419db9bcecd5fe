//! `thermocline compare` and `thermocline reproduce` from outside.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn thermocline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(args: &[&str]) -> Output {
    thermocline(args).output().expect("it starts")
}

fn printed(args: &[&str]) -> String {
    let out = output(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// A scenario that is over at once, as a file.
fn quick() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("quick.toml");
    let text = "name = \"quick\"\nsummary = \"over at once\"\nmachine = \"cxl-2tier\"\n\
        [kernel]\nscan_delay_ms = 1\nscan_period_min_ms = 10\nscan_period_max_ms = 20\nscan_size_mb = 8\n\
        [[process]]\nname = \"chunks\"\nthreads = 1\nnode = 0\nfootprint = \"64MiB\"\nplace = [{ node = 1 }]\n\
        pattern = { kind = \"chunk-random\", chunk = \"4MiB\", accesses_per_page = 100.0, visits = 20 }\n";
    std::fs::write(&path, text).expect("the folder can be written");
    let path = path.to_str().expect("a plain path").to_owned();
    (folder, path)
}

#[test]
fn managers_side_by_side() {
    let (_folder, quick) = quick();
    let args = ["compare", &quick, "--manager=none,numab2,thermocline:adaptive", "--seeds=7"];
    let text = printed(&args);
    for said in
        ["quick: mean and standard deviation of 7 seeds", "slowdown", "oracle %", "DRAM %", "Holm", "+-"]
    {
        assert!(text.contains(said), "{said} is missing in\n{text}");
    }
    let json = printed(&[&args[..], &["--json"]].concat());
    let lines: Vec<Value> = serde_json::from_str(&json).expect("JSON");
    let managers: Vec<_> = lines.iter().filter_map(|l| l["manager"].as_str()).collect();
    assert_eq!(managers, ["none", "numab2", "thermocline:adaptive"]);
    for line in &lines {
        assert_eq!((line["scenario"].as_str(), line["seeds"].as_u64()), (Some("quick"), Some(7)));
        for figure in
            ["time_s", "slowdown", "oracle_share", "overhead_s", "promoted_pages", "numa_hint_faults"]
        {
            let figure = &line["figures"][figure];
            assert!(figure["mean"].is_f64() && figure["sd"].is_f64(), "{line}");
        }
        let (p, holm) = (line["p"].as_f64().expect("p"), line["p_holm"].as_f64().expect("p"));
        assert!(0.0 < p && p <= holm && holm <= 1.0, "{line}");
    }
    // All memory is on the slow node at first: whoever moves pages is faster, with every seed.
    let mean = |line: &Value| line["figures"]["time_s"]["mean"].as_f64().expect("a mean");
    assert!(mean(&lines[1]) < mean(&lines[0]), "{json}");
    assert_eq!(lines[1]["p"].as_f64(), Some(2.0 / 128.0));
    assert!(lines[1]["p_holm"].as_f64() < Some(0.05) && text.contains('*'), "{text}");
}

#[test]
fn what_runs_that_were_not_done_cannot_tell_is_no_number() {
    let (_folder, quick) = quick();
    let changed = ["--set", "limit=1ms"];
    let args = [&["compare", &quick, "--manager=none,numab2", "--seeds=2"][..], &changed].concat();
    let text = printed(&args);
    let row = text.lines().find(|line| line.starts_with("numab2")).expect("a line");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((&cells[1..4], cells.last()), (&["-"; 3][..], Some(&"-")), "{text}");
    assert!(text.contains("numab2: 2 of 2 runs were not done"), "{text}");
    let lines: Vec<Value> = serde_json::from_str(&printed(&[&args[..], &["--json"]].concat())).expect("JSON");
    for line in &lines {
        for figure in ["time_s", "slowdown", "oracle_share", "static_time_s", "all_top_time_s"] {
            assert!(line["figures"].get(figure).is_some_and(Value::is_null), "{figure}: {line}");
        }
        assert!(line["p"].is_null() && line["p_holm"].is_null(), "{line}");
    }
    let sim = [&["sim", &quick][..], &changed].concat();
    assert!(printed(&sim).contains("unknown"));
    let reports: Vec<Value> =
        serde_json::from_str(&printed(&[&sim[..], &["--json"]].concat())).expect("JSON");
    assert!(reports[0]["time_s"].is_null() && reports[0]["oracle"].is_null(), "{}", reports[0]);
}

#[test]
fn the_same_seeds_give_the_same_output_on_any_number_of_cores() {
    let (_folder, quick) = quick();
    let args = ["compare", &quick, "--manager=numab2,damon,ibs", "--seeds=3", "--json"];
    let on =
        |cores: &str| thermocline(&args).env("RAYON_NUM_THREADS", cores).output().expect("it starts").stdout;
    let one = on("1");
    assert!(!one.is_empty());
    assert_eq!(one, on("1"));
    assert_eq!(one, on("3"));
}

#[test]
fn too_few_seeds_are_said_to_be_too_few() {
    let (_folder, quick) = quick();
    let text = printed(&["compare", &quick, "--manager=none,numab2", "--seeds=2"]);
    assert!(text.contains("--seeds 6 is enough"), "{text}");
}

#[test]
fn ctrl_c_prints_what_is_done() {
    let (_folder, quick) = quick();
    // The second scenario takes minutes.
    let args = ["compare", &quick, "chunks-192g", "--manager=none,numab2", "--seeds=50"];
    for seconds in [1, 4, 16, 64] {
        let child = thermocline(&args).spawn().expect("it starts");
        std::thread::sleep(Duration::from_secs(seconds));
        kill_process(Pid::from_child(&child), Signal::INT).expect("it is running");
        let out = child.wait_with_output().expect("it ends");
        let (text, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && error.contains("stopped"), "{:?}: {error}", out.status);
        assert!(!text.contains("chunks-192g"), "{text}");
        if text.contains("quick: mean") && text.contains("numab2") {
            return;
        }
        // The machine is busy: give it more time.
        assert!(text.contains("no manager is done") || text.contains("quick: mean"), "{text}");
    }
    panic!("the quick scenario was not done in a minute");
}

#[test]
fn a_published_table_beside_ours() {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = folder.path().join("table.svg");
    let args = ["reproduce", "s4-promote", "--seeds=1", "--svg", svg.to_str().expect("a plain path")];
    let text = printed(&args);
    for said in ["published", "ours", "difference", "tolerance", "holds", "pghot precise: time, s"] {
        assert!(text.contains(said), "{said} is missing in\n{text}");
    }
    let picture = std::fs::read_to_string(&svg).expect("it is written");
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n") && picture.contains("s4-promote"));
    let json = printed(&["reproduce", "s4-promote", "--seeds=1", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&json).expect("JSON");
    assert!(rows.len() >= 20);
    for row in &rows {
        assert!(row["table"] == "s4-promote" && row["row"].is_string() && row["holds"].is_boolean(), "{row}");
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} is no number in {row}"));
        let (ours, published, difference) = (number("ours"), number("published"), number("difference"));
        assert!((ours - published - difference).abs() <= 1e-9 * ours.abs().max(1.0), "{row}");
        assert_eq!(row["holds"] == true, difference.abs() <= number("tolerance") * (1.0 + 1e-9), "{row}");
        assert_eq!((number("sd"), number("seeds")), (0.0, 1.0));
        assert!(picture.contains(row["row"].as_str().expect("a name")), "{row} is not in the picture");
    }
    assert_eq!(
        json,
        printed(&["reproduce", "s4-promote", "--seeds=1", "--json"]),
        "equal seeds, equal output"
    );
}

#[test]
fn bad_input_is_one_error_with_place_and_remedy_and_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let large = folder.path().join("large.toml");
    std::fs::write(&large, "#".repeat(100 << 20)).expect("the folder can be written");
    let large = large.to_str().expect("a plain path");
    for (args, said) in [
        (vec!["reproduce", "s9"], "there is no table \"s9\"; use one of s0, s1"),
        (vec!["reproduce", "s4-promote", "--svg", "/no/such/x.svg"], "there is no such folder; make it"),
        (vec!["reproduce", "--seeds=0"], "'0'"),
        (vec!["compare", "nothing-of-that-name"], "sim --list"),
        (vec!["compare", "hotcold", "lost.toml"], "lost.toml: cannot be read"),
        (vec!["compare", "hotcold", large], "is too long for a specification"),
        (vec!["compare", "hotcold", "--manager=none,nobody"], "use one of none, numab2"),
        (vec!["compare", "hotcold", "--set=process.1.threads=0"], "process[1].threads: is zero"),
        (vec!["compare", "hotcold", "--set=process.1.footprint=-1GiB"], "is negative"),
        (vec!["compare", "hotcold", "--set=process.1.footprint=1TiB"], "the machine has"),
        (vec!["compare", "hotcold", "--set=process.1.foot=1TiB"], "unknown field `foot`"),
        (vec!["compare"], "SCENARIO"),
    ] {
        let out = output(&args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(said), "{args:?}: {text}");
        assert!(out.stdout.is_empty());
    }
}
