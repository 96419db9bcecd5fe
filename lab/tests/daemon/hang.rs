//! What hangs stops nothing else: a process whose mmap lock is held for ever, DAMON with it, and
//! the daemon's own loop.

use std::path::{Path, PathBuf};
use std::process::Command;

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, where_time_is_no_matter, with_damon_settings};

/// What is promoted beside the process that hangs, which is smaller.
const FOOTPRINT_MIB: u64 = 48;
const HUNG_MIB: u64 = 16;
/// A verb's answer may take so long, s.
const VERB_MAX_S: u64 = 5;
/// So long the end may take until the settings are back, s: 10 are left to the loop, the rest is
/// the busy host's.
const END_MAX_S: u64 = 15;
/// The doctor looks at everything, and on an emulated machine, s.
const DOCTOR_MAX_S: u64 = 20;

/// The file system and the process.
pub fn hang() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/hang.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hang");
    let output =
        Command::new("cc").args(["-std=gnu11", "-O2", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn what_hangs_stops_nobody_else(line: Line) {
    let run = Run::new(line, [640, 128, 512], ThpMode::Madvise, 420)
        .env("HANG", hang().display())
        .env("HUNG_MIB", HUNG_MIB)
        .env("MIB", FOOTPRINT_MIB);
    let Some(outcome) = run.run(&with_damon_settings(include_str!("hang.sh"))) else { return };
    let number = |name| number(&outcome, name);
    for verb in
        ["status_s", "explain_s", "explain_hung_s", "commands_status_s", "watched_status_s", "held_status_s"]
    {
        assert!(number(verb) <= VERB_MAX_S, "{verb}: {}", number(verb));
    }
    assert!(number("doctor_s") <= DOCTOR_MAX_S, "doctor took {} s", number("doctor_s"));
    for end in ["everybody_end_s", "commands_end_s", "watched_end_s", "held_end_s"] {
        assert!(number(end) <= END_MAX_S, "{end}: {}", number(end));
    }
    let hung = number("watched_hung");
    assert!(hung == 1 || line == Line::Newest, "on 6.12 the kdamond hangs");
    assert_eq!(number("watched_exit"), hung, "1 where a kdamond is left");
    assert_eq!(number("held_exit"), 0, "all is back");
}

#[test]
fn what_hangs_stops_nobody_else_6_12() {
    where_time_is_no_matter(|| what_hangs_stops_nobody_else(Line::Stable));
}

#[test]
fn what_hangs_stops_nobody_else_7() {
    where_time_is_no_matter(|| what_hangs_stops_nobody_else(Line::Newest));
}
