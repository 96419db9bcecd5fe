//! A running daemon reloads its configuration fifty times, scopes included, each time as a whole or
//! not at all. It records meanwhile, and the replay of that decides the same.

use std::process::Command;

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, thermocline, where_time_is_no_matter, with_settings};

#[test]
fn a_daemon_is_reloaded_under_load_on_6_12() {
    where_time_is_no_matter(reloaded_under_load);
}

fn reloaded_under_load() {
    let run = Run::new(Line::Stable, [512, 128, 768], ThpMode::Never, 280).one_processor().env("MIB", 96);
    let Some(outcome) = run.run(&with_settings(include_str!("reload.sh"))) else { return };
    let number = |name| number(&outcome, name);
    assert_eq!(number("daemon_status"), 0);
    assert_eq!((number("reloads"), number("refused")), (52, 2 + number("late")));
    assert_eq!(number("out_of_scope"), 0, "faults are reported of a program in no scope");

    // Each line of the daemon contains its counters: none decreases.
    let mut before = 0;
    for line in run.text("daemon").lines() {
        let told: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(proposed) = told["counters"]["proposed"].as_u64() else { continue };
        assert!(proposed >= before, "{proposed} proposed, {before} before");
        before = proposed;
    }
    assert!(before > 0, "nothing was proposed: the load is none");

    println!("{}", run.text("daemon-errors"));
    let replay =
        Command::new(thermocline()).arg("replay").arg(run.folder.path().join("trace")).output().unwrap();
    let [said, errors] = [&replay.stdout, &replay.stderr].map(|text| String::from_utf8_lossy(text));
    println!("{said}{errors}");
    assert!(replay.status.success() && said.contains("the same: all"), "{said}{errors}");
}
