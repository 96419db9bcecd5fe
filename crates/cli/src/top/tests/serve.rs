//! A socket that answers as a daemon does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use thermocline_linux::residency::Residency;

use super::machine;
use crate::daemon::socket::{Request, Server};
use crate::snapshot::Latest;

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

/// Listens, and answers `status` from `latest`, until the test ends.
pub fn listen(path: &Path, latest: Latest) -> std::thread::JoinHandle<()> {
    let residency = || Ok(Residency::default());
    let server = Server::listen(path, None, Arc::default(), latest, |_| None, residency).unwrap();
    std::thread::spawn(move || {
        loop {
            answer(&server, 30);
            std::thread::sleep(Duration::from_millis(5));
        }
    })
}
