//! `lab remote` as its users run it: memory comes home by samples alone.

use serde_json::Value;

use super::{lab, unavailable};

/// Memory on the DRAM node without processors is balanced to where it is accessed from, by samples:
/// the kernel takes no hint fault.
#[test]
fn samples_balance_nodes_of_dram() {
    if let Some(why) = unavailable() {
        return println!("skipped: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("courses.json");
    let (status, text) = lab(&[
        "remote",
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
    let (status, text) = lab(&["remote", "--from", "dram", "--by", "hintfaults"]);
    assert!(status != 0 && text.contains("scans lower tiers only"), "{text}");
}
