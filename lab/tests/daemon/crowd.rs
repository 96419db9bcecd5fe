//! Many processes and cgroups: the daemon works, answers and ends as beside few.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, where_time_is_no_matter, with_settings};

const PROCESSES: u64 = 20_000;
const CGROUPS: u64 = 5_000;
const FOOTPRINT_MIB: u64 = 48;
/// A verb's answer may take so long, s, on an emulated machine.
const VERB_MAX_S: u64 = 5;
/// The doctor looks at everything, s.
const DOCTOR_MAX_S: u64 = 30;
/// So long the end may take, s.
const END_MAX_S: u64 = 15;

fn a_crowd_is_in_nobodys_way(line: Line) {
    let run = Run::new(line, [5120, 512, 1024], ThpMode::Madvise, 1500)
        .env("PROCESSES", PROCESSES)
        .env("CGROUPS", CGROUPS)
        .env("MIB", FOOTPRINT_MIB);
    let Some(outcome) = run.run(&with_settings(include_str!("crowd.sh"))) else { return };
    let number = |name| number(&outcome, name);
    println!("{}", run.json("last")["cpu_time_ns"]);
    assert!(number("processes") >= PROCESSES);
    assert!(number("left") * 2 <= number("had"), "a program is promoted beside a crowd");
    assert_eq!(number("late"), 0, "the loop was late");
    assert!(number("status_s") <= VERB_MAX_S, "status took {} s", number("status_s"));
    assert!(number("doctor_s") <= DOCTOR_MAX_S, "doctor took {} s", number("doctor_s"));
    assert!(number("end_s") <= END_MAX_S, "the end took {} s", number("end_s"));
}

#[test]
fn a_crowd_is_in_nobodys_way_6_12() {
    where_time_is_no_matter(|| a_crowd_is_in_nobodys_way(Line::Stable));
}

#[test]
fn a_crowd_is_in_nobodys_way_7() {
    where_time_is_no_matter(|| a_crowd_is_in_nobodys_way(Line::Newest));
}
