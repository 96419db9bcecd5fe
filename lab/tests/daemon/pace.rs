//! A program that the kernel would scan once a second of its time is scanned at the pace that is
//! configured.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, where_time_is_no_matter};

/// Some 100 MiB of it on CXL: 50 steps of 2 MB, a second apart, and others that pass over DRAM.
/// Passes of five seconds take their place, or of somewhat more on a busy machine, where steps take
/// long and the kernel lets no task spend more than a 32nd of its time on them.
const FOOTPRINT_MIB: u64 = 560;

fn scans_keep_the_pace(line: Line) {
    let run = Run::new(line, [384, 128, 512], ThpMode::Never, 300).env("MIB", FOOTPRINT_MIB);
    let Some(outcome) = run.run(include_str!("pace.sh")) else { return };
    println!("{}", run.text("daemon-errors"));
    // The end of a pass of some fifty seconds may fall into these fifteen, but not two.
    assert!(
        number(&outcome, "alone_passes") <= 1,
        "scanned often without us: /bin/sh has not started it by vfork"
    );
    assert!(number(&outcome, "paced_passes") >= 2, "renewed, and still scanned seldom");
    assert_eq!((number(&outcome, "mode"), number(&outcome, "mode_after")), (2, 0));
    assert_eq!(number(&outcome, "size_after"), 256);
    assert_eq!((number(&outcome, "daemon_status"), number(&outcome, "loader_status")), (0, 0));
}

#[test]
fn scans_keep_the_pace_on_6_12() {
    where_time_is_no_matter(|| scans_keep_the_pace(Line::Stable));
}

#[test]
fn scans_keep_the_pace_on_the_newest() {
    where_time_is_no_matter(|| scans_keep_the_pace(Line::Newest));
}
