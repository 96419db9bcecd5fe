//! Tests of the mappings that DAMON watches.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use super::*;
use crate::actuator::door::Door;

/// A kdamond that is on and watches process 7.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Vec<String>>>);

impl Door for Fake {
    fn read(&self, path: &Path) -> io::Result<String> {
        Ok(if path.ends_with("pid_target") { "7\n" } else { "on\n" }.to_owned())
    }

    fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let name = path.iter().rev().take(2).map(|n| n.to_str().unwrap()).collect::<Vec<_>>();
        self.0.lock().unwrap().push(format!("{}/{}={value}", name[1], name[0]));
        Ok(())
    }

    fn reaches_kernel(&self) -> bool {
        true
    }
}

const SEVEN: Who = (Pid(7), 1);

fn keys(sample_lengths: u64) -> Keys {
    Keys { regions_max: 100, aggregation_ms: 1000, sample_lengths, ..Keys::default() }
}

struct Machine {
    dir: tempfile::TempDir,
    mapped: Mapped,
    kernel: Fake,
    now: Nanos,
    /// The time between two checks after the last job, in ms, if it was to set one.
    turned: Option<u64>,
}

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let mapped = Mapped::new(&Root::at(dir.path()), &keys(1));
        Machine { dir, mapped, kernel: Fake::default(), now: Nanos(0), turned: None }
    }

    /// Sets the mappings of a process, and its number of pages.
    fn maps(&self, pid: u32, text: &str, pages: u64) {
        let folder = self.dir.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("maps"), text).unwrap();
        let stat = format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 1000 {pages} 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
    }

    fn step(&mut self) {
        let (root, kernel) = (Root::at(self.dir.path()), self.kernel.clone());
        self.mapped.step(self.now, move || Some(Commands::with_door(&root, Box::new(kernel))));
    }

    /// The result of the only job due after this many seconds, and the writes.
    #[allow(clippy::type_complexity)]
    fn after(&mut self, seconds: u64) -> (Option<(usize, Who, Result<(), NotTold>)>, Vec<String>) {
        self.now = self.now.plus(Nanos::from_s(seconds));
        self.step();
        let start = Instant::now();
        loop {
            let taken = self.mapped.take();
            if !self.mapped.is_busy() {
                self.turned =
                    taken.as_ref().and_then(|taken| taken.turned.as_ref()).map(|keys| keys.sample_ms);
                let first = taken.and_then(|taken| Some((taken.kdamond, taken.first?)));
                let told = first.map(|(kdamond, (who, told))| (kdamond, who, told));
                return (told, std::mem::take(&mut *self.kernel.0.lock().unwrap()));
            }
            assert!(start.elapsed() < Duration::from_secs(20), "it does not come to an end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_kdamond_is_told_before_it_begins_and_again_when_a_heap_grows() {
    let mut m = Machine::new();
    m.maps(7, "10000000-14000000 rw-p 0 0:0 0 [heap]\n", 0x2000);
    m.mapped.add(3, SEVEN);
    assert_eq!(m.mapped.watched(), (vec![], 0), "nothing is watched yet");
    assert!(m.mapped.is_preparing());
    let (told, written) = m.after(0);
    assert!(matches!(told, Some((3, SEVEN, Ok(())))), "{told:?}");
    // 64 MiB in 25 pieces, and nothing that switches it on.
    assert_eq!((written[0].as_str(), written[1].as_str()), ("regions/nr_regions=25", "0/start=268435456"));
    assert_eq!((written.len(), written[50].as_str()), (2 * 25 + 1, "24/end=335544320"));
    let watched = |mapped_bytes, watched_bytes, ranges| Watched {
        pid: Pid(7),
        mapped_bytes,
        watched_bytes,
        resident_bytes: 0x200_0000,
        ranges,
    };
    assert_eq!(m.mapped.watched(), (vec![watched(0x400_0000, 0x400_0000, 1)], 0));
    assert!(!m.mapped.is_preparing());

    assert_eq!(m.after(5).1, [""; 0], "nothing has changed");
    m.maps(7, "700000-800000 rw-p 0 0:0 0\n10000000-18000000 rw-p 0 0:0 0 [heap]\n", 0x2000);
    assert_eq!(m.after(4).1, [""; 0], "too soon");
    let (told, written) = m.after(1);
    assert!(told.is_none(), "it runs already: {told:?}");
    // Ranges watched before stay whole, and the rest is in pieces.
    assert!(
        written.contains(&"1/start=268435456".to_owned()) && written.contains(&"1/end=335544320".to_owned())
    );
    assert_eq!(written[0], format!("regions/nr_regions={}", written.len() / 2 - 1));
    assert_eq!(written.last().unwrap(), "3/state=commit");
    assert_eq!(m.mapped.watched(), (vec![watched(0x810_0000, 0x810_0000, 2)], 1));
    assert_eq!(m.after(5).1, [""; 0]);
    m.mapped.ended(3);
    assert_eq!(m.mapped.watched(), (vec![], 1));
}

#[test]
fn the_time_between_two_checks_takes_turns() {
    let mut m = Machine::new();
    m.mapped = Mapped::new(&Root::at(m.dir.path()), &keys(5));
    m.maps(7, "10000000-14000000 rw-p 0 0:0 0 [heap]\n", 0x2000);
    m.mapped.add(3, SEVEN);
    let (told, written) = m.after(0);
    assert!(matches!(told, Some((3, SEVEN, Ok(())))), "{told:?}");
    assert_eq!(written[written.len() - 2..], ["intervals/sample_us=5000", "intervals/aggr_us=40000"]);
    let mut turn = |seconds| (m.after(seconds).1, m.turned);
    let set = |sample_us, aggr_us, ms| {
        let written = [("intervals/sample_us", sample_us), ("intervals/aggr_us", aggr_us)];
        let written = written.map(|(file, us): (&str, u64)| format!("{file}={us}"));
        (written.into_iter().chain(["3/state=commit".to_owned()]).collect::<Vec<_>>(), Some(ms))
    };
    assert_eq!(turn(2), set(20_000, 160_000, 20));
    assert_eq!(turn(2), set(80_000, 640_000, 80));
    assert_eq!(turn(3), (vec![], None), "five of its aggregations take longer");
    assert_eq!(turn(1), set(320_000, 1_000_000, 320));
    assert_eq!(turn(5), set(1_280_000, 2_560_000, 1280));
    assert_eq!(turn(13), set(5000, 40_000, 5));
    // One that watches somebody else meanwhile keeps its intervals.
    m.maps(8, "10000000-14000000 rw-p 0 0:0 0 [heap]\n", 1);
    m.mapped.ended(3);
    m.mapped.add(3, (Pid(8), 1));
    m.after(5);
    assert_eq!((m.after(5).1, m.turned), (vec![], Some(5)));
}

#[test]
fn what_watches_somebody_else_meanwhile_is_left_alone() {
    let mut m = Machine::new();
    m.maps(8, "10000000-14000000 rw-p 0 0:0 0 [heap]\n", 1);
    m.mapped.add(3, (Pid(8), 1));
    assert_eq!(m.after(0).1.len(), 51);
    m.maps(8, "10000000-18000000 rw-p 0 0:0 0 [heap]\n", 1);
    assert_eq!(m.after(5).1, [""; 0], "the kdamond says that it watches process 7");
}

#[test]
fn who_has_ended_or_has_nothing_mapped_is_not_watched() {
    let mut m = Machine::new();
    m.maps(8, "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n", 1);
    for pid in [8, 9] {
        m.mapped.add(3, (Pid(pid), 1));
        let (told, written) = m.after(0);
        assert!(matches!(told, Some((3, _, Err(NotTold::Nothing)))) && written.is_empty(), "{told:?}");
        m.mapped.ended(3);
    }
    // A process that ends while it is read, and whose kdamond has another by then.
    m.maps(7, "10000000-14000000 rw-p 0 0:0 0 [heap]\n", 1);
    m.mapped.add(3, SEVEN);
    m.step();
    m.mapped.ended(3);
    m.mapped.add(3, (Pid(8), 1));
    assert!(m.after(0).0.is_none());
    assert!(matches!(m.after(0).0, Some((3, (Pid(8), 1), Err(NotTold::Nothing)))));
}

#[test]
fn who_hangs_keeps_neither_the_loop_waiting_nor_others_for_long() {
    let mut m = Machine::new();
    let root = Root::at(m.dir.path());
    let (end, until): (Sender<()>, _) = channel();
    let until = Mutex::new(until);
    let read = move |pid: Pid, most: usize| {
        if pid == Pid(4_000_017) {
            until.lock().unwrap().recv().unwrap_or_default();
        }
        Ranges::read(&b"10000000-14000000 rw-p 0 0:0 0 [heap]\n"[..], most)
    };
    let aside = Aside::new(&root, "a test read its mappings", Duration::from_millis(300));
    m.mapped = Mapped::with(&root, aside, Arc::new(read), &keys(1));
    let hung = (Pid(4_000_017), 1);
    m.mapped.add(0, hung);
    m.mapped.add(1, SEVEN);
    let start = Instant::now();
    m.step();
    assert!(m.mapped.is_busy() && m.mapped.take().is_none());
    assert!(start.elapsed() < Duration::from_millis(250), "{:?}", start.elapsed());
    let (told, written) = m.after(0);
    assert!(matches!(told, Some((0, who, Err(NotTold::Hung))) if who == hung), "{told:?}");
    assert!(written.is_empty());
    m.mapped.ended(0);
    assert!(matches!(m.after(0).0, Some((1, SEVEN, Ok(())))));
    // Set aside: it is not awaited again.
    m.mapped.add(0, hung);
    let start = Instant::now();
    assert!(matches!(m.after(0).0, Some((0, _, Err(NotTold::Hung)))));
    assert!(start.elapsed() < Duration::from_millis(250), "{:?}", start.elapsed());
    drop(end);
}
