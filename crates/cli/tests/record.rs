//! Recordings from outside: simulated, replayed, compared, and refused with what to do.

#[path = "common/command.rs"]
mod command;
#[path = "common/recording.rs"]
mod recording;

use std::fs;
use std::path::Path;
use std::process::Output;

use command::{errors, run};
use serde_json::Value;

/// Records a simulated run of a rule into `folder`; returns what it says.
fn record(folder: &Path, rule: &str, more: &[&str]) -> String {
    let rule = format!("--rule={rule}");
    errors(&recording::record(folder, &[&[rule.as_str(), "--mode=event"][..], more].concat()))
}

fn replay(folder: &Path, more: &[&str]) -> Output {
    run(&[&["replay", folder.to_str().expect("a plain path")][..], more].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", errors(output)))
}

/// The recorded journal, a decision a line.
fn journal(folder: &Path) -> String {
    let recording = thermocline_trace::reader::Recording::open(folder).expect("it is a recording");
    let mut steps = thermocline_trace::replay::Steps::new(recording.read());
    let mut out = String::new();
    while let Some(step) = steps.next_step() {
        for decision in &step.decisions {
            out += &(serde_json::to_string(decision).expect("it can be written") + "\n");
        }
    }
    out
}

#[test]
fn a_recorded_run_is_replayed_to_the_byte() {
    let dir = tempfile::tempdir().expect("a folder");
    for rule in ["adaptive", "latency", "fault-count", "frequency", "speculative"] {
        let folder = dir.path().join(rule);
        let told = record(&folder, rule, &[]);
        assert!(told.contains("pieces of evidence") && told.contains(" 0 pieces lost"), "{told}");
        let file = dir.path().join(format!("{rule}.jsonl"));
        let output = replay(&folder, &["--journal", file.to_str().expect("a plain path")]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("to the byte"), "{rule}: {text}");
        let (theirs, ours) = (journal(&folder), fs::read_to_string(&file).expect("it is written"));
        assert!(theirs == ours, "{rule}: the journals are other bytes");
        assert!(ours.contains("\"moved\""), "{rule}: nothing moved");
    }
}

#[test]
fn another_rule_differs_page_by_page_and_the_sums_balance() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("adaptive");
    record(&folder, "adaptive", &[]);
    let output = replay(&folder, &["--rule=latency", "--diff", "--pages=3", "--json"]);
    assert!(output.status.success(), "{}", errors(&output));
    let found = json(&output);
    assert_eq!((&found["same"], &found["unchanged"]), (&false.into(), &false.into()), "{found}");
    assert_eq!(found["rules"], serde_json::json!(["adaptive", "latency"]));
    let diff = &found["diff"];
    let counts = &diff["counts"]["promote"];
    let count = |name: &str| counts[name].as_u64().unwrap_or_else(|| panic!("{name} in {counts}"));
    let moved = ["moved_in_both", "moved_only_recorded", "moved_only_replayed"];
    let neither = ["same_reason", "another_reason", "only_recorded", "only_replayed"];
    let all: u64 = moved.iter().chain(&neither).map(|name| count(name)).sum();
    assert_eq!(all, count("pages"));
    assert!(all > 100, "{counts}");
    let pairs = diff["pairs"].as_array().expect("a list");
    let of = |keep: &dyn Fn(&Value) -> bool| -> u64 {
        let kept = pairs.iter().filter(|pair| pair["direction"] == "promote" && keep(pair));
        kept.map(|pair| pair["pages"].as_u64().expect("a number")).sum()
    };
    assert_eq!(of(&|_| true), all);
    assert_eq!(of(&|pair| pair["recorded"] == "moved"), count(moved[0]) + count(moved[1]));
    assert_eq!(of(&|pair| pair["replayed"] == "moved"), count(moved[0]) + count(moved[2]));
    assert_eq!(of(&|pair| pair["recorded"] != "never proposed"), counts["journals"][0].as_u64().expect("it"));
    let first = diff["first"].as_array().expect("a list");
    assert!(first.len() <= 3 && first.iter().all(|page| page["recorded"] != page["replayed"]), "{diff}");
    let text = String::from_utf8_lossy(&replay(&folder, &["--rule=latency", "--diff"]).stdout).into_owned();
    for said in ["recorded with rule adaptive, replayed with latency", "moved in both", "the first pages"] {
        assert!(text.contains(said), "{said} is missing in\n{text}");
    }
    // Another value of the recorded configuration counts like another rule.
    let output = replay(&folder, &["--set=admission.rate_limit_mbps=1", "--json"]);
    assert_eq!(json(&output)["unchanged"], false, "{}", errors(&output));
    let output = replay(&folder, &["--set=rule.name=adaptive", "--json"]);
    assert_eq!(json(&output)["same"], true, "{}", errors(&output));
    let own = dir.path().join("own.toml");
    fs::write(&own, "[rule]\nname = \"latency\"\n").expect("it can be written");
    let output = replay(&folder, &["--json", "--config", own.to_str().expect("a plain path")]);
    assert_eq!(json(&output)["rules"][1], "latency", "{}", errors(&output));
}

#[test]
fn at_its_size_a_recording_ends_or_loses_its_oldest_part() {
    let dir = tempfile::tempdir().expect("a folder");
    let size = |folder: &Path| -> u64 {
        let files = fs::read_dir(folder).expect("it can be read");
        files.map(|file| file.and_then(|file| file.metadata()).expect("it can be read").len()).sum()
    };
    let large = |folder: &Path, more: &[&str]| {
        let to = format!("--record={}", folder.display());
        let output =
            run(&[&["sim", "hotcold", "--rule=adaptive", "--max-size=4MiB", &to][..], more].concat());
        assert!(output.status.success(), "{}", errors(&output));
        errors(&output)
    };
    let ended = dir.path().join("ended");
    let told = large(&ended, &[]);
    assert!(told.contains("it has reached its 4194304 bytes"), "{told}");
    assert!(size(&ended) <= 4 << 20);
    let output = replay(&ended, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("to the byte"), "its beginning is whole: {text}");
    let rotated = dir.path().join("rotated");
    let told = large(&rotated, &["--rotate"]);
    assert!(told.contains("oldest of which were removed"), "{told}");
    assert!(size(&rotated) <= 4 << 20);
    let output = replay(&rotated, &["--json"]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(json(&output)["missing"].as_u64() > Some(0));
}

#[test]
fn a_private_recording_names_nobody_and_can_be_replayed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (open, private) = (dir.path().join("open"), dir.path().join("private"));
    record(&open, "adaptive", &[]);
    record(&private, "adaptive", &["--private"]);
    let setting = |folder: &Path, key: &str| {
        let recording = thermocline_trace::reader::Recording::open(folder).expect("it is a recording");
        recording.setting(key).map(str::to_owned)
    };
    assert_eq!(setting(&open, "scenario").as_deref(), Some("recorded"));
    assert_eq!(setting(&private, "scenario").as_deref(), Some(""));
    assert_ne!(journal(&open), journal(&private), "addresses are other ones");
    let found = json(&replay(&private, &["--json"]));
    assert_eq!(found["same"], true, "{found}");
}

#[test]
fn what_is_no_recording_is_an_error_with_the_remedy() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("empty")).expect("it can be made");
    fs::create_dir(path("foreign")).expect("it can be made");
    fs::write(path("foreign/data.parquet"), "PAR1").expect("it can be written");
    fs::write(path("file"), "x").expect("it can be written");
    let whole = path("whole");
    record(&whole, "adaptive", &[]);
    let copy = |name: &str| {
        fs::create_dir(path(name)).expect("it can be made");
        for entry in fs::read_dir(&whole).expect("it can be read") {
            let from = entry.expect("it can be read").path();
            fs::copy(&from, path(name).join(from.file_name().expect("a name"))).expect("it can be copied");
        }
    };
    copy("damaged");
    fs::write(path("damaged/steps-000001.parquet"), "nothing").expect("it can be written");
    copy("version");
    for entry in fs::read_dir(&whole).expect("it can be read") {
        let name = entry.expect("it can be read").file_name().to_string_lossy().into_owned();
        if !name.ends_with(".json") {
            continue;
        }
        let bytes = fs::read(whole.join(&name)).expect("it is there");
        let mut manifest = thermocline_trace::part::Manifest::of_bytes(&bytes).expect("it is whole");
        manifest.schema = 99;
        fs::write(path("version").join(&name), manifest.to_bytes()).expect("it can be written");
    }
    for (name, said) in [
        ("absent", "No such file"),
        ("empty", "name a folder that --record has written"),
        ("foreign", "name a folder that --record has written"),
        ("file", "cannot be read"),
        ("version", "has version 99"),
    ] {
        let output = replay(&path(name), &[]);
        let told = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {told}");
        assert!(told.starts_with("error: ") && told.contains(said) && told.contains(name), "{name}: {told}");
    }
    let output = replay(&path("damaged"), &["--json"]);
    let told = errors(&output);
    assert!(told.contains("steps-000001.parquet") && told.contains("left out"), "{told}");
    for (args, said) in [(["--rule=lru"], "use one of adaptive"), (["--set=rule.nam=x"], "rule.nam")] {
        let output = replay(&whole, &args);
        let told = errors(&output);
        assert!(output.status.code() == Some(2) && told.contains(said), "{args:?}: {told}");
    }
    // A folder that is not empty takes no recording, and nothing in it is touched.
    let to = format!("--record={}", whole.display());
    let output = run(&["sim", "hotcold", "--rule=adaptive", &to]);
    assert!(
        !output.status.success() && errors(&output).contains("name another folder"),
        "{}",
        errors(&output)
    );
    assert!(replay(&whole, &[]).status.success());
}

#[test]
fn what_cannot_be_recorded_is_refused_before_anything_happens() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("r").display().to_string();
    let to = format!("--record={folder}");
    for (args, said) in [
        (vec!["sim", "hotcold", "--manager=numab2", &to], "--rule RULE"),
        (vec!["sim", "hotcold", "--rule=adaptive", "--seeds=2", &to], "cannot be used with"),
        (vec!["run", "--manager=numab2", &to], "observe --record"),
        (vec!["observe", "--private"], "--record"),
        (vec!["observe", &to, "--max-size=1KiB"], "at least 1MiB"),
        (vec!["record", "--for=1s"], "--out"),
        (vec!["record", "--only=nobody", "-o", &folder], "there is no scope of that name"),
    ] {
        let output = run(&args);
        let told = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.contains(said), "{args:?}: {told}");
    }
    assert!(!dir.path().join("r").exists());
}
