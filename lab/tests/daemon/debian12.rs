//! Debian 12's own kernel, 6.1: hint faults are seen in another function than in later kernels,
//! only devices' memory is in a lower tier, DAMON is missing, and generations are off by default.

use serde_json::Value;
use thermocline_lab::{Line, ThpMode};

use super::{Run, common, count, number, soak, with_settings};

/// The causes of all findings of a kind.
fn causes<'a>(report: &'a Value, id: &str) -> Vec<&'a str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.filter(|finding| finding["id"] == id).filter_map(|finding| finding["cause"].as_str()).collect()
}

#[test]
fn hot_pages_are_promoted_on_debian_12s_own_kernel() {
    let run = Run::new(Line::Debian12, [640, 128, 512], ThpMode::Never, 150)
        .env("HINTFAULT", common::example("hintfault").to_str().unwrap())
        .env("SECONDS_ON", if soak() { 30 } else { 10 });
    let Some(outcome) = run.run(&with_settings(include_str!("debian12.sh"))) else { return };
    the_doctor_is_right(&run, number(&outcome, "doctor"));
    the_source_sees_what_the_kernel_counts(&run.json("seen"));

    let (moved, last) = (run.verdict("judged").moved.unwrap(), run.json("last"));
    println!("{:?}, mover {}\n{}", moved.routes, last["mover"], run.text("daemon-errors"));
    assert_eq!(number(&outcome, "daemon_status"), 0);
    // The kernel promotes a little so that its tasks recompute their scan periods.
    let (ours, kernel) = (count(&last, "/counters/pgpromote_success"), number(&outcome, "kernel_promoted"));
    let promoted = moved.promoted.pages;
    println!("{promoted} pages came up, {ours} by us, {kernel} by the kernel");
    assert!(ours > 2000 && kernel * 4 < ours && promoted <= ours + kernel);
    assert_eq!(count(&last, "/source/malformed"), 0);
}

fn the_doctor_is_right(run: &Run, status: u64) {
    let report = run.json("doctor");
    assert_eq!((status, &report["verdict"]), (0, &"usable".into()), "{}", report["findings"]);
    let hintfault = &report["sources"][0];
    assert_eq!(hintfault["status"], "usable", "{hintfault}");
    assert_eq!(hintfault["attach_points"][0]["name"], "numa_migrate_prep", "{hintfault}");
    let none = causes(&report, "demotion.none");
    for why in ["MGLRU) is switched off", "does not offer migrate_cold", "does not offer reclaim of one node"]
    {
        assert!(none[0].contains(why), "{why} is not in {none:?}");
    }
    let usable = |name: &str| {
        let managers = report["managers"].as_array().unwrap();
        managers.iter().find(|manager| manager["name"] == name).unwrap()["usable"] == true
    };
    assert!(usable("thermocline") && usable("numab2") && !usable("damon"), "{}", report["managers"]);
    assert!(causes(&run.json("doctor-generations"), "demotion.none").is_empty(), "once they are switched on");
}

fn the_source_sees_what_the_kernel_counts(seen: &Value) {
    println!("{seen}");
    let of = |path: &str| seen.pointer(path).and_then(Value::as_f64).unwrap();
    let counted = of("/vmstat_hint_faults");
    assert!(counted > 5000.0, "too few hint faults to show anything");
    assert!(of("/seen_at_least") * 0.999 <= counted && counted <= of("/seen_at_most") * 1.001);
    assert_eq!((of("/stats/malformed"), of("/stats/bpf_missed")), (0.0, 0.0));
    // Frames follow from the page's position; pagemap confirms them except for pages moved since.
    let (right, wrong, unknown) = (of("/frames/0"), of("/frames/1"), of("/frames/2"));
    assert!(right >= 10.0 && wrong <= right * 0.02, "{right} frames are pagemap's, {wrong} are not");
    assert!(unknown <= right * 0.2, "{unknown} frames are not known, {right} are");
    assert_eq!(of("/by_node/2"), of("/stats/delivered"), "all memory is on node 2");
    let (same, close) = (of("/kernel_stamp/same"), of("/kernel_stamp/within_100ms"));
    assert!(same >= 0.8 && close >= 0.95, "{same} of latencies are the kernel's, {close} nearly");
}
