//! `thermocline status`: what the daemon reports of itself.

use std::path::Path;

use crate::daemon::socket::{Request, ask, ask_for_text};

/// Asks the daemon behind `socket`, which renders its answer.
///
/// # Errors
/// When no daemon answers, or one whose version does not render.
pub fn status(socket: &Path, json: bool) -> anyhow::Result<String> {
    match json {
        true => Ok(format!("{:#}\n", ask(socket, &Request::Status { as_text: false })?)),
        false => ask_for_text(socket, &Request::Status { as_text: true }),
    }
}
