//! The client side.

use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::{ANSWER_BYTES_MAX, MARGIN, Request, line, timeout};

/// Sends one request to the daemon and returns its answer.
///
/// # Errors
/// No daemon listens, it does not answer, or it answers with an error.
pub fn ask(path: &Path, request: &Request) -> anyhow::Result<serde_json::Value> {
    ask_within(path, request, timeout(request) + MARGIN)
}

/// Sends one request for text to the daemon and returns its answer.
///
/// # Errors
/// As [`ask`], and the daemon's version cannot answer with text.
pub fn ask_for_text(path: &Path, request: &Request) -> anyhow::Result<String> {
    let answer = ask(path, request)?;
    match answer["text"].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => bail!(
            "the daemon is thermocline {}, which answers with figures and not with text; this command is {}: \
             restart the daemon, or use --json",
            answer["version"].as_str().unwrap_or("of an older version"),
            env!("CARGO_PKG_VERSION"),
        ),
    }
}

/// As [`ask`], with any listener and for about `bound` at most.
pub(super) fn ask_within(
    path: &Path,
    request: &Request,
    bound: Duration,
) -> anyhow::Result<serde_json::Value> {
    let end = Instant::now() + bound;
    let stream = reach(path, bound).map_err(|error| unreached(path, error))?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    // A client for which there is no place is answered before it sends its request, so a failed
    // write is not yet an error.
    let asked = (&stream).write_all(text.as_bytes());
    let line = match line::read(&stream, ANSWER_BYTES_MAX, end) {
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            bail!("the daemon did not answer in time; it may be stopped, or held up by the machine")
        }
        line => line.context("the daemon hung up")?,
    };
    if line.is_empty() {
        asked.context("the daemon hung up")?;
    }
    let answer: serde_json::Value =
        serde_json::from_slice(&line).context("the daemon's answer is cut short; try again")?;
    match answer.get("error").and_then(|e| e.as_str()) {
        Some(error) => bail!("{error}"),
        None => Ok(answer),
    }
}

/// Why nobody answers, and what to do.
fn unreached(path: &Path, error: io::Error) -> anyhow::Error {
    let path = path.display();
    let told = match error.kind() {
        ErrorKind::PermissionDenied => format!(
            "{path} may not be opened by this user, whether or not a daemon runs; ask as root, or let \
             daemon.socket_group name a group of this user, whose members may ask for status"
        ),
        _ => format!(
            "no daemon answers on {path}; start one with `thermocline run`, or name its socket with --socket"
        ),
    };
    anyhow::Error::new(error).context(told)
}

/// Connects. If the listener's queue is full, waits for at most `bound`.
fn reach(path: &Path, bound: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(bound))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}
