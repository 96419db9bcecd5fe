//! Tests of the socket with clients of all kinds, and of the answers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use thermocline_core::units::{Nanos, Pfn};

use thermocline_linux::residency::Residency;

use super::*;
use crate::snapshot::{Latest, Snapshot};

/// A residency without processes.
fn nowhere() -> Result<Residency, String> {
    Ok(Residency::default())
}

fn path_in(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("s/t.sock")
}

#[test]
fn status_and_explain_are_answered_and_nonsense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let latest = Latest::default();
    let path = path_in(&dir);
    let server = Server::listen(
        &path,
        None,
        Arc::default(),
        latest.clone(),
        |_| Some(Pfn(9)),
        || Err("seven".to_owned()),
    )
    .unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    latest.publish(Snapshot::for_tests());
    let status = ask(&path, &Request::Status { as_text: false }).unwrap();
    assert_eq!((&status["mode"], &status["residency"]["error"]), (&"run".into(), &"seven".into()));

    let client = std::thread::spawn({
        let path = path.clone();
        move || ask(&path, &Request::Explain { pid: 7, address: 4096, as_text: false }).unwrap()
    });
    let question = loop {
        if let Some(q) = server.questions().next() {
            break q;
        }
        std::thread::yield_now();
    };
    assert!(matches!(question.request, Request::Explain { pid: 7, address: 4096, .. }));
    assert_eq!(question.frame, Some(Pfn(9)));
    question.answer.send(json!({ "why": "cold" })).unwrap();
    assert_eq!(client.join().unwrap()["why"], "cold");

    let stream = UnixStream::connect(&path).unwrap();
    (&stream).write_all(b"\xff\x00{nonsense\n").unwrap();
    let mut line = String::new();
    let _ = BufReader::new(&stream).read_line(&mut line);
    assert_eq!(ask(&path, &Request::Status { as_text: false }).unwrap()["mode"], "run");

    drop(server);
    assert!(!path.exists());
}

#[test]
fn an_absent_daemon_is_named_with_the_remedy() {
    let error = ask(Path::new("/nonexistent/t.sock"), &Request::Status { as_text: false }).unwrap_err();
    assert!(format!("{error:#}").contains("thermocline run"));
}

/// What an impostor does with a client.
type Serve = fn(UnixStream);

/// Listens in place of a daemon and applies `serve` to each client.
fn impostor(path: &Path, serve: Serve) {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
}

#[test]
fn whoever_listens_in_place_of_a_daemon_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let serve: [(&str, Serve); 4] = [
        ("silent", |stream| std::mem::forget(stream)),
        ("slow", |mut stream| {
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }),
        ("endless", |mut stream| while stream.write_all(&[b'0'; 65536]).is_ok() {}),
        ("hangs up", drop),
    ];
    for (name, serve) in serve {
        let path = dir.path().join(name);
        impostor(&path, serve);
        let (answer, took) = timed(|| {
            client::ask_within(&path, &Request::Status { as_text: false }, Duration::from_millis(300))
        });
        assert!(answer.is_err() && took < Duration::from_secs(3), "{name}: {took:?}");
    }
    // Nothing accepts connections, and the queue is full.
    let path = dir.path().join("full");
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
    let listener = listener.unwrap();
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = UnixStream::connect(&path).unwrap();
    let (answer, took) =
        timed(|| client::ask_within(&path, &Request::Status { as_text: false }, Duration::from_millis(300)));
    assert!(answer.is_err() && took < Duration::from_secs(3), "{took:?}");
}

/// How long `work` takes.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let made = work();
    (made, start.elapsed())
}

#[test]
fn slow_and_idle_clients_hold_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let latest = Latest::default();
    let path = path_in(&dir);
    let _server =
        Server::listen(&path, None, Arc::default(), latest.clone(), |_| Some(Pfn(9)), nowhere).unwrap();
    latest.publish(Snapshot::for_tests());
    // One client sends a byte from time to time, another never reads, others send nothing.
    let slow: Vec<UnixStream> = (0..10).map(|_| UnixStream::connect(&path).unwrap()).collect();
    (&slow[0]).write_all(b"{").unwrap();
    let (status, took) = timed(|| ask(&path, &Request::Status { as_text: false }));
    assert_eq!(status.unwrap()["mode"], "run");
    assert!(took < Duration::from_secs(2), "{took:?}");
    // Another byte does not extend the time: the connection ends, and its place is free.
    std::thread::sleep(Duration::from_millis(1200));
    let _ = (&slow[0]).write_all(b"\"");
    let (_, took) = timed(|| {
        let mut line = String::new();
        BufReader::new(&slow[0]).read_line(&mut line)
    });
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_crowd_of_idle_clients_is_turned_away_and_served_again_when_it_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let latest = Latest::default();
    let path = path_in(&dir);
    let _server =
        Server::listen(&path, None, Arc::default(), latest.clone(), |_| Some(Pfn(9)), nowhere).unwrap();
    latest.publish(Snapshot::for_tests());
    let crowd: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let (answer, took) = timed(|| ask(&path, &Request::Status { as_text: false }));
    assert!(took < Duration::from_secs(5), "{took:?}");
    if let Err(error) = answer {
        assert!(format!("{error:#}").contains("too many clients"), "{error:#}");
    }
    // Idle clients lose their places even if they do not go away.
    let end = Instant::now() + Duration::from_secs(20);
    while ask(&path, &Request::Status { as_text: false }).is_err() {
        assert!(Instant::now() < end, "the crowd holds the daemon for good");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(crowd);
}

#[test]
fn a_process_that_cannot_be_looked_at_costs_its_figures_alone() {
    let dir = tempfile::tempdir().unwrap();
    let latest = Latest::default();
    let path = path_in(&dir);
    let _server = Server::listen(
        &path,
        None,
        Arc::default(),
        latest.clone(),
        |_| Some(Pfn(9)),
        || {
            loop {
                std::thread::park();
            }
        },
    )
    .unwrap();
    latest.publish(Snapshot::for_tests());
    for _ in 0..2 {
        let (status, took) = timed(|| ask(&path, &Request::Status { as_text: false }).unwrap());
        assert_eq!(status["mode"], "run");
        assert!(status["residency"]["error"].as_str().unwrap().contains("process"));
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn what_is_no_socket_of_ours_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious.txt");
    std::fs::write(&precious, "precious").unwrap();
    let error = Server::listen(&precious, None, Arc::default(), Latest::default(), |_| Some(Pfn(9)), nowhere)
        .unwrap_err();
    assert!(format!("{error:#}").contains("no socket of ours"), "{error:#}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    let group = Server::listen(
        &path_in(&dir),
        Some("no-such-group"),
        Arc::default(),
        Latest::default(),
        |_| Some(Pfn(9)),
        nowhere,
    )
    .unwrap_err();
    assert!(format!("{group:#}").contains("create it or unset the key"), "{group:#}");
    assert!(!path_in(&dir).exists(), "nothing is made before everything is known to be right");
    // What an earlier daemon left is replaced.
    let path = path_in(&dir);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    Server::listen(&path, None, Arc::default(), Latest::default(), |_| Some(Pfn(9)), nowhere).unwrap();
}

#[test]
fn a_loop_that_does_not_turn_is_told_and_not_waited_for() {
    use crate::daemon::pulse::Pulse;
    use thermocline_linux::machine::now;

    let dir = tempfile::tempdir().unwrap();
    let latest = Latest::default();
    let path = path_in(&dir);
    let pulse = Arc::new(Pulse::default());
    let server = Server::listen(&path, None, Arc::clone(&pulse), latest.clone(), |_| None, nowhere).unwrap();
    latest.publish(Snapshot::for_tests());
    assert!(ask(&path, &Request::Status { as_text: false }).unwrap()["loop_late_ms"].is_null());
    pulse.promise(now().plus(Nanos::from_ms(300)));
    let switch = Request::Switch { manager: thermocline_core::config::ManagerName::Damon };
    let (refused, took) = timed(|| ask(&path, &switch).unwrap_err().to_string());
    assert!(refused.contains("has not turned for 2."), "{refused}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(server.questions().count(), 0, "what was refused is not done later");
    assert!(
        ask(&path, &Request::Status { as_text: false }).unwrap()["loop_late_ms"].as_u64().unwrap() >= 2000
    );
    let (refused, took) =
        timed(|| ask(&path, &Request::Explain { pid: 1, address: 0, as_text: false }).is_err());
    assert!(refused && took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn sockets_can_be_had_at_every_path_that_the_check_takes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |rest: &str| format!("{}/{rest}", dir.path().display());
    let room = 107 - at("s/").len();
    let long = |bytes: usize| format!("s/{}", "n".repeat(bytes));
    for rest in ["s/t.sock", "s/.t", "s//t", "s/", "s/.", "s/..", &long(room), &long(room + 1)] {
        let mut config = thermocline_core::config::Config::default();
        config.daemon.socket = at(rest);
        let taken = thermocline_linux::configuration::check(&config).is_ok();
        let listens = Server::listen(
            Path::new(&config.daemon.socket),
            None,
            Arc::default(),
            Latest::default(),
            |_| None,
            nowhere,
        );
        assert_eq!(taken, listens.is_ok(), "{rest}: {listens:?}");
    }
}
