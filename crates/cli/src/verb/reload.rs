//! `thermocline reload`: the running daemon reads its configuration again.

use std::path::Path;

use crate::daemon::socket::{Request, ask, ask_for_text};

/// Asks for it, and says what has changed.
///
/// # Errors
/// When no daemon answers, or the configuration cannot be applied as a whole.
pub fn reload(socket: &Path, json: bool) -> anyhow::Result<String> {
    match json {
        true => Ok(format!("{:#}\n", ask(socket, &Request::Reload)?["changes"])),
        false => ask_for_text(socket, &Request::Reload),
    }
}
