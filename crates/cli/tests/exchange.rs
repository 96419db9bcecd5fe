//! Other tools' files from outside: imported, refused with what to do, and exported.

#[path = "common/command.rs"]
mod command;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use command::{errors, run};

fn fixture(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/fixtures/import");
    Path::new(folder).join(name).display().to_string()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Imports a file into a new folder.
fn import(file: &str, more: &[&str]) -> (tempfile::TempDir, PathBuf, Output) {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("recording");
    let output = run(&[&["import", file, "-o", text(&folder)][..], more].concat());
    (dir, folder, output)
}

#[test]
fn every_format_is_recognised_and_told() {
    for (name, format, pieces) in [
        ("lackey-3.19.0.txt", "lackey", 6),
        ("perf-6.1.187-faults.txt", "perf", 5),
        ("damo-3.4.3.json", "damo-json", 5),
        ("damo-3.4.3.json_compressed", "damo-json-compressed", 5),
        ("damo-3.4.3.perf_script", "damon", 5),
        ("memtierd-raw.txt", "memtierd", 5),
    ] {
        let (_dir, folder, output) = import(&fixture(name), &[]);
        let told = errors(&output);
        assert!(output.status.success(), "{name}: {told}");
        assert!(told.contains(&format!("is of format {format}\n")), "{told}");
        assert!(told.contains(&format!("{pieces} pieces of evidence in 1 parts")), "{told}");
        assert!(folder.join("part-000001.json").exists(), "{name}");
    }
}

#[test]
fn standard_input_is_a_file_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("recording");
    let file = File::open(fixture("memtierd-raw.txt")).expect("it is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    let output = command.args(["import", "-", "-o", text(&folder)]).stdin(Stdio::from(file)).output();
    let told = errors(&output.expect("it starts"));
    assert!(told.starts_with("standard input is of format memtierd\n"), "{told}");
}

#[test]
fn what_cannot_be_imported_is_refused_with_its_line_and_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let cut = dir.path().join("cut.txt");
    let whole = fs::read(fixture("lackey-3.19.0.txt")).expect("it is there");
    let at = whole.windows(5).position(|w| w == b" M 00").expect("it has one") + 5;
    fs::write(&cut, &whole[..at]).expect("it can be written");
    let line = whole[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let (_dir, folder, output) = import(text(&cut), &[]);
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains(&format!("cut.txt: line {line}: ")) && told.contains("--until-damage"), "{told}");
    assert!(!folder.exists());
    let (_dir, folder, output) = import(text(&cut), &["--until-damage"]);
    let told = errors(&output);
    assert!(output.status.success() && folder.exists(), "{told}");
    assert!(told.contains(&format!("read up to there: line {line}: ")), "{told}");
    assert!(told.contains("2 pieces of evidence"), "{told}");

    for (file, more, code, word) in [
        (fixture("README.md"), &[][..], 2, "--format"),
        (fixture("perf-6.1.187-fields.txt"), &[], 2, "--fields"),
        (fixture("memtierd-raw.txt"), &["--format", "lackey"], 2, "line 1: "),
        (fixture("memtierd-raw.txt"), &["--format", "pin"], 2, "formats are lackey"),
        (fixture("memtierd-raw.txt"), &["--intervals", "5ms"], 2, "5ms,100ms"),
        (fixture("missing"), &[], 1, "cannot read"),
    ] {
        let (_dir, _, output) = import(&file, more);
        let told = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{file}: {told}");
        assert!(told.contains(word), "{file}: {told}");
    }
}

#[test]
fn an_imported_recording_is_exported_and_not_replayed() {
    let (dir, folder, _) = import(&fixture("lackey-3.19.0.txt"), &[]);
    let output = run(&["replay", text(&folder)]);
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("imported from lackey") && told.contains("export it"), "{told}");

    let file = dir.path().join("out");
    let output = run(&["export", text(&folder), "--to", "lackey", "-o", text(&file)]);
    assert!(output.status.success(), "{}", errors(&output));
    let lines = fs::read_to_string(&file).expect("it is written");
    let accesses: Vec<&str> = lines.lines().skip(1).collect();
    assert_eq!(
        accesses,
        [
            " S 00402000,1",
            " L 00403000,1",
            " L 00404000,1",
            " S 00404000,1",
            " S 00402000,1",
            " S 00403000,1"
        ]
    );
    let output = run(&["export", text(&folder), "--to", "perfetto", "-o", text(&file)]);
    let told = errors(&output);
    assert!(output.status.success() && told.contains("not CLOCK_MONOTONIC"), "{told}");
    assert!(fs::read(&file).expect("it is written").starts_with(&[0x0a]), "it begins with a packet");
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_no_file() {
    let (dir, folder, _) = import(&fixture("perf-6.1.187-faults.txt"), &[]);
    let file = dir.path().join("out");
    let output = run(&["export", text(&folder), "--to", "perfetto", "--pid", "7", "-o", text(&file)]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let mixed = dir.path().join("mixed.txt");
    fs::write(&mixed, "a 7/7 1.5: 1 page-faults: 1000\nb 8/8 1.6: 1 page-faults: 2000\n").expect("written");
    let (_dir, folder, _) = import(text(&mixed), &[]);
    let output = run(&["export", text(&folder), "--to", "lackey", "-o", text(&file)]);
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--pid"), "{told}");
    let missing = run(&["export", text(dir.path()), "--to", "lackey", "-o", text(&file)]);
    assert_eq!(missing.status.code(), Some(2), "{}", errors(&missing));
    let nowhere = dir.path().join("no/where");
    let output = run(&["export", text(&folder), "--to", "perfetto", "-o", text(&nowhere)]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let left: Vec<_> =
        fs::read_dir(dir.path()).expect("it is there").flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("out")), "{left:?}");
}

/// A trace of lackey has an order, but no time: shares are known, rates are not.
#[test]
fn what_has_no_time_is_planned_by_shares() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("app.trace");
    // Of each ten accesses, nine go to one page, and one to one of nine others.
    let lines = (0..20_000u64).map(|i| {
        let page = if i % 10 == 9 { 1 + i / 10 % 9 } else { 0 };
        format!("I  00401000,4\n L {:x},8\n", 0x7f00_0000 + page * 4096)
    });
    fs::write(&file, lines.collect::<String>()).expect("it can be written");
    let (_dir, folder, output) = import(text(&file), &[]);
    assert!(output.status.success(), "{}", errors(&output));

    let output = run(&["plan", text(&folder), "--sizes=10%", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(answer["untimed"].as_str().expect("text").starts_with("instructions"), "{answer}");
    assert!(answer["seconds"].is_null() && answer["accesses_per_s"]["likely"].is_null(), "{answer}");
    let share = answer["points"][0]["share"]["likely"].as_f64().expect("a number");
    assert!((share - 0.9).abs() < 0.01, "{answer}");

    let output = run(&["sim", text(&folder)]);
    assert_eq!(output.status.code(), Some(2));
    let told = errors(&output);
    assert!(told.contains("how often the program accesses memory is not known"), "{told}");
}
