//! Checks the metrics, and the files that use them, with Prometheus' own tool.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use thermocline_core::admission::{Braking, Standing};
use thermocline_core::engine::ScopeLedger;
use thermocline_core::rule::Gauge;
use thermocline_core::statistics::Sample;
use thermocline_core::topology::{NodeState, Watermarks};
use thermocline_core::units::{NodeId, ScopeId};
use thermocline_linux::demoter::DemoterStats;
use thermocline_linux::machine::Overhead;
use thermocline_linux::mover::MoverStats;
use thermocline_linux::reverse;
use thermocline_linux::source::{Counted, ROWS};
use thermocline_trace::stats::RecordingStats;

use super::{Family, Format, families, loop_late};
use crate::snapshot::{Named, Snapshot};

const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/monitoring");

/// A machine that has everything: eight nodes, every source, and more scopes than get labels.
pub fn everything() -> Snapshot {
    let mut snapshot = Snapshot::for_tests();
    let watermarks = Watermarks { high_pages: 100, ..Watermarks::default() };
    let node = |n| NodeState { node: NodeId(n), free_pages: 7, managed_pages: 1 << 20, watermarks };
    snapshot.nodes = (0..8).map(node).collect();
    snapshot.kswapd.given_up = vec![NodeId(1)];
    snapshot.trouble_reason = Some("node_full");
    snapshot.recording = Some(RecordingStats::default());
    let engine = snapshot.engine.as_mut().expect("the engine decides");
    engine.counted = ROWS
        .iter()
        .map(|row| {
            let of = |(_, list): &(_, Vec<thermocline_core::statistics::Statistic>)| {
                list.iter().map(|s| Sample { name: s.name, label: None, value: 7_000_000_000 }).collect()
            };
            (row, Counted { samples: (row.statistics)().iter().map(of).collect(), ..Counted::default() })
        })
        .collect();
    engine.reverse = Some(reverse::Stats::default());
    engine.mover = Some(MoverStats::default());
    engine.demoter = Some(DemoterStats::default());
    engine.overhead = Overhead {
        fault_ns: Some(640),
        sample_ns: Some(900),
        moved_page_ns: Some(32_400),
        ..Overhead::default()
    };
    engine.free_space_promotion = vec![NodeId(0)];
    let own = thermocline_core::engine::Engine::gauge_statistics();
    engine.gauges = own.iter().map(|s| Gauge { name: s.name, node: None, value: 1500 }).collect();
    engine.gauges.push(Gauge { name: "hot_threshold_ms", node: Some(NodeId(2)), value: 900 });
    for n in 0..100 {
        let (scope, name) = (ScopeId(n + 1), format!("/machine.slice/\"guest\"-{n}"));
        let standing = Standing {
            scope,
            floor_pages: 1,
            never_slow: false,
            cap_pages: Some(2),
            share_pages: 1,
            claimed_pages: 0,
            top_tier_pages: Some(1),
            age_ms: Some(5),
            up_pages: 0,
            down_pages: 0,
            room_pages: Some(1),
            spare_pages: Some(0),
        };
        let braking = Braking {
            scope,
            rate_bp: 2500,
            by: None,
            for_ms: None,
            some_bp: None,
            some_baseline_bp: None,
            full_bp: None,
            full_baseline_bp: None,
            again_bp: None,
        };
        let ledger = ScopeLedger { scope, promoted: 7, ..ScopeLedger::default() };
        engine.ledgers.push(Named { name: name.clone(), standing: ledger });
        engine.scopes.push(Named { name: name.clone(), standing });
        engine.brakes.push(Named { name, standing: braking });
    }
    snapshot
}

fn all() -> Vec<Family> {
    let mut all = families(&everything());
    all.push(loop_late(None));
    all
}

fn value(families: &[Family], name: &str, labels: &[(&str, &str)]) -> f64 {
    let family = families.iter().find(|family| family.name == name);
    let family = family.unwrap_or_else(|| panic!("no metric {name}"));
    let of = |(found, _): &&(Vec<(&str, String)>, f64)| {
        labels.iter().all(|(key, value)| found.iter().any(|(k, v)| k == key && v == value))
    };
    family.values.iter().find(of).unwrap_or_else(|| panic!("{name} {labels:?}")).1
}

/// Runs Prometheus' own tool.
fn promtool(arguments: &[&str], input: &str) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let tools = std::env::var_os("THERMOCLINE_TOOLS").map_or(cache.join("thermocline/tools"), PathBuf::from);
    let mut child = Command::new(tools.join("bin/promtool"))
        .args(arguments)
        .current_dir(MONITORING)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("promtool: {error}; run scripts/need promtool"));
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {told}");
    told.into_owned()
}

#[test]
fn prometheus_takes_what_is_scraped_and_finds_no_fault_in_its_names() {
    let text = Format::Prometheus.text(&all());
    assert_eq!(promtool(&["check", "metrics"], &text), "");
}

#[test]
fn prometheus_takes_the_rules_and_they_fire_when_they_should() {
    promtool(&["check", "rules", "thermocline.rules.yml"], "");
    promtool(&["test", "rules", "thermocline.rules.test.yml"], "");
}

/// All expressions of the dashboard.
fn expressions(panels: &serde_json::Value) -> Vec<String> {
    let targets = panels.as_array().into_iter().flatten().flat_map(|panel| panel["targets"].as_array());
    targets.flatten().map(|target| target["expr"].as_str().expect("a target asks").to_owned()).collect()
}

#[test]
fn prometheus_takes_what_the_dashboard_asks() {
    let text = std::fs::read_to_string(format!("{MONITORING}/thermocline.dashboard.json"));
    let dashboard: serde_json::Value = serde_json::from_str(&text.expect("it is there")).expect("JSON");
    let expressions = expressions(&dashboard["panels"]);
    assert!(expressions.len() > 30, "{expressions:?}");
    // Grafana puts in the interval before it asks.
    let rule = |(n, expr): (usize, &String)| {
        let expr = expr.replace("$__rate_interval", "1m");
        serde_json::json!({ "record": format!("x:{n}"), "expr": expr })
    };
    let rules: Vec<serde_json::Value> = expressions.iter().enumerate().map(rule).collect();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(file.path(), rules.to_string()).expect("it is written");
    promtool(&["check", "rules", file.path().to_str().expect("a path")], "");
}

#[test]
fn panels_have_their_own_places_numbers_and_questions() {
    let text = std::fs::read_to_string(format!("{MONITORING}/thermocline.dashboard.json"));
    let dashboard: serde_json::Value = serde_json::from_str(&text.expect("it is there")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut squares) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{title} has the number of another one");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{title} is beyond the 24 columns");
        for square in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(squares.insert(square), "{title} lies on another panel");
        }
        let targets = panel["targets"].as_array().expect("targets");
        let names: BTreeSet<&str> = targets.iter().filter_map(|target| target["refId"].as_str()).collect();
        assert!(!targets.is_empty() && names.len() == targets.len(), "{title}: {names:?}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
    }
}

#[test]
fn rules_and_dashboard_ask_for_metrics_that_there_are() {
    let families = all();
    for file in ["thermocline.rules.yml", "thermocline.dashboard.json"] {
        let text = std::fs::read_to_string(format!("{MONITORING}/{file}")).expect("it is there");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<&str> = words.filter(|word| word.starts_with("thermocline_")).collect();
        assert!(names.len() >= 9, "{file} asks for {names:?}");
        for name in names {
            assert!(families.iter().any(|family| family.name == name), "{file} asks for {name}");
        }
    }
}

#[test]
fn values_are_in_base_units_and_scopes_beyond_what_has_labels_are_added_up() {
    let families = all();
    let memory = value(&families, "thermocline_node_memory_bytes", &[("node", "7")]);
    assert!((memory - 4_294_967_296.0).abs() < 0.5);
    assert!((value(&families, "thermocline_source_bpf_run_time_seconds_total", &[]) - 7.0).abs() < 1e-9);
    assert!((value(&families, "thermocline_demotion_idle_seconds", &[]) - 1.5).abs() < 1e-9);
    assert!((value(&families, "thermocline_hot_threshold_seconds", &[("node", "2")]) - 0.9).abs() < 1e-9);
    assert!((value(&families, "thermocline_cost_seconds", &[("of", "fault")]) - 640e-9).abs() < 1e-15);
    let other = value(&families, "thermocline_scope_top_tier_bytes", &[("scope", "other")]);
    assert!((other - 36.0 * 4096.0).abs() < 0.5, "36 scopes of a page each: {other}");
    let rates = families.iter().find(|family| family.name == "thermocline_scope_rate_ratio");
    assert_eq!(rates.map(|family| family.values.len()), Some(64));
    let bytes = Format::OpenMetrics.text(&families).len();
    assert!(bytes <= 256 << 10, "{bytes} bytes");
}

#[test]
fn the_book_has_every_metric() {
    const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/metrics.md");
    let mut table = "| metric | kind | meaning |\n|---|---|---|\n".to_owned();
    for family in all() {
        let labels: Vec<&str> = family.values.iter().take(1).flat_map(|(l, _)| l).map(|l| l.0).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(", ")) };
        table += &format!("| `{}{labels}` | {} | {} |\n", family.name, family.kind.word(), family.help);
    }
    let chapter = std::fs::read_to_string(CHAPTER).expect("the chapter is there");
    let (before, rest) = chapter.split_once("<!-- metrics -->\n").expect("the chapter has the marker");
    let (_, after) = rest.split_once("<!-- end -->").expect("the marker has an end");
    let fresh = format!("{before}<!-- metrics -->\n{table}<!-- end -->{after}");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(CHAPTER, &fresh).expect("the chapter can be written");
    }
    let bless = "BLESS=1 cargo test --release -p thermocline --bin thermocline metrics";
    assert!(fresh == chapter, "docs/src/metrics.md is stale; refresh it with: {bless}");
}
