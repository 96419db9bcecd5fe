//! A socket that answers as a daemon does, for tests and to try the screen by hand.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use thermocline_linux::residency::Residency;

use super::machine;
use crate::daemon::socket::{Request, Server};
use crate::snapshot::Latest;

/// Listens, and answers `status` from `latest`.
fn bind(path: &Path, latest: Latest) -> Server {
    Server::listen(path, None, Arc::default(), latest, |_| None, || Ok(Residency::default())).unwrap()
}

/// Answers what only a loop can answer.
fn answer(server: &Server, next: u64) {
    for question in server.questions() {
        let told = match question.request {
            Request::Decisions { since } => {
                machine::decisions(since.max(next.saturating_sub(40)).min(next), next)
            }
            Request::Explain { pid, address, .. } => {
                json!({ "text": format!("pid {pid} address {address:#x}: refused, its scope is at its cap\n") })
            }
            _ => json!({ "error": "this socket has no loop" }),
        };
        let _ = question.answer.try_send(told);
    }
}

/// Listens until the test ends.
pub fn listen(path: &Path, latest: Latest) -> std::thread::JoinHandle<()> {
    let server = bind(path, latest);
    std::thread::spawn(move || {
        loop {
            answer(&server, 30);
            std::thread::sleep(Duration::from_millis(5));
        }
    })
}

/// Serves a run of a minute on the socket of THERMOCLINE_TOP_SOCKET, for `top --socket`.
#[test]
#[ignore = "to try the screen by hand"]
fn a_socket_to_try_the_screen_on() {
    let path = std::env::var_os("THERMOCLINE_TOP_SOCKET").expect("THERMOCLINE_TOP_SOCKET names a socket");
    let latest = Latest::default();
    let server = bind(Path::new(&path), latest.clone());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let s = begin.elapsed().as_secs();
        latest.publish(machine::scopes(machine::snapshot(s + 1), 40));
        answer(&server, 5 * s);
        std::thread::sleep(Duration::from_millis(20));
    }
}
