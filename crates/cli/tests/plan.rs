//! Plans of recordings from outside: a simulated run is recorded, and planned.

#[path = "common/command.rs"]
mod command;

use std::fs;
use std::path::Path;
use std::process::Output;

use command::{errors, run};
use serde_json::Value;

/// A fifth of 16 MiB on CXL has nine tenths of the accesses; slow enough that faults cost little.
const SCENARIO: &str = "name = \"recorded\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nlimit = \"10min\"\n\
    [[process]]\nname = \"p\"\nnode = 0\nthreads = 1\nfootprint = \"16MiB\"\nplace = [{ node = 1 }]\n\
    compute_ns = 20000.0\n\
    pattern = { kind = \"hotspot\", hot_share = 0.2, access_share = 0.9, accesses = 1_000_000 }\n";
const CHANGES: [&str; 6] = [
    "--set=machine.min_free=\"256KiB\"",
    "--set=machine.node.0.memory=\"6MiB\"",
    "--set=machine.node.1.memory=\"32MiB\"",
    "--set=config.kernel.scan_period_min_ms=100",
    "--set=config.kernel.scan_delay_ms=20",
    "--set=config.kernel.scan_size_mb=8",
];

fn record(folder: &Path, more: &[&str]) -> String {
    let scenario = folder.with_extension("toml");
    fs::write(&scenario, SCENARIO).expect("it can be written");
    let (scenario, to) = (scenario.display().to_string(), format!("--record={}", folder.display()));
    let output =
        run(&[&["sim", &scenario, "--rule=adaptive", "--mode=event", &to][..], &CHANGES, more].concat());
    assert!(output.status.success(), "{}", errors(&output));
    folder.display().to_string()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", errors(output)))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_recorded_run_is_planned() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = record(&dir.path().join("it.trace"), &[]);
    let svg = dir.path().join("plan.svg");
    let svg = svg.to_str().expect("a plain path");
    let args =
        ["plan", &folder, "--memory-bound=40%", "--loss=6%", "--latency=0=100,1=250", "--json", "--svg", svg];
    let output = run(&args);
    assert!(output.status.success(), "{}", errors(&output));
    let plan = json(&output);
    assert_eq!(
        (&plan["source"], &plan["memory_bound_given"]),
        (&"hint-faults".into(), &true.into()),
        "{plan}"
    );
    assert_eq!(plan["memory"]["seen"], 16 << 20);
    // 40 % of the time, 1.5 times more: 6 % is a tenth of what is lost without DRAM.
    assert!((number(&plan["share_needed"]) - 0.9).abs() < 1e-9);
    // Nine tenths of the accesses go to a fifth of the pages.
    let smallest = &plan["smallest"];
    let (low, high) = (number(&smallest["low"]), number(&smallest["high"]));
    let truth = 0.2 * f64::from(16 << 20);
    assert!(low <= truth && truth <= high && low > 0.5 * truth, "{smallest} for {truth}");
    let points = plan["points"].as_array().expect("a list");
    assert_eq!(points.len(), 20);
    let mut before = 0.0;
    for point in points {
        let pages = number(&point["dram_pages"]);
        let share_of_pages = pages / 4096.0;
        let truth = if share_of_pages <= 0.2 {
            0.9 * share_of_pages / 0.2
        } else {
            0.9 + 0.1 * (share_of_pages - 0.2) / 0.8
        };
        let share = &point["share"];
        let (low, likely, high) = (number(&share["low"]), number(&share["likely"]), number(&share["high"]));
        assert!(low - 0.005 <= truth && truth <= high + 0.005, "{point} for {truth}");
        assert!((likely - truth).abs() < 0.04, "{point} for {truth}");
        assert!(likely >= before, "{point}");
        before = likely;
        let slowdown = number(&point["slowdown"]["likely"]);
        assert!((slowdown - (1.0 + 0.4 * (1.0 - likely) * 1.5)).abs() < 1e-9, "{point}");
    }
    let drawn = fs::read_to_string(svg).expect("it is drawn");
    assert!(drawn.starts_with("<svg ") && drawn.contains("keep the loss within 6 %"), "{drawn}");
    let text = String::from_utf8_lossy(&run(&["plan", &folder]).stdout).into_owned();
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains("(assumed)") && first.contains("keep the loss within 3 %"), "{text}");
    for said in
        ["accesses served by DRAM, %", "give --memory-bound", "give --latency", "are alike to hint-faults"]
    {
        assert!(text.contains(said), "{said} is missing in\n{text}");
    }
    // A loss that does not need any DRAM.
    let output = run(&["plan", &folder, "--loss=90%"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("no DRAM is needed"));
    let sizes = json(&run(&["plan", &folder, "--sizes=4MiB,50%,1MiB", "--json"]));
    let pages: Vec<f64> =
        sizes["points"].as_array().expect("a list").iter().map(|p| number(&p["dram_pages"])).collect();
    assert_eq!(pages, [256.0, 1024.0, 2048.0]);
}

#[test]
fn regions_say_what_they_hide() {
    let dir = tempfile::tempdir().expect("a folder");
    let more = ["--set=config.source.damon.enabled=true", "--set=config.source.hintfault.enabled=false"];
    let folder = record(&dir.path().join("it.trace"), &more);
    let plan = json(&run(&["plan", &folder, "--json"]));
    assert_eq!((&plan["source"], &plan["reach_per_s"]), (&"regions".into(), &600.0.into()), "{plan}");
    assert!(plan["open"]["kind"] == "regions" || plan["open"]["kind"] == "reach", "{plan}");
    let point = &plan["points"][3];
    assert!(point["share"]["high"].is_null() && number(&point["share"]["low"]) > 0.0, "{point}");
    let text = String::from_utf8_lossy(&run(&["plan", &folder]).stdout).into_owned();
    assert!(text.contains("More may be served than the table says") && text.contains("or more"), "{text}");
}

#[test]
fn what_cannot_be_planned_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let refused = |args: &[&str], said: &[&str]| {
        let output = run(args);
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(said.iter().all(|said| text.contains(said)), "{args:?}: {text}");
    };
    let empty = dir.path().to_str().expect("a plain path").to_owned();
    refused(&["plan", &empty], &["there is no recording in it"]);
    let nowhere = format!("{empty}/nowhere");
    refused(&["plan", &nowhere], &["cannot be read"]);
    refused(&["compare", &nowhere], &["nowhere", "cannot be read"]);
    let more = ["--set=config.source.hintfault.enabled=false", "--set=config.source.chmu.enabled=true"];
    let silent = record(&dir.path().join("silent.trace"), &more);
    let said = ["heat cannot be estimated", "it has no evidence of accesses", "which name hot pages only"];
    refused(&["plan", &silent], &said);
    refused(&["sim", &silent], &["heat cannot be estimated"]);
    let folder = record(&dir.path().join("it.trace"), &[]);
    refused(&["plan", &folder, "--sizes=0%"], &["no DRAM is no plan"]);
    refused(&["plan", &folder, "--sizes=1GiB"], &["more than the 16.0 MiB", "give less"]);
    refused(&["plan", &folder, "--source=samples"], &["no evidence of samples", "it has hint faults"]);
    refused(&["plan", &folder, "--loss=x"], &["no share"]);
    refused(&["plan", &folder, "--latency=100,250"], &["two latencies"]);
    refused(&["plan", &folder, "--svg=plan.png"], &["the picture is SVG"]);
}
