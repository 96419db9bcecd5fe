//! The Unix socket of the daemon: one JSON request a line, one JSON answer a line.
//!
//! `status` is answered from the newest snapshot, with where memory is at this moment, and never
//! waits for the loop; `explain` asks the loop and waits for at most [`ANSWER_TIMEOUT`], `switch`
//! for [`SWITCH_TIMEOUT`]; neither waits for a loop that does not turn, which all of them report.

mod client;
mod line;
mod residency;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermocline_core::config::ManagerName;
use thermocline_core::units::{Pfn, Pid, VirtPage};

pub use client::{ask, ask_for_text};
pub use server::Server;

/// How long a client waits for the loop, which answers within a step unless something is wrong with
/// it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// How long it waits for one manager to end and another to begin.
pub const SWITCH_TIMEOUT: Duration = Duration::from_secs(60);
/// How much longer than the daemon may take a client waits for it.
const MARGIN: Duration = Duration::from_millis(900);
/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 4096;

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verb")]
pub enum Request {
    /// The newest snapshot, and where memory is.
    Status {
        /// As text, rather than figures.
        #[serde(default)]
        as_text: bool,
    },
    /// Why a page did or did not move.
    Explain {
        /// The page's process.
        pid: u32,
        /// An address in the page.
        address: u64,
        /// As text, rather than figures.
        #[serde(default)]
        as_text: bool,
    },
    /// The configuration that the daemon goes by.
    Config,
    /// That the configuration be read again.
    Reload,
    /// That another manager take over.
    Switch {
        /// The manager.
        manager: ManagerName,
    },
}

impl Request {
    /// The page that it is about.
    fn page(&self) -> Option<VirtPage> {
        match self {
            Request::Explain { pid, address, .. } => Some(VirtPage::of_address(Pid(*pid), *address)),
            Request::Status { .. } | Request::Config | Request::Reload | Request::Switch { .. } => None,
        }
    }

    /// How long the loop may take for it.
    fn timeout(&self) -> Duration {
        match self {
            Request::Status { .. } | Request::Config | Request::Reload | Request::Explain { .. } => {
                ANSWER_TIMEOUT
            }
            Request::Switch { .. } => SWITCH_TIMEOUT,
        }
    }
}

/// Where an answer goes.
pub type Answer = SyncSender<serde_json::Value>;

/// A question that only the loop can answer.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub request: Request,
    /// The frame of the page that is asked for, where it is known: the loop does not look into
    /// processes.
    pub frame: Option<Pfn>,
    /// Where the answer goes.
    pub answer: Answer,
    /// Who asked has been told that it will not be done.
    withdrawn: Arc<AtomicBool>,
}

impl Question {
    /// Whether it is not to be answered any more.
    fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Relaxed)
    }
}

/// An answer that a client shows as it is.
pub fn text_answer(text: String) -> serde_json::Value {
    serde_json::json!({ "text": text })
}

fn failure(message: &str) -> serde_json::Value {
    serde_json::json!({ "error": message })
}

#[cfg(test)]
mod tests;
