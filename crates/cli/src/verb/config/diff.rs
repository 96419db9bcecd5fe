//! `thermocline config diff`: the values in which two configurations differ.

use std::path::PathBuf;

use anyhow::Context;
use thermocline_core::config::{Config, difference_text, differences};
use thermocline_front::config::{self, Asked};

use crate::daemon::socket::{self, Request};

/// Compares two files, or a file with the running daemon's configuration.
///
/// # Errors
/// A file cannot be used, or no daemon answers.
pub fn diff(mut files: Vec<PathBuf>, json: bool, socket: Option<PathBuf>) -> anyhow::Result<String> {
    let after = Asked { file: files.pop(), changes: Vec::new() };
    let after = config::load(&after, |_| {})?.config;
    let before = match files.pop() {
        Some(file) => config::load(&Asked::file(&file), |_| {})?.config,
        None => running(&crate::socket_path(socket))?,
    };
    let found = differences(&before, &after);
    if json {
        return Ok(serde_json::to_string_pretty(&found)? + "\n");
    }
    Ok(difference_text(&found))
}

/// The running daemon's current configuration.
fn running(socket: &std::path::Path) -> anyhow::Result<Config> {
    let answer = socket::ask(socket, &Request::Config)?;
    serde_json::from_value(answer).context("the daemon is of another version; restart it")
}
