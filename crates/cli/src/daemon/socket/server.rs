//! The listening side.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;
use thermocline_core::units::{Pfn, VirtPage};
use thermocline_wire::control::REQUEST_BYTES_MAX;

use super::residency::{Looked, Residency};
use super::{Question, Request, failure, line, text_answer, timeout};
use crate::daemon::handlers::Handlers;
use crate::daemon::pulse::Pulse;
use crate::daemon::unix_socket::UnixSocket;
use crate::snapshot::{Latest, Status};
use crate::text;

/// How long a client may take to send its request, and to receive the answer.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of questions that wait for the loop.
const QUESTIONS_MAX: usize = 16;
/// Pause after a failed accept, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time between two checks of whether the loop runs.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The listening side.
#[derive(Debug)]
pub struct Server {
    _socket: UnixSocket,
    questions: Receiver<Question>,
}

/// What requests are answered from.
#[derive(Clone)]
struct Answers {
    latest: Latest,
    residency: Residency,
    pulse: Arc<Pulse>,
    frame: Arc<dyn Fn(VirtPage) -> Option<Pfn> + Send + Sync>,
    ask: SyncSender<Question>,
}

impl Server {
    /// Listens on `path`, which its owner and, if given, `group` may open. `pulse` shows whether
    /// the loop runs, `latest` holds the newest snapshot, and `frame` looks up the frame of a page.
    /// `residency` determines where memory is; a separate thread calls it at each `status` request.
    ///
    /// # Errors
    /// As [`UnixSocket::bind`], or a thread cannot be started.
    pub fn listen(
        path: &Path,
        group: Option<&str>,
        pulse: Arc<Pulse>,
        latest: Latest,
        frame: impl Fn(VirtPage) -> Option<Pfn> + Send + Sync + 'static,
        residency: impl FnMut() -> Looked + Send + 'static,
    ) -> anyhow::Result<Server> {
        let (socket, listener) = UnixSocket::bind(path, group, "daemon.socket")?;
        let (ask, questions) = sync_channel(QUESTIONS_MAX);
        let residency = Residency::start(residency).context("cannot start the residency thread")?;
        let frame = Arc::new(frame);
        let answers = Answers { latest, residency, pulse, frame, ask };
        std::thread::Builder::new()
            .name("socket".to_owned())
            .spawn(move || accept(&listener, &answers))
            .context("cannot start the socket thread")?;
        Ok(Server { _socket: socket, questions })
    }

    /// Questions received since the last call.
    pub fn questions(&self) -> impl Iterator<Item = Question> + '_ {
        self.questions.try_iter().filter(|question| !question.is_withdrawn())
    }
}

/// Hands each client to its own thread while there is a place for it.
fn accept(listener: &UnixListener, answers: &Answers) {
    let handlers = Handlers::default();
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let owner = is_owner(&stream);
        let Some(place) = handlers.take(owner) else {
            turn_away(&stream);
            continue;
        };
        let answers = answers.clone();
        // If no thread can be started, the connection is closed.
        let _ = std::thread::Builder::new().name("client".to_owned()).spawn(move || {
            let _place = place;
            // A client that closes the connection or sends nonsense ends only its own connection.
            let _ = serve(&stream, owner, &answers);
        });
    }
}

/// Tells a client that there is no place for it, without waiting for the client to read.
fn turn_away(mut stream: &UnixStream) {
    let answer = failure("too many clients are served at once; try again");
    let _ = stream.set_nonblocking(true).and_then(|()| writeln!(stream, "{answer}"));
}

fn serve(mut stream: &UnixStream, owner: bool, answers: &Answers) -> std::io::Result<()> {
    stream.set_write_timeout(Some(TRANSFER_TIMEOUT))?;
    let line = line::read(stream, REQUEST_BYTES_MAX, Instant::now() + TRANSFER_TIMEOUT)?;
    let answer = match Request::parse(&line) {
        Ok(Request::Status { as_text }) => status(as_text, answers),
        Ok(Request::Switch { .. }) if !owner => {
            failure("only root and the daemon's own user may switch managers: run it as one of them")
        }
        // Frames and how hot they are reveal what other users' programs do. The kernel hides
        // pagemap for the same reason.
        Ok(Request::Explain { .. } | Request::Pages { .. } | Request::Decisions { .. }) if !owner => {
            failure("only root and the daemon's own user may have pages explained: run it as one of them")
        }
        Ok(Request::Config) if !owner => failure(
            "only root and the daemon's own user may read the whole configuration: run it as one of them",
        ),
        Ok(Request::Reload) if !owner => failure(
            "only root and the daemon's own user may have the configuration reloaded: run it as one of them",
        ),
        Ok(
            request @ (Request::Config
            | Request::Reload
            | Request::Explain { .. }
            | Request::Pages { .. }
            | Request::Scope { .. }
            | Request::Decisions { .. }
            | Request::Switch { .. }),
        ) => put(request, answers),
        Err(e) => failure(&format!("not a request: {e}")),
    };
    writeln!(stream, "{answer}")
}

/// The newest snapshot, with the current residency.
fn status(as_text: bool, answers: &Answers) -> Value {
    let late = answers.pulse.late();
    match (answers.latest.get(), late) {
        (None, Some(late)) => failure(&standing(late)),
        (None, None) if as_text => {
            text_answer("the daemon has just started; ask again in a second\n".to_owned())
        }
        (None, None) => Value::Null,
        (Some(snapshot), late) => {
            let status = Status { snapshot: &snapshot, residency: answers.residency.now(), late };
            if as_text { text_answer(text::status(&status)) } else { status.json() }
        }
    }
}

/// Whether the client is the daemon's own user or root. The socket may be open to a group as well.
fn is_owner(stream: &UnixStream) -> bool {
    let owners = [rustix::process::geteuid(), rustix::process::Uid::ROOT];
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| owners.contains(&peer.uid))
}

/// Passes a question to the loop, and withdraws it if the loop hangs or does not answer in time.
fn put(request: Request, answers: &Answers) -> Value {
    if let Some(late) = answers.pulse.late() {
        return failure(&standing(late));
    }
    let end = Instant::now() + timeout(&request);
    let frame = request.page().and_then(|page| (answers.frame)(page));
    let (answer, told) = sync_channel(1);
    let withdrawn = Arc::new(AtomicBool::new(false));
    match answers.ask.try_send(Question { request, frame, answer, withdrawn: Arc::clone(&withdrawn) }) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => return failure("too many questions wait; try again"),
        Err(TrySendError::Disconnected(_)) => return failure("the daemon is stopping"),
    }
    loop {
        let why = match told.recv_timeout(LOOK_EVERY) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => "the daemon did not answer; try again".to_owned(),
            Err(RecvTimeoutError::Timeout) => match answers.pulse.late() {
                Some(late) => standing(late),
                None if Instant::now() < end => continue,
                None => "the daemon did not answer in time; try again".to_owned(),
            },
        };
        withdrawn.store(true, Ordering::Relaxed);
        return failure(&why);
    }
}

fn standing(late: Duration) -> String {
    format!(
        "the daemon's loop has not turned for {:.1} s: something keeps it; its standard error may say what, and SIGTERM puts settings back all the same",
        late.as_secs_f64()
    )
}
