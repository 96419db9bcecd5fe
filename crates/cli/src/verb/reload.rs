//! `thermocline reload`: has the running daemon read its configuration again.

use std::path::Path;

use crate::daemon::socket::{Request, ask, ask_for_text};

/// Asks for a reload, and says what has changed.
///
/// # Errors
/// No daemon answers, or the configuration cannot be applied as a whole.
pub fn reload(socket: &Path, json: bool) -> anyhow::Result<String> {
    match json {
        true => Ok(format!("{:#}\n", ask(socket, &Request::Reload)?["changes"])),
        false => ask_for_text(socket, &Request::Reload),
    }
}
