//! A pod becomes a scope by its annotations, as the kubelet's systemd driver lays out its cgroups,
//! while other pods come and go.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, where_time_is_no_matter, with_settings};

fn pods(line: Line) {
    let run = Run::new(line, [512, 128, 768], ThpMode::Never, 280).one_processor().env("MIB", 96);
    let Some(outcome) = run.run(&with_settings(include_str!("pods.sh"))) else { return };
    println!("{}", run.text("daemon-errors"));
    let number = |name| number(&outcome, name);
    assert_eq!(number("daemon_status"), 0);
    assert_eq!(number("before_the_file"), 0, "a program is managed that nobody asked for");
    assert_eq!(number("left_alone"), 0, "faults are reported of a pod that is left alone");
    assert!(number("changes") > 5 && number("refused") == 0);
}

#[test]
fn pods_are_scopes_by_their_annotations_6_12() {
    where_time_is_no_matter(|| pods(Line::Stable));
}

#[test]
fn pods_are_scopes_by_their_annotations_7() {
    where_time_is_no_matter(|| pods(Line::Newest));
}
