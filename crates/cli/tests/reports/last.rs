//! The last part of a recording, and of one that a daemon makes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use thermocline_core::counters::Counters;
use thermocline_core::engine::Engine;
use thermocline_core::journal::What;
use thermocline_core::label::Label;
use thermocline_core::moves::Direction;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, NodeId};
use thermocline_trace::digest::Span;
use thermocline_trace::piece::Piece;
use thermocline_trace::reader::Recording;
use thermocline_trace::recorder::Recorder;
use thermocline_trace::replay::watched;
use thermocline_trace::writer::{About, Limits};

use super::broken::topology;
use super::*;

fn open(folder: &Path) -> Recording {
    Recording::open(folder).expect("it is a recording")
}

/// What the recorded engine counted from a moment on.
fn counted_from(folder: &Path, from: Nanos) -> Counters {
    let recording = open(folder);
    let config = recording.config().expect("it has one");
    let mut before = Counters::default();
    let mut watch = |time: Nanos, engine: &Engine| {
        if time < from {
            before = engine.counters().clone();
        }
    };
    let done = watched(&recording, &config, &Ok, &mut |_, _| {}, &mut watch).expect("it is replayed");
    done.driver.engine().counters().since(&before)
}

/// Base pages promoted from a moment on, as far as decisions are recorded.
fn promoted_from(folder: &Path, from: Nanos) -> u64 {
    let recording = open(folder);
    let mut events = recording.read();
    let mut pages = 0;
    while let Some((_, head, piece)) = events.next_event() {
        let Piece::Decisions(decisions) = piece else { continue };
        let moved = |d: &&thermocline_core::journal::Decision| {
            head.time >= from && matches!(d.what, What::Moved { .. }) && d.direction == Direction::Promote
        };
        pages += decisions.iter().filter(moved).map(|d| u64::from(d.pages)).sum::<u64>();
    }
    pages
}

/// The middle of a recording, and the time from there to its end as an option.
fn half(folder: &Path) -> (Nanos, String) {
    let span = Span::of(&open(folder));
    let half = span.end.since(span.start).0 / 2;
    (Nanos(span.end.0 - half), format!("--last={half}ns"))
}

#[test]
fn the_last_part_counts_what_the_engine_counted_in_that_time() {
    let (_dir, folder) = folder("it.trace");
    record(&folder, &["--rule=adaptive", "--mode=event", "--set=config.admission.rate_limit_mbps=1"]);
    let (from, last) = half(&folder);
    let page = page_of(&folder, &[&last]);
    let counters = counted_from(&folder, from);
    let moved = |name: &str| number(&row(&page, "moved", name)[1]);
    assert!(counters.pgpromote_success > 100, "{}", counters.pgpromote_success);
    assert_eq!(moved("promoted"), Some(counters.pgpromote_success));
    assert_eq!(moved("promoted"), Some(promoted_from(&folder, from)));
    assert_eq!(moved("demoted, page by page"), Some(counters.pgdemote));
    assert_eq!(moved("demoted by the kernel's reclaim, on demand"), Some(counters.demotion_done));
    assert_eq!(moved("came back: accessed below again soon after"), Some(counters.came_back));
    let faults = number(&row(&page, "sources-table", "hintfault")[1]);
    assert_eq!(faults, Some(counters.numa_hint_faults));
    let mut wanted: Vec<(String, String, u64)> = Vec::new();
    for (what, by) in
        [("refused", &counters.refused), ("held", &counters.held), ("expired", &counters.expired)]
    {
        wanted.extend(by.iter().map(|(reason, n)| (what.to_owned(), reason.name().to_owned(), n)));
    }
    wanted.extend(counters.failed.iter().map(|(o, n)| ("failed".to_owned(), o.name().to_owned(), n)));
    wanted.retain(|(_, _, n)| *n > 0);
    let found = rows(&page, "refusals-table");
    let mut found: Vec<(String, String, u64)> = found
        .iter()
        .map(|row| (row[0].clone(), row[1].clone(), number(&row[2]).expect("a number")))
        .collect();
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
    assert!(row(&page, "about", "shown")[1].starts_with("the last "), "{:?}", row(&page, "about", "shown"));
    assert!(answer(&page).starts_with("In the last "), "{}", answer(&page));
    assert!(!page.contains("Not all of it is here"), "what is before was not asked for");
    // More than there is, is all of it.
    let all = page_of(&folder, &["--last=10d"]);
    assert!(row(&all, "about", "shown")[1].starts_with("all that is recorded"));
    let whole = page_of(&folder, &[]);
    assert_eq!(row(&all, "moved", "promoted"), row(&whole, "moved", "promoted"));
    assert_eq!(rows(&all, "refusals-table"), rows(&whole, "refusals-table"));
}

#[test]
fn a_recording_that_lost_its_beginning_has_a_last_part_by_its_decisions() {
    let (dir, _) = folder("x");
    let folder = dir.path().join("rotated");
    let to = format!("--record={}", plain(&folder));
    let output = run(&["sim", "hotcold", "--rule=adaptive", "--max-size=4MiB", "--rotate", &to]);
    assert!(output.status.success(), "{}", errors(&output));
    let (from, last) = half(&folder);
    let page = page_of(&folder, &[&last]);
    assert!(page.contains("the recording is without its beginning"));
    assert!(page.contains("Shown are recorded decisions"));
    assert!(!page.contains("Not all of it is here"), "of the part that was asked for all is there");
    assert_eq!(number(&row(&page, "moved", "promoted")[1]), Some(promoted_from(&folder, from)));
    assert_eq!(row(&page, "moved", "came back: accessed below again soon after")[1], "unknown");
    let all = page_of(&folder, &["--last=10d"]);
    assert!(row(&all, "about", "shown")[1].starts_with("all that is left: older parts were removed"));
}

#[test]
fn what_has_no_times_has_no_last_part() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/fixtures/import");
    let (_dir, folder) = folder("imported");
    let file = Path::new(fixtures).join("lackey-3.19.0.txt");
    assert!(run(&["import", plain(&file), "-o", plain(&folder)]).status.success());
    let output = run(&["report", plain(&folder), "--last=1h", "-o", plain(&folder.with_extension("html"))]);
    let told = errors(&output);
    assert!(output.status.code() == Some(1) && told.contains("an order and no times"), "{told}");
}

/// A socket at which a daemon answers `status` so, for one client.
fn answering(path: &Path, answer: serde_json::Value) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).expect("it is free");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client comes");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("it asks");
        assert!(line.contains("status"), "{line}");
        writeln!(stream, "{answer}").expect("it listens");
    })
}

/// A recording that goes on: so many seconds of it are on disk.
fn growing(folder: &Path, seconds: u64) -> Recorder {
    let clock = r#"{"monotonic_ns":1000000000,"utc":"2026-11-27T07:20:11Z"}"#;
    let config = serde_json::to_string(&thermocline_core::config::Config::default()).expect("text");
    let setting = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let settings = vec![setting("config", &config), setting("clock", clock)];
    let limits = Limits { flush: Duration::from_secs(1), ..Limits::default() };
    let mut recorder =
        Recorder::start(folder, About { settings, topology: topology() }, limits, false).expect("it begins");
    for second in 0..=seconds {
        let state = |node| NodeState {
            node: NodeId(node),
            free_pages: 1000 + second,
            managed_pages: 1 << 20,
            ..NodeState::default()
        };
        recorder.put(Nanos::from_s(1 + second), Piece::Nodes(vec![state(0), state(1)]));
    }
    while recorder.stats().parts < seconds {
        std::thread::sleep(Duration::from_millis(2));
    }
    recorder
}

#[test]
fn a_daemon_is_asked_where_it_records_and_the_page_says_up_to_when_it_reaches() {
    let (dir, folder) = folder("recordings");
    let recorder = growing(&folder, 60);
    // The part that is being written, and one that was removed for newer ones.
    fs::write(folder.join("events-000099.parquet.unfinished"), "torn").expect("it is written");
    fs::remove_file(folder.join("part-000001.json")).expect("it is there");
    let socket = dir.path().join("t.sock");
    let recording = serde_json::json!({ "folder": plain(&folder), "parts": 60, "why": null });
    let daemon = answering(&socket, serde_json::json!({ "manager": "thermocline", "recording": recording }));
    let file = dir.path().join("last.html");
    let output = run(&["report", "--last=20s", "--socket", plain(&socket), "-o", plain(&file)]);
    daemon.join().expect("it answered");
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!errors(&output).contains("left out"), "{}", errors(&output));
    let page = fs::read_to_string(&file).expect("it is written");
    well_formed(&page);
    let about = |name: &str| row(&page, "about", name)[1].clone();
    assert_eq!(about("covers"), "20.0 s in 21 steps");
    assert_eq!(about("shown"), "the last 20.0 s of 58.0 s that are recorded");
    let reaches = about("reaches");
    assert!(reaches.starts_with("2026-11-27T07:21:10Z, "), "{reaches}");
    assert!(reaches.ends_with("before the page was made: what came later was not on disk yet"), "{reaches}");
    assert!(page.contains("the recording is without its beginning"));
    recorder.finish();
}

#[test]
fn who_cannot_have_it_is_told_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let asked = |name: &str, answer: serde_json::Value| {
        let socket = dir.path().join(name);
        let daemon = answering(&socket, answer);
        let output = run(&["report", "--last=1h", "--socket", plain(&socket)]);
        daemon.join().expect("it answered");
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        errors(&output)
    };
    let told = asked("none", serde_json::json!({ "manager": "observe" }));
    assert!(told.contains("set recording.enabled = true") && told.contains("--record DIR"), "{told}");
    let elsewhere = serde_json::json!({ "recording": { "folder": "/nonexistent/r", "parts": 1 } });
    let told = asked("elsewhere", elsewhere);
    assert!(told.contains("/nonexistent/r, which is not here") && told.contains("container"), "{told}");
    let absent = run(&["report", "--last=1h", "--socket", "/nonexistent/t.sock"]);
    assert!(absent.status.code() == Some(1) && errors(&absent).contains("no daemon answers"));
    assert_eq!(run(&["report"]).status.code(), Some(2), "neither a folder nor --last");
}
