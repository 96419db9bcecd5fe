//! A replay with the recorded configuration decides as the recorded engine did, to the byte; with
//! another one it decides otherwise, and says what had no effect.

use thermocline_core::config::{RuleChoice, RuleName};
use thermocline_core::journal::{Decision, What};

use crate::machines::{config, patient, plan, record, replayed, setup};

fn lines(decisions: &[Decision]) -> String {
    decisions.iter().map(|d| serde_json::to_string(d).expect("it can be written") + "\n").collect()
}

/// Records a run and replays it; the journals must be the same bytes.
fn hold(choice: RuleChoice, seed: u64, faults: u32) {
    let setup = setup(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(seed, faults, 150);
    let run = record(&setup, choice, seed, &plan, (folder.path(), patient(), false));
    let name = format!("{} seed {seed}, {} faults", choice.text(), run.faults);
    assert_eq!((run.summary.ended.as_ref(), run.summary.stats.lost), (None, 0), "{name}");
    let (done, theirs, ours) = replayed(folder.path(), &config(&setup, choice));
    assert_eq!(done.missing, 0, "{name}");
    assert!(done.damages.is_empty(), "{name}: {:?}", done.damages);
    assert_eq!(done.pieces, run.summary.stats.pieces, "{name}");
    assert_eq!((done.followed.batches_apart, done.followed.demands_apart), (0, 0), "{name}");
    assert!(faults > 0 || run.decisions.iter().any(|d| matches!(d.what, What::Moved { .. })), "{name}");
    assert!(lines(&theirs) == lines(&run.decisions), "{name}: the recording has another journal");
    let first = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    assert!(lines(&ours) == lines(&theirs), "{name}: decision {first:?} of {} differs", theirs.len());
}

#[test]
fn every_rule_decides_as_recorded() {
    for (seed, choice) in RuleChoice::all().enumerate() {
        hold(choice, 7 + seed as u64, 0);
    }
}

#[test]
fn so_it_does_on_a_machine_that_fails() {
    let all: Vec<RuleChoice> = RuleChoice::all().collect();
    for seed in 0..12 {
        hold(all[seed as usize % all.len()], seed, 150);
    }
}

#[test]
fn another_rule_decides_otherwise_and_nothing_of_it_moves() {
    let setup = setup(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let adaptive = RuleChoice::Rule(RuleName::Adaptive);
    record(&setup, adaptive, 7, &[], (folder.path(), patient(), false));
    let other = config(&setup, RuleChoice::Rule(RuleName::Latency));
    let (done, theirs, ours) = replayed(folder.path(), &other);
    assert!(theirs != ours);
    assert!(done.followed.batches_apart > 0, "{:?}", done.followed);
    assert!(done.followed.outcomes_withheld > 0, "{:?}", done.followed);
    let apart = ours.iter().filter(|d| matches!(d.what, What::Failed { .. })).count();
    assert!(apart > 0, "moves that the recording has not end as dry runs");
    // No move of this engine is left without an end, but those of the last step.
    let issued = ours.iter().filter(|d| matches!(d.what, What::Issued { .. })).count();
    let lost = ours.iter().filter(|d| matches!(d.what, What::Lost { .. })).count();
    assert!(issued > 0 && lost * 20 < issued, "{lost} of {issued}");
    done.driver.engine().check_balance().expect("the sums balance");
}
