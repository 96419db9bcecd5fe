//! `lab remote` as its users run it: memory comes home by samples alone.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use thermocline_lab::{Cache, Kernel, Line};

fn lab(arguments: &[&str]) -> (i32, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_lab"));
    let thermocline = program.ancestors().nth(2).unwrap().join("release/thermocline");
    assert!(thermocline.exists(), "{} is absent: build it with make test", thermocline.display());
    let output = Command::new(program)
        .args(["remote", "--thermocline"])
        .arg(thermocline)
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    (output.status.code().unwrap(), text.into_owned())
}

/// Memory on the DRAM node without processors is balanced to where it is accessed from, by samples: the kernel takes no hint fault.
#[test]
fn samples_balance_nodes_of_dram() {
    let required = std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_some();
    if !required && Kernel::cached(&Cache::of_user(), Line::Stable).unwrap().is_none() {
        return println!("skipped: no kernel is in the cache: run `lab fetch`");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("courses.json");
    let (status, text) = lab(&[
        "--from",
        "dram",
        "--by",
        "samples",
        "--mib",
        "48",
        "--seconds",
        "40",
        "--json",
        file.to_str().unwrap(),
    ]);
    assert_eq!(status, 0);
    assert!(text.contains("48 MiB on node 1 (DRAM)"), "{text}");
    let courses: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let moments = courses[0]["moments"].as_array().unwrap();
    let (first, last) = (&moments[0], moments.last().unwrap());
    let home = |moment: &Value| moment["home_pages"].as_f64().unwrap() / moment["pages"].as_f64().unwrap();
    assert!(home(first) < 0.2, "{first}");
    // How far it gets in the time depends on how many accesses this machine makes.
    assert!(home(last) > 0.5, "{last}");
    assert_eq!(last["hint_faults"], 0, "{last}");
    let of = |name: &str| last[name].as_u64().unwrap();
    assert!(0 < of("useful") && of("useful") <= of("samples"), "{last}");
}

#[test]
fn what_nobody_can_see_is_refused() {
    let (status, text) = lab(&["--from", "dram", "--by", "hintfaults"]);
    assert!(status != 0 && text.contains("scans lower tiers only"), "{text}");
}
