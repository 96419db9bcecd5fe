//! `thermocline explain`: why a page did or did not move.

use std::path::Path;

use crate::daemon::socket::{Request, ask, ask_for_text};

/// Asks the daemon behind `socket`. The daemon renders the answer.
///
/// # Errors
/// No daemon answers, or its version does not render.
pub fn explain(socket: &Path, pid: u32, address: u64, json: bool) -> anyhow::Result<String> {
    let request = Request::Explain { pid, address, as_text: !json };
    match json {
        true => Ok(format!("{:#}\n", ask(socket, &request)?)),
        false => ask_for_text(socket, &request),
    }
}
