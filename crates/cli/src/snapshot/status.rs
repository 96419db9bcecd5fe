//! The answer to a `status` request.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use thermocline_linux::residency::Residency;

use super::Snapshot;

/// The newest snapshot, and what is looked up for each request.
#[derive(Debug)]
pub struct Status<'a> {
    /// The newest snapshot.
    pub snapshot: &'a Snapshot,
    /// Where memory is, or why this is not known.
    pub residency: Result<Residency, String>,
    /// For how long the loop has not run, if that is too long.
    pub late: Option<Duration>,
}

impl Status<'_> {
    /// The figures of `status --json`.
    pub fn json(&self) -> Value {
        #[derive(Serialize)]
        struct Shown<'a> {
            #[serde(flatten)]
            snapshot: &'a Snapshot,
            residency: Value,
            loop_late_ms: Option<u64>,
        }
        json!(Shown {
            snapshot: self.snapshot,
            residency: match &self.residency {
                Ok(found) => json!(found),
                Err(error) => json!({ "error": error }),
            },
            loop_late_ms: self.late.map(|late| late.as_millis() as u64),
        })
    }
}
