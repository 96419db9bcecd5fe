//! `thermocline config diff`: in which values two configurations differ.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use thermocline_core::config::{Config, Difference, differences};

use crate::config::{self, Asked};
use crate::daemon::socket::{self, Request};

/// Compares two files, or the running daemon's configuration with one.
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
    Ok(told(&found))
}

/// The configuration that the running daemon goes by.
fn running(socket: &std::path::Path) -> anyhow::Result<Config> {
    let answer = socket::ask(socket, &Request::Config)?;
    serde_json::from_value(answer).context("the daemon is of another version; restart it")
}

/// Differences, a line each.
pub fn told(found: &[Difference]) -> String {
    if found.is_empty() {
        return "nothing differs\n".to_owned();
    }
    let mut out = String::new();
    for difference in found {
        let restart = if difference.reloads { "" } else { "   (needs a restart)" };
        let _ = writeln!(out, "{difference}{restart}");
    }
    out
}
