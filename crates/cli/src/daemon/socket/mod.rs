//! The Unix socket of the daemon: one JSON request a line, one JSON answer a line.
//!
//! `status` is answered from the newest snapshot, with where memory is at this moment, and never waits for the loop; `explain` asks the loop and waits for
//! at most [`ANSWER_TIMEOUT`], `switch` for [`SWITCH_TIMEOUT`].

mod client;
mod handlers;
mod residency;
mod server;

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thermocline_core::config::ManagerName;

pub use client::ask;
pub use server::Server;

/// How long a client waits for the loop, which answers within a step unless something is wrong with it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// How long it waits for one manager to end and another to begin.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 4096;

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verb")]
pub enum Request {
    /// The newest snapshot, and where memory is.
    Status,
    /// Why a page did or did not move.
    Explain {
        /// The page's process.
        pid: u32,
        /// An address in the page.
        address: u64,
    },
    /// That another manager take over.
    Switch {
        /// The manager.
        manager: ManagerName,
    },
}

impl Request {
    /// How long the loop may take for it.
    fn timeout(&self) -> Duration {
        match self {
            Request::Status | Request::Explain { .. } => ANSWER_TIMEOUT,
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
    /// Where the answer goes.
    pub answer: Answer,
}

fn failure(message: &str) -> serde_json::Value {
    serde_json::json!({ "error": message })
}

#[cfg(test)]
mod tests;
