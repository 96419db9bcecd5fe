//! `thermocline explain`: why a page did or did not move.

use std::path::Path;

use crate::daemon::socket::{self, Request};

/// Asks the daemon behind `socket` and renders its answer.
///
/// # Errors
/// When no daemon answers.
pub fn explain(socket: &Path, pid: u32, address: u64, json: bool) -> anyhow::Result<String> {
    let answer = socket::ask(socket, &Request::Explain { pid, address })?;
    if json {
        return Ok(format!("{answer:#}\n"));
    }
    Ok(format!("{answer:#}\n"))
}
