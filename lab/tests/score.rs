//! `lab score` and `lab compare` as their users run them: what must differ between managers
//! differs, and every figure is one that can be.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

#[path = "score/managers.rs"]
mod managers;
#[path = "score/remote.rs"]
mod remote;
#[path = "score/share.rs"]
mod share;
mod soak;
#[path = "score/spill.rs"]
mod spill;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use soak::where_time_is_no_matter;
use thermocline_lab::{Cache, Kernel, Line};

/// Memory of hotcold, and how many accesses it makes a second at most: promotion needs some
/// seconds, however quick this machine is.
const MIB: u64 = 136;
const RATE: u64 = 4_000_000;

/// Why no guest can run here.
fn unavailable() -> Option<String> {
    if std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_some() {
        return None;
    }
    let kernel = Kernel::cached(&Cache::of_user(), Line::Stable).unwrap();
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    match (kernel, qemu) {
        (None, _) => Some("no kernel is in the cache: run `lab fetch`".to_owned()),
        (_, Err(error)) => Some(format!("qemu-system-x86_64: {error}")),
        _ => None,
    }
}

fn lab(arguments: &[&str]) -> (i32, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_lab"));
    let thermocline = program.ancestors().nth(2).unwrap().join("release/thermocline");
    assert!(thermocline.exists(), "{} is absent: build it with make test", thermocline.display());
    let output = Command::new(program)
        .args(arguments)
        .arg("--thermocline")
        .arg(thermocline)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    (output.status.code().unwrap(), text.into_owned())
}

/// The daemon is given what the plugin keeps because its configuration names it, and promotes by
/// nothing else.
fn promotes_by_what_the_plugin_keeps(source: &str, settings: &str) {
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    let manager = format!("thermocline+source.hintfault.enabled=false+kernel.numa_balancing=0+{settings}");
    let [mib, rate] = [MIB, RATE].map(|number| number.to_string());
    let words =
        ["score", "hotcold", "--manager", &manager, "--start", "slow", "--mib", &mib, "--rate", &rate];
    let (status, text) =
        lab(&[&words[..], &["--warmup-ops", "40000000", "--ops", "5000000", "--timeout", "400", "--json"]]
            .concat());
    assert_eq!(status, 0);
    let row = text.lines().find(|line| line.starts_with('{')).unwrap();
    let row: Value = serde_json::from_str(row).unwrap();
    assert_eq!((&row["source"], &row["counters"]["numa_hint_faults"]), (&source.into(), &0.into()), "{row}");
    assert!(row["promoted_by"]["thermocline"].as_u64().unwrap() > 500, "{row}");
    // All of it was on CXL at first.
    assert!(row["dram_share"].as_f64().unwrap() > 0.1, "{row}");
}

#[test]
fn a_manager_that_reads_samples_gets_them() {
    where_time_is_no_matter(|| {
        let sampler = "source.hwsample.enabled=true+source.hwsample.sampler=\"lab-rings\"";
        promotes_by_what_the_plugin_keeps("hwsample", sampler);
    });
}

#[test]
fn a_manager_that_reads_a_hot_list_gets_it() {
    where_time_is_no_matter(|| {
        promotes_by_what_the_plugin_keeps("chmu", "source.chmu.enabled=true+source.chmu.threshold=64");
    });
}

/// memcached's values stay where the kernel first put them. The modelled CXL has less bandwidth
/// than memcached asks for.
#[test]
fn a_server_of_keys_is_filled_read_and_scored() {
    const KEYS: u64 = 120_000;
    const CXL_GBPS: f64 = 0.05;
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    let keys = KEYS.to_string();
    let bandwidth = format!("200,{CXL_GBPS}");
    let words = [
        "score",
        "memcached",
        "--manager",
        "none",
        "--keys",
        &keys,
        "--zipf",
        "0",
        "--bandwidth",
        &bandwidth,
    ];
    let (status, text) = lab(&[&words[..], &["--warmup-ops", "1000", "--ops", "100000", "--json"]].concat());
    assert_eq!(status, 0);
    let row = text.lines().find(|line| line.starts_with('{')).unwrap();
    let row: Value = serde_json::from_str(row).unwrap();
    let of = |name: &str| row[name].as_f64().unwrap();
    // A key of memcached 1.6 takes 1197 bytes with its value of 1 KiB.
    let expected_pages = KEYS as f64 * 1197.0 / 4096.0;
    assert!((of("footprint_pages") / expected_pages - 1.0).abs() < 0.1, "{row}");
    assert!((100_000.0..101_000.0).contains(&of("ops")) && of("misses") > 0.5 * of("ops"), "{row}");
    // In modelled time it gets no more of CXL than there is, and that is slower than any latency
    // makes it.
    let cxl_gbps = (1.0 - of("dram_share")) * of("misses") * 64.0 / of("modelled_s") / 1e9;
    assert!(cxl_gbps < CXL_GBPS && cxl_gbps > CXL_GBPS / 4.0, "{cxl_gbps} GB/s: {row}");
    assert!(of("slowdown") > 3.5 && (0.3..0.95).contains(&of("queueing_share")), "{row}");
    assert_eq!(row["model"]["nodes"][1]["bandwidth_gbps"], CXL_GBPS, "{row}");
    let share = of("capacity_pages") / of("footprint_pages");
    // All values are read alike, so that their part of DRAM is their part of the misses in it. The
    // index and buffers are read with each of them and lie on either tier; they are the lesser part
    // of all misses.
    assert!((0.25..0.5).contains(&share), "{row}");
    assert!(of("dram_share") > 0.5 * share && of("dram_share") < of("best_share"), "{row}");
    assert!(of("best_share") > 1.2 * share && of("best_share") < 0.95, "{row}");
    assert_eq!((of("promoted"), of("demoted")), (0.0, 0.0), "{row}");
}

/// A database is prepared, read into memory and scored: its data is all there, each page counted
/// once, whoever of its processes reads it.
fn a_database_is_scored(workload: &str, ops: [&str; 2], mib_per_scale: f64, other_mib: f64) {
    const SCALE: f64 = 6.0;
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    let words = ["score", workload, "--manager", "none", "--scale", "6", "--warmup-ops", ops[0]];
    let (status, text) = lab(&[&words[..], &["--ops", ops[1], "--json"]].concat());
    if text.contains("cannot prepare") && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() {
        return println!("skipped: Debian's archive cannot be used");
    }
    assert_eq!(status, 0);
    let row = text.lines().find(|line| line.starts_with('{')).unwrap();
    let row: Value = serde_json::from_str(row).unwrap();
    let of = |name: &str| row[name].as_f64().unwrap();
    let data = SCALE * mib_per_scale * 256.0;
    assert!((data..1.2 * data + other_mib * 256.0).contains(&of("footprint_pages")), "{row}");
    assert!(of("ops") >= ops[1].parse().unwrap() && of("misses") > of("ops"), "{row}");
    assert!(of("best_share") >= of("dram_share") && of("dram_share") > 0.0, "{row}");
    assert!(of("dram_pages_before") > 0.1 * of("footprint_pages"), "{row}");
    assert!(of("capacity_pages") < 0.7 * of("footprint_pages"), "{row}");
    assert_eq!((of("promoted"), of("demoted")), (0.0, 0.0), "{row}");
}

#[test]
fn postgresql_is_prepared_read_and_scored() {
    where_time_is_no_matter(|| a_database_is_scored("postgresql", ["1000", "2000"], 14.9, 20.0));
}

#[test]
fn mariadb_is_prepared_read_and_scored() {
    where_time_is_no_matter(|| a_database_is_scored("mariadb", ["50", "100"], 14.9, 150.0));
}

#[test]
fn what_cannot_run_is_refused_before_anything_boots() {
    for (words, reason) in [
        (&["score", "hotcold", "--manager", "numab3"][..], "is not none, numab2"),
        (&["score", "hotcold", "--manager", "damon:latency"], "takes no rule"),
        (&["score", "hotcold", "--manager", "damon+manager.damon.sample_ms=0"], "sample_ms"),
        (&["score", "hotcold", "--manager", "thermocline+kernel.no_such=1"], "no_such"),
        (&["score", "nothing"], "hotcold, redis, memcached"),
        (&["score", "hotcold", "--manager", "none", "--bandwidth", "30"], "one for DRAM and one for CXL"),
        (&["score", "hotcold", "--manager", "none", "--latency", "0,350"], "`0` is not a number"),
        (&["compare", "redis", "--repeats", "0"], "nothing to compare"),
        (&["compare", "redis", "--rows", "/nowhere"], "/nowhere"),
    ] {
        let (status, text) = lab(words);
        assert!(status != 0 && text.contains(reason), "{words:?}: {text}");
    }
}
