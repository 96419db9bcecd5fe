//! Others who set a value at the same time.

use super::*;

#[test]
fn what_somebody_sets_while_a_value_is_recorded_is_not_overwritten_by_an_adjustment() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    let a = m.path("a");
    actuator.set(&a, "2").unwrap();
    // It is read to see whose it is, and once more before it is recorded; then somebody sets it.
    m.kernel.put_after_reads(&a, &["77", "2"]);
    assert_eq!(actuator.adjust(&a, "3").unwrap(), None);
    assert_eq!(m.value("a"), "77");
    let entries = log::read(&m.state_dir()).unwrap().entries;
    assert_eq!(entries.iter().map(|e| (e.old.as_str(), e.ours.as_str())).collect::<Vec<_>>(), [("1", "2")]);
    drop(actuator);
    assert_eq!(m.value("a"), "77", "theirs at the end, too");
}

#[test]
fn what_is_put_back_is_what_was_there_when_the_value_was_written() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    let a = m.path("a");
    m.kernel.put_after_reads(&a, &["5"]);
    assert_eq!(actuator.set(&a, "2").unwrap(), Written::Changed { from: "5".to_owned() });
    drop(actuator);
    assert_eq!(m.value("a"), "5");
    // Who never stops is left alone in the end.
    let (mut actuator, _) = m.start();
    let restless: Vec<String> = (100..200).map(|n| n.to_string()).collect();
    m.kernel.put_after_reads(&a, &restless.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(matches!(actuator.set(&a, "2"), Err(ActuatorError::Contended { .. })));
    assert!(log::read(&m.state_dir()).unwrap().entries.is_empty());
}

#[test]
fn a_setting_that_somebody_else_changes_is_told_once_and_left() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    actuator.set(&m.path("a"), "2").unwrap();
    actuator.keep(&Plan { kept: vec![(m.path("b"), "N".to_owned())], ..Plan::default() });
    let look = |actuator: &mut Actuator, s| actuator.look_after(at(s), WhenChanged::StandAside);
    assert!(look(&mut actuator, 1).is_empty());
    m.kernel.put(&m.path("a"), "0");
    m.kernel.put(&m.path("b"), "Y");
    let told = look(&mut actuator, 2);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().any(|t| t.contains("numa_balancing is 0: somebody else has set it")), "{told:?}");
    assert!(told[0].contains("set-again"), "what would change that: {told:?}");
    assert!((3..100).all(|s| look(&mut actuator, s).is_empty()), "told once");
    let stats = SettingsStats { changed_by_others: 2, set_again: 0, left: 2 };
    assert_eq!(actuator.settings_stats(), stats);
    assert_eq!(fates(&actuator.restore()), [&Fate::NotOurs { found: "0".to_owned() }]);
    assert_eq!((m.value("a").as_str(), m.value("b").as_str()), ("0", "Y"));
}
