//! The daemon's Unix socket: one JSON request per line, one JSON answer per line.
//!
//! `status` never waits for the loop: it is answered from the newest snapshot, together with the
//! current residency. The other requests are answered by the loop: `switch` waits for it for at
//! most [`SWITCH_TIMEOUT`], the others for [`ANSWER_TIMEOUT`]. None of these waits for a loop that
//! hangs. Every request reports such a loop, `status` included.

mod client;
mod line;
mod residency;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use thermocline_core::units::Pfn;
pub use thermocline_wire::control::Request;

pub use client::{ask, ask_for_text};
pub use server::Server;

/// How long a client waits for the loop. Unless something is wrong, the loop answers within a step.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a client waits for one manager to end and another to begin.
pub const SWITCH_TIMEOUT: Duration = Duration::from_secs(60);
/// How much longer a client waits than the daemon may take.
const MARGIN: Duration = Duration::from_millis(900);
/// Maximum length of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How long the loop may take to answer.
fn timeout(request: &Request) -> Duration {
    match request {
        Request::Status { .. }
        | Request::Config
        | Request::Reload
        | Request::Explain { .. }
        | Request::Pages { .. }
        | Request::Scope { .. }
        | Request::Decisions { .. } => ANSWER_TIMEOUT,
        Request::Switch { .. } => SWITCH_TIMEOUT,
    }
}

/// Receives an answer.
pub type Answer = SyncSender<serde_json::Value>;

/// A question that only the loop can answer.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub request: Request,
    /// The frame of the requested page, if known. It is looked up in advance, because the loop must
    /// not read files of processes, which may block.
    pub frame: Option<Pfn>,
    /// Receives the answer.
    pub answer: Answer,
    /// The client has been told that the request will not be answered.
    withdrawn: Arc<AtomicBool>,
}

impl Question {
    /// Whether it should no longer be answered.
    fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Relaxed)
    }
}

/// An answer that the client prints as it is.
pub fn text_answer(text: String) -> serde_json::Value {
    serde_json::json!({ "text": text })
}

fn failure(message: &str) -> serde_json::Value {
    serde_json::json!({ "error": message })
}

#[cfg(test)]
mod tests;
