//! No verb panics where what it says cannot be said.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Verbs that say something on a machine that nobody changes.
fn verbs(dir: &std::path::Path) -> Vec<Vec<String>> {
    let state = format!("--state-dir={}", dir.join("state").display());
    [
        vec!["config"],
        vec!["config", "--markdown"],
        vec!["config", "show"],
        vec!["config", "explain", "rule"],
        vec!["config", "schema"],
        vec!["config", "check"],
        vec!["sim", "--list"],
        vec!["sim", "chunks-small", "--set", "limit=\"1s\""],
        vec!["reproduce", "--list"],
        vec!["doctor"],
        vec!["doctor", "--json"],
        vec!["restore", &state],
        vec!["restore", "--dry-run", &state],
        vec!["status", "--socket", "/nonexistent/socket"],
        vec!["--help"],
        vec!["nonsense"],
    ]
    .into_iter()
    .map(|words| words.into_iter().map(str::to_owned).collect())
    .collect()
}

fn run(words: &[String], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(words).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// The writing end of a pipe that nobody reads.
fn broken() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn a_closed_pipe_is_a_quiet_end_and_a_full_disk_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for words in verbs(dir.path()) {
        let ordinary = run(&words, Stdio::piped(), Stdio::piped());
        let says_something = !ordinary.stdout.is_empty();
        let piped = run(&words, broken(), Stdio::piped());
        assert_eq!(piped.status.code(), ordinary.status.code(), "{words:?} into a closed pipe");
        assert_eq!(piped.stderr, ordinary.stderr, "{words:?} is not quiet about a closed pipe");
        let filled = run(&words, full(), Stdio::piped());
        let told = String::from_utf8_lossy(&filled.stderr);
        assert!(!told.contains("panicked"), "{words:?}: {told}");
        if says_something && !words.contains(&"--help".to_owned()) {
            assert!(!filled.status.success() && told.contains("cannot print"), "{words:?}: {told}");
        }
        // A panic ends a program with 101.
        for (stdout, stderr) in [(full(), full()), (broken(), broken())] {
            let code = run(&words, stdout, stderr).status.code();
            assert!(code.is_some_and(|code| code != 101), "{words:?}: {code:?}");
        }
    }
}

#[test]
fn a_watch_tells_of_what_changes_under_it_and_ends_quietly_when_nobody_reads() {
    let machine = tempfile::tempdir().unwrap();
    let stat = machine.path().join("proc/500/stat");
    std::fs::create_dir_all(stat.parent().unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(["doctor", "--watch", "1", "--json", "--root"]).arg(machine.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("\"event\":\"begins\"") && !first.contains("others.daemon"), "{first}");
    std::fs::write(&stat, "500 (numad) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 10 0\n").unwrap();
    let numad = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("others.daemon")));
    let numad = numad.unwrap().unwrap();
    assert!(numad.contains("\"event\":\"begins\"") && numad.contains("kill 500"), "{numad}");
    drop(lines);
    let ended = (0..300).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        child.try_wait().unwrap()
    });
    let status = ended.unwrap_or_else(|| {
        let _ = child.kill();
        panic!("it goes on although nobody reads")
    });
    assert_eq!(status.code(), Some(0));
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!(complaints, "");
}
