//! The Unix socket of the daemon: one JSON request a line, one JSON answer a line.
//!
//! `status` is answered from the newest snapshot, with where memory is at this moment, and never waits for the loop; `explain` asks the loop and waits for
//! at most [`ANSWER_TIMEOUT`], `switch` for [`SWITCH_TIMEOUT`].

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use thermocline_core::config::ManagerName;

/// How long a client waits for the loop.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long it waits for one manager to end and another to begin.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Questions that may wait for the loop.
const QUESTIONS_MAX: usize = 16;
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 4096;

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verb")]
pub enum Request {
    /// The newest snapshot, and where memory is.
    Status,
    /// Why a page did or did not move.
    Explain {
        /// The page's process.
        pid: u32,
        /// An address in the page.
        address: u64,
    },
    /// That another manager take over.
    Switch {
        /// The manager.
        manager: ManagerName,
    },
}

impl Request {
    /// How long the loop may take for it.
    fn timeout(&self) -> Duration {
        match self {
            Request::Status | Request::Explain { .. } => ANSWER_TIMEOUT,
            Request::Switch { .. } => SWITCH_TIMEOUT,
        }
    }
}

/// Where an answer goes.
pub type Answer = SyncSender<serde_json::Value>;

/// A question that only the loop can answer.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub request: Request,
    /// Where the answer goes.
    pub answer: Answer,
}

/// The listening side; removes the socket when dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    snapshot: Arc<Mutex<serde_json::Value>>,
    questions: Receiver<Question>,
}

impl Server {
    /// Listens on `path`, readable by its owner and, where given, by `group`. `residency` tells where memory is; it is called on the
    /// socket's thread whenever somebody asks for the status.
    ///
    /// # Errors
    /// When the socket cannot be made or its permissions cannot be set.
    pub fn listen(
        path: &Path,
        group: Option<&str>,
        mut residency: impl FnMut() -> serde_json::Value + Send + 'static,
    ) -> anyhow::Result<Server> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                bail!("cannot remove the old socket {}: {e}", path.display())
            }
            _ => {}
        }
        let listener =
            UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the permissions of {}", path.display()))?;
        if let Some(name) = group {
            let gid = gid_of(name).with_context(|| {
                format!("daemon.socket_group: no group `{name}` in /etc/group; create it or unset the key")
            })?;
            std::os::unix::fs::chown(path, None, Some(gid))
                .with_context(|| format!("cannot give {} to group {name}", path.display()))?;
        }
        let snapshot = Arc::new(Mutex::new(serde_json::Value::Null));
        let (ask, questions) = sync_channel(QUESTIONS_MAX);
        let shared = Arc::clone(&snapshot);
        std::thread::Builder::new()
            .name("socket".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (shared, ask) = (Arc::clone(&shared), ask.clone());
                    // A client that hangs up or sends nonsense ends its own connection only.
                    let _ = serve(stream, &shared, &ask, &mut residency);
                }
            })
            .context("cannot start the socket thread")?;
        Ok(Server { path: path.to_owned(), snapshot, questions })
    }

    /// Replaces the snapshot that `status` is answered from.
    pub fn publish(&self, snapshot: &impl Serialize) {
        let snapshot =
            serde_json::to_value(snapshot).unwrap_or_else(|e| failure(&format!("no snapshot: {e}")));
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    /// Questions that came since the last call.
    pub fn questions(&self) -> impl Iterator<Item = Question> + '_ {
        self.questions.try_iter()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(
    stream: UnixStream,
    snapshot: &Mutex<serde_json::Value>,
    ask: &SyncSender<Question>,
    residency: &mut impl FnMut() -> serde_json::Value,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::Status) => {
            let mut status = snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(members) = status.as_object_mut() {
                members.insert("residency".to_owned(), residency());
            }
            status
        }
        Ok(Request::Switch { .. }) if !is_owner(&stream) => {
            failure("only root and the daemon's own user may switch managers: run it as one of them")
        }
        Ok(request @ (Request::Explain { .. } | Request::Switch { .. })) => put(request, ask),
        Err(e) => failure(&format!("not a request: {e}")),
    };
    writeln!(&stream, "{answer}")
}

/// Whether the daemon's own user or root asks: to a group the socket may be open as well.
fn is_owner(stream: &UnixStream) -> bool {
    let owners = [rustix::process::geteuid(), rustix::process::Uid::ROOT];
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| owners.contains(&peer.uid))
}

/// Puts a question to the loop.
fn put(request: Request, ask: &SyncSender<Question>) -> serde_json::Value {
    let timeout = request.timeout();
    let (answer, answers) = sync_channel(1);
    match ask.try_send(Question { request, answer }) {
        Ok(()) => answers
            .recv_timeout(timeout)
            .unwrap_or_else(|_| failure("the daemon did not answer in time; try again")),
        Err(TrySendError::Full(_)) => failure("too many questions wait; try again"),
        Err(TrySendError::Disconnected(_)) => failure("the daemon is stopping"),
    }
}

fn failure(message: &str) -> serde_json::Value {
    serde_json::json!({ "error": message })
}

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
    (&stream).write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).context("the daemon did not answer in time")?;
    let answer: serde_json::Value =
        serde_json::from_str(&line).context("the daemon's answer is cut short; try again")?;
    match answer.get("error").and_then(|e| e.as_str()) {
        Some(error) => bail!("{error}"),
        None => Ok(answer),
    }
}

fn gid_of(name: &str) -> Option<u32> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_explain_are_answered_and_nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s/t.sock");
        let server = Server::listen(&path, None, || serde_json::json!([7])).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        server.publish(&serde_json::json!({ "mode": "run" }));
        let status = ask(&path, &Request::Status).unwrap();
        assert_eq!((&status["mode"], &status["residency"][0]), (&"run".into(), &7.into()));

        let client = std::thread::spawn({
            let path = path.clone();
            move || ask(&path, &Request::Explain { pid: 7, address: 4096 }).unwrap()
        });
        let question = loop {
            if let Some(q) = server.questions().next() {
                break q;
            }
            std::thread::yield_now();
        };
        assert!(matches!(question.request, Request::Explain { pid: 7, address: 4096 }));
        question.answer.send(serde_json::json!({ "why": "cold" })).unwrap();
        assert_eq!(client.join().unwrap()["why"], "cold");

        let stream = UnixStream::connect(&path).unwrap();
        (&stream).write_all(b"\xff\x00{nonsense\n").unwrap();
        let mut line = String::new();
        let _ = BufReader::new(&stream).read_line(&mut line);
        assert_eq!(ask(&path, &Request::Status).unwrap()["mode"], "run");

        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn an_absent_daemon_is_named_with_the_remedy() {
        let error = ask(Path::new("/nonexistent/t.sock"), &Request::Status).unwrap_err();
        assert!(format!("{error:#}").contains("thermocline run"));
    }
}
