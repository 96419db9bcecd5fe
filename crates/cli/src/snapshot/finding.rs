//! An open finding as it is shown.

use std::time::SystemTime;

use serde::Serialize;
use thermocline_core::label::Label;
use thermocline_linux::finding::{Finding, Open};

/// A finding with the time at which it began. Its keys are those of the doctor's JSON.
#[derive(Clone, Debug, Serialize)]
pub struct OpenFinding {
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// When it began, as in `2026-11-27T07:20:11Z`.
    pub since: String,
}

impl OpenFinding {
    /// An open finding.
    pub fn new(open: Open) -> OpenFinding {
        OpenFinding { finding: open.finding, since: timestamp(open.since) }
    }

    /// The line for people.
    pub fn line(&self) -> String {
        let Finding { id, severity, cause, remedies, .. } = &self.finding;
        let remedies: String = remedies.iter().map(|remedy| format!("; {}", remedy.line())).collect();
        format!("{} since {}: {cause} [{}]{remedies}", severity.name(), self.since, id.name())
    }
}

/// A time in UTC, to the second.
pub fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
