//! Recordings that are damaged, foreign, unfinished, empty, or none.

use super::*;

/// Copies the files of a recording.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("it can be read") {
        let path = entry.expect("a file").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("it can be copied");
    }
}

fn refused(folder: &Path, word: &str) {
    let output = run(&["top", plain(folder), "--once"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains(word), "{}", errors(&output));
}

#[test]
fn what_is_no_recording_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    refused(&dir.path().join("nowhere"), "cannot be read");
    refused(dir.path(), "name a folder that --record has written");
    let file = dir.path().join("file");
    fs::write(&file, "x").expect("it can be written");
    refused(&file, "cannot be read");
}

#[test]
fn a_moment_beyond_the_end_is_the_end_and_told_to_be() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("shared");
    record(&folder);
    let frame = frame(&folder, &["--at", "99h"]);
    assert!(frame.contains("this is the end: 4days 3h is beyond it") && frame.contains("END"), "{frame}");
}

#[test]
fn what_is_damaged_shows_what_is_recorded_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let (whole, damaged) = (dir.path().join("whole"), dir.path().join("damaged"));
    record(&whole);
    copy(&whole, &damaged);
    // The last part, of which no later one could tell.
    let files = fs::read_dir(&damaged).expect("it can be read").map(|entry| entry.expect("a file").path());
    let last = files.filter(|path| plain(path).contains("accesses-")).max().expect("a file of accesses");
    assert!(!plain(&last).contains("000001"), "the first part is whole");
    let mut bytes = fs::read(&last).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&last, bytes).expect("it can be written");
    let end = frame(&damaged, &["--pane", "scopes"]);
    assert!(end.contains("recorded rows only: parts of the recording are missing; 1 file"), "{end}");
    assert!(end.contains("brakes unknown"), "{end}");
    // Before the damage nothing is missing.
    let before = frame(&damaged, &["--pane", "scopes", "--at", "2s"]);
    assert!(before.contains("decided as it was recorded") && !before.contains("unknown"), "{before}");
    let of_whole = frame(&whole, &["--pane", "scopes", "--at", "2s"]);
    assert!(before.lines().skip(1).eq(of_whole.lines().skip(1)), "{before}");
}

#[test]
fn a_foreign_recording_shows_unknown_and_no_zero() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, folder) = (dir.path().join("x.txt"), dir.path().join("x"));
    fs::write(&file, "==1== Lackey\nI  04000000,3\n L 04222c48,8\n S 04222c50,8\n M 04222d00,4\n")
        .expect("it can be written");
    let output = run(&["import", plain(&file), "-o", plain(&folder), "--format", "lackey"]);
    assert!(output.status.success(), "{}", errors(&output));
    let tiers = frame(&folder, &[]);
    assert!(tiers.contains("imported from lackey") && tiers.contains("recorded rows only"), "{tiers}");
    let promoted = tiers.lines().find(|line| line.trim_start().starts_with("promoted")).expect("a row");
    assert_eq!(
        promoted.split_whitespace().collect::<Vec<_>>(),
        ["promoted", "unknown", "unknown", "unknown"]
    );
    for (pane, word) in [
        ("scopes", "scopes are unknown"),
        ("refusals", "unknown: it is not recorded"),
        ("decisions", "no decision is recorded"),
        ("sources", "losses unknown"),
    ] {
        let text = frame(&folder, &["--pane", pane]);
        assert!(text.contains(word), "{pane}: {text}");
    }
}
