//! The asking side.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, bail};

use super::{ANSWER_TIMEOUT, Request};

/// Sends one request to the daemon and returns its answer.
///
/// # Errors
/// When no daemon listens, it does not answer, or it answers with an error.
pub fn ask(path: &Path, request: &Request) -> anyhow::Result<serde_json::Value> {
    let stream = UnixStream::connect(path).with_context(|| {
        format!(
            "no daemon answers on {}; start one with `thermocline run`, or name its socket with --socket",
            path.display()
        )
    })?;
    stream.set_read_timeout(Some(request.timeout() + ANSWER_TIMEOUT))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    // Who is turned away is told so before he has asked.
    let asked = (&stream).write_all(text.as_bytes());
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).context("the daemon did not answer in time")?;
    if line.is_empty() {
        asked.context("the daemon hung up")?;
    }
    let answer: serde_json::Value =
        serde_json::from_str(&line).context("the daemon's answer is cut short; try again")?;
    match answer.get("error").and_then(|e| e.as_str()) {
        Some(error) => bail!("{error}"),
        None => Ok(answer),
    }
}
