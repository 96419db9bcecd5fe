//! The actuator against a folder, against a recorded kernel, and across crashes.

mod meanwhile;

use std::fs;
use std::sync::Arc;

use thermocline_core::config::{Kernel, WhenChanged};
use thermocline_core::units::Nanos;

use super::door::Recording;
use super::*;
use crate::private::Folder;

/// A kernel of values in memory and a state folder on disk.
struct Machine {
    _dir: tempfile::TempDir,
    root: Root,
    kernel: Recording,
}

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(root.proc.join("sys/kernel/random")).unwrap();
        fs::create_dir_all(&root.run).unwrap();
        let m = Machine { _dir: dir, root, kernel: Recording::default() };
        m.boot("first-boot");
        for (name, value) in [("a", "1"), ("b", "N"), ("c", "always [madvise] never")] {
            m.kernel.put(&m.path(name), value);
        }
        m
    }

    fn boot(&self, id: &str) {
        fs::write(self.root.proc.join("sys/kernel/random/boot_id"), format!("{id}\n")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        let name = match name {
            "a" => "kernel/numa_balancing",
            "b" => "vm/min_slab_ratio",
            "c" => "vm/min_unmapped_ratio",
            "d" => "kernel/numa_balancing_promote_rate_limit_MBps",
            other => other,
        };
        self.root.proc.join("sys").join(name)
    }

    fn value(&self, name: &str) -> String {
        self.kernel.get(&self.path(name)).unwrap()
    }

    fn state_dir(&self) -> PathBuf {
        self.root.run.join("thermocline")
    }

    fn start(&self) -> (Actuator, RestoreReport) {
        let lock = Lock::acquire(&self.root, &self.state_dir()).unwrap();
        Actuator::with_door(&self.root, lock, Box::new(self.kernel.clone())).unwrap()
    }

    fn plan(&self, steps: &[(&str, &str)]) -> Plan {
        let changes = steps.iter().map(|(name, to)| Change {
            name: "x",
            path: self.path(name),
            from: String::new(),
            to: (*to).to_owned(),
            why: "",
            undo: String::new(),
        });
        Plan { changes: changes.collect(), ..Plan::default() }
    }
}

fn fates(report: &RestoreReport) -> Vec<&Fate> {
    report.values.iter().map(|r| &r.fate).collect()
}

#[test]
fn a_value_that_is_adjusted_again_and_again_is_put_back_at_once_and_the_log_does_not_grow() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    let a = m.path("a");
    assert_eq!(actuator.adjust(&a, "5").unwrap(), None, "not ours");
    actuator.set(&a, "2").unwrap();
    for value in 3..100 {
        assert!(actuator.adjust(&a, &value.to_string()).unwrap().is_some());
    }
    assert_eq!(log::read(&m.state_dir()).unwrap().entries.len(), 1);
    // After a crash the next start puts the first value back.
    actuator.crash();
    let (mut actuator, report) = m.start();
    assert_eq!((fates(&report), m.value("a")), (vec![&Fate::PutBack], "1".to_owned()));
    // A value that somebody else has set is theirs.
    actuator.set(&a, "2").unwrap();
    m.kernel.put(&a, "77");
    assert_eq!(actuator.adjust(&a, "3").unwrap(), None);
    assert_eq!(m.value("a"), "77");
}

#[test]
fn values_are_put_back_in_reverse_order_at_the_end() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    let from = "1".to_owned();
    assert_eq!(actuator.set(&m.path("a"), "2").unwrap(), Written::Changed { from });
    actuator.set(&m.path("b"), "1").unwrap();
    actuator.set(&m.path("a"), "3").unwrap();
    actuator.set(&m.path("c"), "never").unwrap();
    drop(actuator);
    let writes: Vec<String> = m.kernel.writes().into_iter().map(|(_, value)| value).collect();
    assert_eq!(writes, ["2", "1", "3", "never", "madvise", "2", "N", "1"]);
    assert!(!m.state_dir().join(log::FILE_NAME).exists(), "nothing is left to put back");
}

#[test]
fn a_value_that_was_there_is_not_ours() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    assert_eq!(actuator.set(&m.path("b"), "false").unwrap(), Written::Already);
    assert_eq!(actuator.set(&m.path("c"), "madvise").unwrap(), Written::Already);
    assert!(actuator.restore().is_empty());
    assert!(m.kernel.writes().is_empty());
}

#[test]
fn after_a_crash_the_next_start_puts_back_what_is_still_ours() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    actuator.set(&m.path("a"), "2").unwrap();
    actuator.set(&m.path("b"), "1").unwrap();
    actuator.crash();
    // The kernel echoes its own form, and somebody else changed the other value.
    m.kernel.put(&m.path("b"), "Y");
    m.kernel.put(&m.path("a"), "7");
    let (_, report) = m.start();
    assert_eq!(fates(&report), [&Fate::PutBack, &Fate::NotOurs { found: "7".to_owned() }]);
    assert_eq!((m.value("a").as_str(), m.value("b").as_str()), ("7", "N"));
    assert!(report.to_string().contains("to put it back: echo 1 > "), "{report}");
    let (_, report) = m.start();
    assert!(report.is_empty(), "what was reported once is done with");
}

#[test]
fn a_value_of_an_earlier_boot_is_not_put_back() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    actuator.set(&m.path("a"), "2").unwrap();
    actuator.crash();
    m.boot("second-boot");
    let (_, report) = m.start();
    assert_eq!(fates(&report), [&Fate::OtherBoot]);
    assert_eq!(m.value("a"), "2");
}

#[test]
fn a_crash_loses_no_value_wherever_it_cuts_the_log() {
    // Each cut is the log as a crash leaves it: values are written only once their record is whole.
    let whole = {
        let m = Machine::new();
        let (mut actuator, _) = m.start();
        for (name, value) in [("a", "2"), ("b", "1"), ("a", "3")] {
            actuator.set(&m.path(name), value).unwrap();
        }
        actuator.crash();
        (fs::read(m.state_dir().join(log::FILE_NAME)).unwrap(), m.root.proc.clone())
    };
    let ends: Vec<usize> = (0..whole.0.len()).filter(|&i| whole.0[i] == b'\n').collect();
    let near_an_end = |cut: usize| cut == 0 || ends.iter().any(|&end| (end..=end + 2).contains(&cut));
    for cut in (0..=whole.0.len()).filter(|&cut| near_an_end(cut) || cut % 64 == 0) {
        let records = whole.0[..cut].iter().filter(|&&b| b == b'\n').count();
        // The write of the last whole record may or may not have happened.
        for written in records.saturating_sub(1)..=records {
            let m = Machine::new();
            let text = String::from_utf8(whole.0[..cut].to_vec()).unwrap();
            let mut log = String::new();
            for line in text.split_inclusive('\n') {
                log.push_str(&relocate(line, &whole.1, &m.root.proc));
            }
            let (mut actuator, _) = m.start();
            for (name, value) in [("a", "2"), ("b", "1"), ("a", "3")].into_iter().take(written) {
                actuator.set(&m.path(name), value).unwrap();
            }
            actuator.crash();
            let path = m.state_dir().join(log::FILE_NAME);
            let _ = fs::remove_file(&path);
            fs::write(&path, log).unwrap();
            let (actuator, report) = m.start();
            assert!(report.is_complete(), "cut {cut}, written {written}: {report}");
            drop(actuator);
            let values = (m.value("a"), m.value("b"));
            assert_eq!(values, ("1".to_owned(), "N".to_owned()), "cut {cut}, written {written}");
        }
    }
}

fn folder(path: &Path) -> Arc<Folder> {
    Arc::new(Folder::make(path).unwrap())
}

/// The same record for another machine's folder; a cut line stays cut.
fn relocate(line: &str, from: &Path, to: &Path) -> String {
    let contents = log::parse(line.as_bytes());
    let Some(entry) = contents.entries.first() else { return line.to_owned() };
    let mut entry = entry.clone();
    entry.path = to.join(entry.path.strip_prefix(from).unwrap());
    let dir = tempfile::tempdir().unwrap();
    log::RestoreLog::begin(&folder(dir.path()), &[entry]).unwrap();
    fs::read_to_string(dir.path().join(log::FILE_NAME)).unwrap()
}

#[test]
fn a_plan_whose_third_step_fails_leaves_nothing_behind() {
    let m = Machine::new();
    m.kernel.refuse(&m.path("c"), libc::EINVAL);
    let (mut actuator, _) = m.start();
    let error = actuator.apply(&m.plan(&[("a", "2"), ("b", "1"), ("c", "never")])).unwrap_err().to_string();
    assert!(error.contains("this kernel does not know the value"), "{error}");
    assert!(error.ends_with("the settings changed before it were put back"), "{error}");
    assert_eq!((m.value("a").as_str(), m.value("b").as_str()), ("1", "N"));
}

#[test]
fn a_value_that_the_kernel_bends_is_an_error_and_is_put_back() {
    let m = Machine::new();
    m.kernel.put(&m.path("d"), "10");
    m.kernel.clamp(&m.path("d"), "100");
    let (mut actuator, _) = m.start();
    let error = actuator.set(&m.path("d"), "5000").unwrap_err().to_string();
    assert!(error.starts_with("wrote 5000 to ") && error.contains("the kernel has 100"), "{error}");
    actuator.crash();
    m.kernel.clamp(&m.path("d"), "10");
    let (_, report) = m.start();
    assert_eq!(fates(&report), [&Fate::PutBack, &Fate::WasBack]);
    assert_eq!(m.value("d"), "10");
}

#[test]
fn what_cannot_be_put_back_stays_recorded_until_it_can() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    actuator.set(&m.path("a"), "2").unwrap();
    m.kernel.refuse(&m.path("a"), libc::EIO);
    let report = actuator.restore();
    assert!(!report.is_complete());
    assert!(report.to_string().contains("to try again: thermocline restore"), "{report}");
    actuator.crash();
    let (actuator, report) = m.start();
    assert!(matches!(fates(&report)[..], [Fate::Failed { .. }]));
    m.kernel.accept(&m.path("a"));
    drop(actuator);
    assert_eq!(m.value("a"), "1");
}

#[test]
fn nothing_is_written_that_cannot_be_recorded() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    // A folder in the log's place: it can neither be opened nor removed as a file.
    fs::create_dir(m.state_dir().join(log::FILE_NAME)).unwrap();
    let error = actuator.set(&m.path("a"), "2").unwrap_err();
    assert!(matches!(error, ActuatorError::Log(_)), "{error}");
    assert!(m.kernel.writes().is_empty());
}

#[test]
fn a_log_that_cannot_be_cut_down_keeps_no_value_from_being_put_back() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    actuator.set(&m.path("a"), "2").unwrap();
    let log = m.state_dir().join(log::FILE_NAME);
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    let report = actuator.restore();
    assert!(report.is_complete() && report.log_failure.is_some(), "{report}");
    assert_eq!(m.value("a"), "1");
    assert!(
        matches!(actuator.set(&m.path("a"), "2"), Err(ActuatorError::Log(_))),
        "still nothing unrecorded"
    );
    fs::remove_dir(&log).unwrap();
    actuator.set(&m.path("a"), "2").unwrap();
    actuator.crash();
    assert_eq!(fates(&m.start().1), [&Fate::PutBack]);
}

#[test]
fn only_settings_on_the_list_are_written_and_a_log_that_names_others_is_kept() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    let elsewhere = ["/etc/passwd", "/proc/sys/kernel/core_pattern"].map(PathBuf::from);
    let pattern = m.path("kernel/core_pattern");
    let others = [m.path("../../etc/passwd"), m.root.proc.join("1/oom_adj"), pattern.clone()];
    for path in elsewhere.iter().chain(&others) {
        m.kernel.put(path, "core");
        assert!(matches!(actuator.set(path, "1"), Err(ActuatorError::Outside(_))), "{}", path.display());
        assert!(matches!(actuator.foresee(path, "1"), Err(ActuatorError::Outside(_))));
    }
    actuator.set(&m.path("a"), "2").unwrap();
    actuator.crash();
    let mut entries = log::read(&m.state_dir()).unwrap().entries;
    entries.push(log::Entry {
        path: pattern.clone(),
        old: "|/tmp/evil".into(),
        ours: "core".into(),
        ..entries[0].clone()
    });
    log::RestoreLog::begin(&folder(&m.state_dir()), &entries).unwrap();
    let planted = fs::read(m.state_dir().join(log::FILE_NAME)).unwrap();
    let (_actuator, report) = m.start();
    assert_eq!(fates(&report), [&Fate::NotASetting, &Fate::PutBack]);
    assert_eq!(m.kernel.get(&pattern).unwrap(), "core");
    let kept = report.kept_aside.clone().unwrap();
    assert_eq!(fs::read(&kept).unwrap(), planted);
    assert!(report.to_string().contains(&kept.display().to_string()), "{report}");
}

#[test]
fn a_damaged_log_is_followed_where_it_can_be_and_kept() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    actuator.set(&m.path("a"), "2").unwrap();
    actuator.crash();
    let log = m.state_dir().join(log::FILE_NAME);
    let damaged = [b"half of a reco\n".to_vec(), fs::read(&log).unwrap()].concat();
    fs::write(&log, &damaged).unwrap();
    let (actuator, report) = m.start();
    assert_eq!((fates(&report), report.damaged_lines.clone()), (vec![&Fate::PutBack], vec![1]));
    drop(actuator);
    assert!(!log.exists());
    assert_eq!(fs::read(report.kept_aside.unwrap()).unwrap(), damaged);
    assert!(m.start().1.is_empty());
}

#[test]
fn kdamonds_that_no_record_tells_of_are_switched_off_before_their_number_is_put_back() {
    let m = Machine::new();
    let folder = kdamonds(&m.root);
    let (number, state) = (folder.join("nr_kdamonds"), folder.join("1/state"));
    m.kernel.put(&number, "0");
    let (mut actuator, _) = m.start();
    actuator.set(&number, "2").unwrap();
    m.kernel.put(&folder.join("0/state"), "off");
    m.kernel.put(&state, "on");
    actuator.crash();
    let before = m.kernel.writes().len();
    let (_actuator, report) = m.start();
    assert_eq!(fates(&report), [&Fate::PutBack]);
    assert_eq!(m.kernel.writes()[before..], [(state, "off".to_owned()), (number, "0".to_owned())]);
}

#[test]
fn a_daemon_that_has_put_all_back_for_good_holds_nothing_up() {
    let m = Machine::new();
    let (mut hung, _) = m.start();
    hung.set(&m.path("a"), "2").unwrap();
    m.kernel.refuse(&m.path("a"), libc::EIO);
    assert!(!hung.end().is_complete());
    assert!(matches!(Lock::acquire(&m.root, &m.state_dir()), Err(LockError::Held { .. })));
    m.kernel.accept(&m.path("a"));
    assert!(hung.end().is_complete());
    let (mut next, report) = m.start();
    assert!(report.is_empty());
    next.set(&m.path("b"), "1").unwrap();
    assert!(matches!(hung.set(&m.path("a"), "2"), Err(ActuatorError::TakenOver)));
    drop(hung);
    assert_eq!(log::read(&m.state_dir()).unwrap().entries.len(), 1);
}

/// An owner that has set `a` and `b`, and its deputy.
fn with_deputy(m: &Machine) -> (Actuator, Deputy) {
    let (mut actuator, _) = m.start();
    actuator.set(&m.path("a"), "2").unwrap();
    actuator.set(&m.path("b"), "1").unwrap();
    let deputy = actuator.deputy_with(Box::new(m.kernel.clone())).unwrap();
    (actuator, deputy)
}

#[test]
fn a_deputy_puts_all_back_once_and_its_owner_changes_nothing_after_it() {
    let m = Machine::new();
    let (mut actuator, mut deputy) = with_deputy(&m);
    // A value that somebody else has set stays theirs.
    m.kernel.put(&m.path("b"), "9");
    let report = deputy.restore().unwrap();
    assert_eq!(fates(&report), [&Fate::NotOurs { found: "9".to_owned() }, &Fate::PutBack]);
    assert_eq!((m.value("a"), m.value("b")), ("1".to_owned(), "9".to_owned()));
    assert!(deputy.restore().is_none(), "once");
    // The lock is free, and another daemon begins.
    let (mut other, left) = m.start();
    assert!(left.is_empty(), "{left}");
    other.set(&m.path("a"), "5").unwrap();
    // The owner gets to it after all.
    assert!(matches!(actuator.set(&m.path("a"), "3"), Err(ActuatorError::TakenOver)));
    assert!(matches!(actuator.adjust(&m.path("a"), "3"), Err(ActuatorError::TakenOver)));
    assert!(actuator.end().is_empty());
    drop(actuator);
    assert_eq!(m.value("a"), "5");
    assert_eq!(log::read(&m.state_dir()).unwrap().entries.len(), 1, "the other's record stands");
}

#[test]
fn what_its_deputy_cannot_put_back_stays_recorded() {
    let m = Machine::new();
    let (actuator, mut deputy) = with_deputy(&m);
    m.kernel.refuse(&m.path("a"), libc::EIO);
    let report = deputy.restore().unwrap();
    assert!(!report.is_complete());
    drop(actuator);
    assert_eq!(log::read(&m.state_dir()).unwrap().entries.len(), 1);
}

#[test]
fn a_deputy_has_nothing_to_do_where_its_owner_has_ended() {
    let m = Machine::new();
    let (mut actuator, mut deputy) = with_deputy(&m);
    assert!(actuator.end().is_complete());
    let (mut other, _) = m.start();
    other.set(&m.path("a"), "5").unwrap();
    assert!(deputy.restore().is_none());
    assert_eq!(m.value("a"), "5");
}

#[test]
fn an_owner_and_its_deputy_that_end_at_once_leave_the_values_that_were_there() {
    for round in 0..50u32 {
        let m = Machine::new();
        let (mut actuator, mut deputy) = with_deputy(&m);
        let (d, a) = (m.path("d"), m.path("a"));
        m.kernel.put(&d, "7");
        let start = Arc::new(std::sync::Barrier::new(2));
        let theirs = Arc::clone(&start);
        let other = std::thread::spawn(move || {
            theirs.wait();
            deputy.restore()
        });
        start.wait();
        for value in 0..round {
            // From some moment on it is refused.
            let _ = actuator.set(if value % 2 == 0 { &d } else { &a }, &(100 + value).to_string());
        }
        actuator.end();
        drop(actuator);
        other.join().unwrap();
        assert_eq!([m.value("a"), m.value("b"), m.value("d")], ["1", "N", "7"], "round {round}");
        assert!(log::read(&m.state_dir()).unwrap().entries.is_empty(), "round {round}");
    }
}

fn at(seconds: u64) -> Nanos {
    Nanos::from_s(seconds)
}

#[test]
fn a_setting_is_set_again_some_times_a_minute_and_the_others_value_is_put_back() {
    let m = Machine::new();
    let (mut actuator, _) = m.start();
    actuator.set(&m.path("d"), "0").unwrap_err();
    m.kernel.put(&m.path("d"), "65536");
    actuator.set(&m.path("d"), "0").unwrap();
    actuator.set(&m.path("a"), "2").unwrap();
    let look = |actuator: &mut Actuator, s| actuator.look_after(at(s), WhenChanged::SetAgain);
    for s in 1..=3 {
        m.kernel.put(&m.path("a"), "0");
        assert!(look(&mut actuator, s)[0].contains("set to 2 again, and 0 is put back at the end"));
        assert_eq!(m.value("a"), "2");
    }
    // After a crash at any point, the other's value is put back, and it is reported only once.
    actuator.crash();
    let (mut actuator, report) = m.start();
    assert_eq!(fates(&report), [&Fate::PutBack, &Fate::PutBack]);
    assert_eq!((m.value("a").as_str(), m.value("d").as_str()), ("0", "65536"));

    actuator.set(&m.path("a"), "2").unwrap();
    for s in 4..=6 {
        m.kernel.put(&m.path("a"), "1");
        assert_eq!(look(&mut actuator, s).len(), 1);
    }
    m.kernel.put(&m.path("a"), "1");
    assert!(look(&mut actuator, 7)[0].contains("left so from here on"));
    assert!((8..200).all(|s| look(&mut actuator, s).is_empty()));
    assert_eq!(actuator.settings_stats(), SettingsStats { changed_by_others: 4, set_again: 3, left: 1 });
    assert_eq!(m.value("a"), "1");
    assert_eq!(fates(&actuator.restore()), [&Fate::WasBack]);
}

#[test]
fn kdamonds_of_another_are_not_ended_to_have_ours_again_and_our_own_changes_are_no_others() {
    let m = Machine::new();
    let number = kdamonds(&m.root).join("nr_kdamonds");
    m.kernel.put(&number, "0");
    let (mut actuator, _) = m.start();
    actuator.set(&number, "2").unwrap();
    actuator.set(&m.path("a"), "2").unwrap();
    actuator.adjust(&m.path("a"), "3").unwrap();
    m.kernel.put(&number, "1");
    let told = actuator.look_after(at(1), WhenChanged::SetAgain);
    assert!(told.len() == 1 && told[0].contains("left so"), "{told:?}");
    assert_eq!(m.kernel.get(&number).unwrap(), "1");
}

/// A folder with the settings of Linux 6.12.
fn settings(root: &Root) {
    let mm = root.sys.join("kernel/mm/numa");
    let sched = root.debugfs().join("sched/numa_balancing");
    for folder in [&mm, &sched] {
        fs::create_dir_all(folder).unwrap();
    }
    let kernel = root.proc.join("sys/kernel");
    fs::write(kernel.join("numa_balancing"), "1\n").unwrap();
    fs::write(kernel.join("numa_balancing_promote_rate_limit_MBps"), "65536\n").unwrap();
    fs::write(sched.join("scan_size_mb"), "256\n").unwrap();
    fs::write(mm.join("demotion_enabled"), "false\n").unwrap();
}

#[test]
fn a_plan_tells_the_changes_in_order_and_how_to_undo_them() {
    let m = Machine::new();
    settings(&m.root);
    let config = Kernel { scan_size_mb: Some(256), demotion_enabled: Some(true), ..Kernel::default() };
    let plan = plan(&m.root, &config).unwrap();
    let names: Vec<&str> = plan.changes.iter().map(|c| c.name).collect();
    assert_eq!(names, ["numa_balancing_promote_rate_limit_MBps", "demotion_enabled", "numa_balancing"]);
    let text = plan.to_string();
    assert!(text.contains("numa_balancing: 1 -> 2 ("), "{text}");
    assert!(text.contains(&format!("undo: echo 65536 > {}", plan.changes[0].path.display())), "{text}");

    let mut dry = Actuator::dry_run(&m.root);
    dry.apply(&plan).unwrap();
    drop(dry);
    assert_eq!(fs::read_to_string(&plan.changes[2].path).unwrap(), "1\n", "a dry run writes nothing");

    let lock = Lock::acquire(&m.root, &m.state_dir()).unwrap();
    let (mut live, _) = Actuator::live(&m.root, lock).unwrap();
    live.apply(&plan).unwrap();
    assert_eq!(fs::read_to_string(&plan.changes[1].path).unwrap(), "true\n");
    assert!(super::plan(&m.root, &config).unwrap().changes.is_empty());
    drop(live);
    assert_eq!(fs::read_to_string(&plan.changes[0].path).unwrap(), "65536\n");
}

#[test]
fn restore_by_hand_puts_back_and_refuses_beside_a_daemon() {
    let m = Machine::new();
    settings(&m.root);
    let numa_balancing = m.root.proc.join("sys/kernel/numa_balancing");
    let lock = Lock::acquire(&m.root, &m.state_dir()).unwrap();
    let (mut live, _) = Actuator::live(&m.root, lock).unwrap();
    live.set(&numa_balancing, "2").unwrap();
    assert!(matches!(restore(&m.root, &m.state_dir()), Err(restore::RestoreError::Lock(_))));
    live.crash();
    let report = restore(&m.root, &m.state_dir()).unwrap();
    assert_eq!(fates(&report), [&Fate::PutBack]);
    assert_eq!(fs::read_to_string(&numa_balancing).unwrap(), "1\n");
}

#[test]
fn a_setting_that_the_kernel_lacks_says_what_to_do() {
    let m = Machine::new();
    let error = plan(&m.root, &Kernel::default()).unwrap_err();
    assert!(matches!(error, KernelFileError::NotSupported { .. }));
    settings(&m.root);
    let config = Kernel {
        scan_size_mb: None,
        scan_period_min_ms: None,
        scan_period_max_ms: None,
        scan_delay_ms: Some(100),
        ..Kernel::default()
    };
    let skipped = || plan(&m.root, &config).unwrap().skipped[0].to_string();
    assert!(skipped().starts_with("scan_delay_ms: left as it is instead of 100: "), "{}", skipped());
    assert!(skipped().contains("CONFIG_SCHED_DEBUG"), "{}", skipped());
    fs::remove_dir_all(m.root.debugfs()).unwrap();
    assert!(
        skipped().ends_with("debugfs is not mounted: mount -t debugfs none /sys/kernel/debug"),
        "{}",
        skipped()
    );
    let without_debugfs = plan(&m.root, &config).unwrap();
    assert_eq!(without_debugfs.changes.len(), 2, "what is needed is set all the same");
    let sysctl = m.root.proc.join("sys/kernel/numa_balancing_scan_delay_ms");
    fs::write(&sysctl, "1000\n").unwrap();
    let found = plan(&m.root, &config).unwrap();
    assert!(found.changes.iter().any(|c| c.path == sysctl), "where kernels before 5.13 keep it");
}
