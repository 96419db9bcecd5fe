//! How a recording ends: by its size, by a full disk, by a disk that does not keep up.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use thermocline_core::access::{Access, Detail, Evidence, NoMappings};
use thermocline_core::machine::Machine;
use thermocline_core::moves::Batch;
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, TierId, VirtPage};
use thermocline_trace::reader::Recording;
use thermocline_trace::recorder::{Recorder, Summary};
use thermocline_trace::writer::{About, Limits};

use crate::faulty::mix;
use crate::machines::patient;

/// Accesses of a step.
const ACCESSES: u64 = 20_000;

/// A machine whose every poll reports accesses to random pages.
struct Busy(u64);

impl Machine for Busy {
    type Error = Infallible;

    fn poll(&mut self, now: Nanos, _: bool, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<(), Infallible> {
        let access = |n| {
            let random = mix(self.0 * ACCESSES + n);
            Access {
                time: Nanos(now.0 + n),
                pfn: Some(Pfn(random % (1 << 30))),
                page: Some(VirtPage { pid: Pid(1), vpn: mix(random) % (1 << 36) }),
                order: 0,
                node: NodeId(1),
                accessor: None,
                detail: Detail::HintFault { latency: None },
            }
        };
        let batch: Vec<Access> = (0..ACCESSES).map(access).collect();
        self.0 += 1;
        observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
        Ok(())
    }

    fn nodes(&mut self, _: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        Ok(&[])
    }

    fn submit(&mut self, _: Vec<Batch>) {}
}

fn about() -> About {
    let node = Node {
        id: NodeId(1),
        tier: TierId(0),
        cpus: vec![0, 1],
        capacity_pages: 1 << 30,
        read_latency_ns: Some(100),
        read_bandwidth_mbps: None,
        distances: vec![10],
    };
    About { settings: Vec::new(), topology: Topology::new(vec![node]).expect("a sound node") }
}

/// Records `steps` steps, a second each; returns why it ended and what it came to.
fn run(folder: &Path, limits: Limits, steps: u64) -> (Vec<String>, Summary) {
    let mut recorder = Recorder::start(folder, about(), limits, false).expect("it is empty");
    let mut machine = Busy(0);
    let mut ends = Vec::new();
    for step in 0..steps {
        let mut shown = 0;
        let now = Nanos::from_s(100 + step);
        let Ok(()) = recorder.over(&mut machine).poll(now, true, &mut |evidence| {
            if let Evidence::Accesses { batch, .. } = evidence {
                shown += batch.len() as u64;
            }
        });
        assert_eq!(shown, ACCESSES, "the run goes on");
        ends.extend(recorder.report_end());
    }
    // The thread may find out after the last step.
    for _ in 0..200 {
        if !ends.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
        ends.extend(recorder.report_end());
    }
    (ends, recorder.finish())
}

fn size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).expect("it can be read");
    files.map(|file| file.and_then(|file| file.metadata()).expect("it can be read").len()).sum()
}

/// Pieces that can be read, and events that are missing.
fn pieces(folder: &Path) -> (u64, u64) {
    let recording = Recording::open(folder).expect("it is a recording");
    let mut reader = recording.read();
    let mut pieces = 0;
    while let Some((_, _, piece)) = reader.next_event() {
        pieces += piece.pieces();
    }
    assert!(reader.damages().is_empty(), "{:?}", reader.damages());
    (pieces, reader.missing())
}

#[test]
fn at_its_size_it_ends_and_what_was_recorded_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let max = 4 << 20;
    let limits = Limits { max_bytes: Some(max), flush: Duration::from_secs(1), ..patient() };
    let (ends, summary) = run(folder.path(), limits, 60);
    assert_eq!(ends.len(), 1, "it says so once: {ends:?}");
    assert!(ends[0].contains("the run goes on") && ends[0].contains("4194304 bytes"), "{ends:?}");
    assert!(summary.ended.is_some());
    let size = size(folder.path());
    assert!((max / 2..=max).contains(&size), "{size}");
    assert_eq!(size, summary.stats.bytes);
    let (pieces, missing) = pieces(folder.path());
    assert!(pieces > 0 && missing == 0, "{pieces} {missing}");
}

#[test]
fn what_is_older_than_it_is_to_be_kept_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let keep = Duration::from_secs(10);
    let limits = Limits { keep: Some(keep), flush: Duration::from_secs(1), ..patient() };
    let (ends, summary) = run(folder.path(), limits, 60);
    assert!(ends.is_empty() && summary.ended.is_none(), "{ends:?}");
    assert!(summary.stats.parts_removed > 30, "{:?}", summary.stats);
    let recording = Recording::open(folder.path()).expect("it is a recording");
    assert!(!recording.has_beginning());
    let (first, last) = (recording.parts()[0].last_ns, recording.parts().last().expect("a part").last_ns);
    assert!((9..=12).contains(&(last.since(first).0 / 1_000_000_000)), "{first:?} to {last:?}");
    assert_eq!(size(folder.path()), summary.stats.bytes);

    // Of its last part nothing is missing, and what is before is not read.
    let part = recording.last(Nanos::from_s(5)).expect("it can be read");
    let mut reader = part.read();
    let mut times = Vec::new();
    while let Some((_, head, _)) = reader.next_event() {
        times.push(head.time);
    }
    assert_eq!((times.first(), times.last()), (Some(&Nanos(last.0 - 5_000_000_000)), Some(&last)));
    assert_eq!((reader.missing(), part.from()), (0, times.first().copied()));
}

#[test]
fn with_rotation_the_newest_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let max = 4 << 20;
    let limits = Limits { max_bytes: Some(max), rotate: true, flush: Duration::from_secs(1), ..patient() };
    let (ends, summary) = run(folder.path(), limits, 60);
    assert!(ends.is_empty(), "{ends:?}");
    assert_eq!(summary.ended, None);
    assert!(summary.stats.parts_removed > 0);
    let size = size(folder.path());
    assert!((max / 2..=max).contains(&size), "{size}");
    let recording = Recording::open(folder.path()).expect("it is a recording");
    let last = recording.parts().last().expect("it has parts");
    assert_eq!(last.last_ns, Nanos::from_s(159), "the end is there");
    assert_eq!(recording.topology().nodes.len(), 1, "every part says what machine it was");
    let (_, missing) = pieces(folder.path());
    assert_eq!(missing, recording.parts()[0].first_event, "and says how much is missing before it");
}

#[test]
fn what_the_disk_does_not_keep_up_with_is_lost_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { backlog_bytes: Some(1), ..Limits::default() };
    let (ends, summary) = run(folder.path(), limits, 60);
    assert!(ends.is_empty(), "{ends:?}");
    assert!(summary.stats.lost > 0, "a queue of one byte cannot suffice: {summary:?}");
    let (pieces, missing) = pieces(folder.path());
    assert_eq!(pieces + summary.stats.lost, 60 * ACCESSES);
    assert!(missing > 0);
    let recording = Recording::open(folder.path()).expect("it is a recording");
    let mut reader = recording.read();
    while reader.missing() == 0 && reader.next_event().is_some() {}
    assert!(reader.incomplete_from().is_some_and(|event| event > 0), "from where on it is incomplete");
}

/// Runs this test program again in a mount namespace of its own, with a file system of 1 MiB.
#[test]
fn on_a_full_disk_it_ends_and_the_run_goes_on() {
    if let Some(folder) = std::env::var_os("THERMOCLINE_FULL_DISK") {
        let folder = Path::new(&folder).join("trace");
        let limits = Limits { flush: Duration::from_secs(1), ..patient() };
        let (ends, summary) = run(&folder, limits, 40);
        assert_eq!(ends.len(), 1, "it says so once: {ends:?}");
        assert!(ends[0].contains("cannot be written") && ends[0].contains("space"), "{ends:?}");
        assert!(summary.ended.is_some());
        let (pieces, missing) = pieces(&folder);
        assert!(pieces > 0 && missing == 0, "what was written before is whole");
        assert_eq!(summary.stats.pieces, pieces, "what is not on disk does not count");
        assert!(Recording::open(&folder).expect("it is whole").left_out().is_empty(), "no torn file");
        println!("the disk was full");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let test = std::env::current_exe().expect("this program");
    let script = "mount -t tmpfs -o size=1m none \"$THERMOCLINE_FULL_DISK\" && exec \"$0\" \"$@\"";
    // As root without a user namespace, which a container may refuse.
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let possible = |way: &&&[&str]| {
        Command::new("unshare").args(**way).arg("true").status().is_ok_and(|status| status.success())
    };
    let way = ways.iter().find(possible).expect("a mount namespace, as root or in a user namespace");
    let output = Command::new("unshare")
        .args(*way)
        .args(["sh", "-c", script])
        .arg(test)
        .args(["on_a_full_disk_it_ends_and_the_run_goes_on", "--nocapture"])
        .env("THERMOCLINE_FULL_DISK", folder.path())
        .output()
        .expect("unshare was there before");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("the disk was full"), "{said}");
}

/// A process that records is killed at random moments. What it had finished is whole.
#[test]
fn after_a_kill_everything_up_to_the_last_flush_is_whole() {
    if let Some(folder) = std::env::var_os("THERMOCLINE_KILLED") {
        let limits = Limits { flush: Duration::from_secs(1), ..patient() };
        run(Path::new(&folder), limits, u64::MAX);
        return;
    }
    let test = std::env::current_exe().expect("this program");
    let mut torn = 0;
    for seed in 0..20u64 {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(&test)
            .args(["after_a_kill_everything_up_to_the_last_flush_is_whole", "--nocapture"])
            .env("THERMOCLINE_KILLED", folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("this program runs");
        let begun = || fs::read_dir(folder.path()).is_ok_and(|files| files.count() > 6);
        while !begun() {
            assert!(
                child.try_wait().expect("it can be asked").is_none(),
                "seed {seed}: it has ended by itself"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(mix(seed) % 30_000));
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
        let (pieces, missing) = pieces(folder.path());
        assert!(pieces > 0 && missing == 0, "seed {seed}: {pieces} pieces, {missing} missing");
        let recording = Recording::open(folder.path()).expect("it is a recording");
        torn += usize::from(!recording.left_out().is_empty());
        // Each part is what it says, and nothing that is not named as torn is left out.
        let whole: u64 = recording.parts().iter().map(|part| part.pieces).sum();
        assert_eq!(pieces, whole, "seed {seed}");
    }
    assert!(torn > 0, "no kill came while a part was written");
}
