//! `thermocline switch`: has another manager take over.

use std::path::Path;

use thermocline_core::config::ManagerName;

use crate::daemon::socket::{self, Request};

/// Asks for the switch, and reports the result.
///
/// # Errors
/// No daemon answers, or the manager cannot work here.
pub fn switch(socket: &Path, manager: ManagerName) -> anyhow::Result<String> {
    socket::ask(socket, &Request::Switch { manager })?;
    Ok(format!("manager {} decides which pages move now\n", manager.text()))
}
