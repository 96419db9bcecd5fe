//! `thermocline status`: the daemon's report.

use std::path::Path;

use crate::daemon::socket::{Request, ask, ask_for_text};

/// Asks the daemon behind `socket`. The daemon renders the answer.
///
/// # Errors
/// No daemon answers, or its version does not render.
pub fn status(socket: &Path, json: bool) -> anyhow::Result<String> {
    match json {
        true => Ok(format!("{:#}\n", ask(socket, &Request::Status { as_text: false })?)),
        false => ask_for_text(socket, &Request::Status { as_text: true }),
    }
}
