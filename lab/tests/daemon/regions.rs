//! DAMON's regions as the only evidence, by frames and by processes' addresses: hot pages come up
//! by them, with no other user of DAMON, and everything is put back.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use thermocline_lab::{Line, ThpMode};

use super::{Run, number, soak, where_time_is_no_matter, with_damon_settings};

/// hotcold, of which a fifth is hot. It fits into DRAM: which pages come up is for the regions to
/// say.
const FOOTPRINT_MIB: u64 = 96;
/// Hot pages in DRAM at the end, and how far they must be ahead of the cold ones: a region is hot
/// as a whole until DAMON has split it.
const HOT_MIN: f64 = 0.7;
const AHEAD_MIN: f64 = 0.3;

fn hot_pages_come_by_regions(line: Line) {
    let run = Run::new(line, [640, 128, 512], ThpMode::Never, 300)
        .env("MIB", FOOTPRINT_MIB)
        .env("SECONDS_AFTER", if soak() { 60 } else { 5 });
    let Some(outcome) = run.run(&with_damon_settings(include_str!("regions.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let (judged, last) = (run.verdict("judged"), run.json("last"));
    println!("DAMON {}\nreverse map {}\ncounters {}", last["regions"], last["reverse"], last["counters"]);
    println!(
        "hot pages in DRAM {:.1} %, cold {:.1} %",
        judged.hot_in_dram * 100.0,
        judged.cold_in_dram * 100.0
    );
    assert_eq!((number("refused"), number("daemon_status"), number("killed")), (1, 0, 1));
    let doctor = run.json("doctor");
    let damon = doctor["sources"].as_array().unwrap().iter().find(|s| s["name"] == "damon").unwrap();
    assert_eq!(damon["status"], "usable", "{damon}");

    // Nothing but regions led to it.
    let count = |path: &str| {
        last.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {last}"))
    };
    let evidence = |source: &str| count(&format!("/counters/evidence/{source}"));
    assert_eq!((number("hint_faults"), evidence("hint-fault"), evidence("hw-sample")), (0, 0, 0));
    assert_eq!(evidence("damon"), count("/regions/regions"));
    assert_eq!(count("/counters/region_pages"), count("/regions/pages"));
    assert_eq!((count("/regions/malformed"), count("/regions/lost")), (0, 0));
    assert_eq!((count("/regions/started"), count("/regions/running")), (3, 3));

    assert!(judged.hot_in_dram >= HOT_MIN, "hot pages stay on the slow node");
    assert!(judged.hot_in_dram >= judged.cold_in_dram + AHEAD_MIN, "hot pages are not told from cold ones");
    let promoted = judged.moved.unwrap().promoted.pages;
    assert!(promoted <= count("/counters/pgpromote_success"), "pages came up that nobody moved");
    let status = run.text("status-text");
    assert!(status.contains("DAMON: 3 of 3 kdamonds run"), "{status}");
    let explained = run.text("explained");
    assert!(explained.contains("sources damon"), "{explained}");
}

#[test]
fn hot_pages_come_by_regions_on_6_12() {
    where_time_is_no_matter(|| hot_pages_come_by_regions(Line::Stable));
}

#[test]
fn hot_pages_come_by_regions_on_the_newest() {
    hot_pages_come_by_regions(Line::Newest);
}

/// What is preloaded into a program so that large holes lie between its mappings.
fn far() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/far.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("far.so");
    let flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-o"];
    let output = Command::new("cc").args(flags).arg(&library).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// By addresses: of a process that was there, with a brk heap between large holes, and of one that
/// starts when the other has ended, in huge pages.
fn hot_pages_come_by_addresses(line: Line) {
    let run = Run::new(line, [640, 128, 512], ThpMode::Always, 300)
        .env("MIB", FOOTPRINT_MIB)
        .env("FLAGS", "--grain-kib 2048")
        .env("FAR", far().display())
        .env("SECONDS_MOST", 60)
        .env("SECONDS_AFTER", if soak() { 20 } else { 3 });
    let Some(outcome) = run.run(&with_damon_settings(include_str!("addresses.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let last = run.json("last");
    println!("DAMON {}\ncounters {}", last["regions"], last["counters"]);
    assert_eq!((number("refused"), number("daemon_status"), number("killed")), (1, 0, 1));
    let doctor = run.json("doctor");
    let damon = doctor["sources"].as_array().unwrap().iter().find(|s| s["name"] == "damon").unwrap();
    assert_eq!(damon["status"], "usable", "{damon}");
    assert!(damon["detail"].as_str().unwrap().contains("the 2 largest processes"), "{damon}");

    // Nothing but regions led to it, and no frame's process had to be looked up.
    let count = |path: &str| {
        last.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {last}"))
    };
    assert_eq!((number("hint_faults"), count("/counters/evidence/hint-fault")), (0, 0));
    assert_eq!(count("/counters/evidence/damon"), count("/regions/regions"));
    assert_eq!(count("/counters/region_pages"), count("/regions/pages"));
    assert_eq!((count("/regions/malformed"), count("/regions/lost")), (0, 0));
    assert!(last["reverse"].is_null());
    assert!(count("/regions/processes/begun") >= 2 && count("/regions/processes/failed") == 0);

    let mut promoted = 0;
    for name in ["a", "b"] {
        let judged = run.verdict(&format!("judged-{name}"));
        let (hot, cold) = (judged.hot_in_dram, judged.cold_in_dram);
        println!("{name}: hot pages in DRAM {:.1} %, cold {:.1} %", hot * 100.0, cold * 100.0);
        assert!(hot >= HOT_MIN, "hot pages of {name} stay on the slow node");
        assert!(hot >= cold + AHEAD_MIN, "hot pages of {name} are not told from cold ones");
        promoted += judged.moved.unwrap().promoted.pages;
    }
    assert!(promoted <= count("/counters/pgpromote_success"), "pages came up that nobody moved");
    let status = run.text("status-text");
    assert!(status.contains("DAMON: ") && status.contains(" watched, "), "{status}");
    // What is mapped is watched, and little that holds no memory.
    assert!(status.contains(" % of the addresses that are looked at hold memory"), "{status}");
    let each = last.pointer("/regions/processes/each").and_then(Value::as_array).unwrap();
    let [process] = &each[..] else { panic!("{each:?}") };
    let bytes = |key: &str| process[key].as_u64().unwrap();
    assert!(bytes("mapped_bytes") >= FOOTPRINT_MIB << 20, "{process}");
    assert!(bytes("resident_bytes") * 10 >= bytes("watched_bytes") * 8, "{process}");
    for (name, size) in [("a", "pages 1,"), ("b", "pages 512,")] {
        let explained = run.text(&format!("explained-{name}"));
        assert!(explained.contains("sources damon") && explained.contains(size), "{explained}");
    }
}

#[test]
fn hot_pages_come_by_addresses_on_6_12() {
    hot_pages_come_by_addresses(Line::Stable);
}

#[test]
fn hot_pages_come_by_addresses_on_the_newest() {
    where_time_is_no_matter(|| hot_pages_come_by_addresses(Line::Newest));
}
