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

use super::residency::{Looked, Residency};
use super::{Question, REQUEST_BYTES_MAX, Request, failure, line, text_answer};
use crate::daemon::handlers::Handlers;
use crate::daemon::pulse::Pulse;
use crate::daemon::unix_socket::UnixSocket;
use crate::snapshot::{Latest, Status};
use crate::text;

/// How long a request may take to arrive, and an answer to be taken.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);
/// Questions that may wait for the loop.
const QUESTIONS_MAX: usize = 16;
/// How long is waited after no connection could be accepted, as where descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time between two looks whether the loop turns.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The listening side.
#[derive(Debug)]
pub struct Server {
    _socket: UnixSocket,
    questions: Receiver<Question>,
}

/// What a client is answered from.
#[derive(Clone)]
struct Answers {
    latest: Latest,
    residency: Residency,
    pulse: Arc<Pulse>,
    frame: Arc<dyn Fn(VirtPage) -> Option<Pfn> + Send + Sync>,
    ask: SyncSender<Question>,
}

impl Server {
    /// Listens on `path`, open to its owner and, where given, to `group`. `pulse` tells whether the
    /// loop turns, `latest` has the newest snapshot, and `frame` knows the frame of a page.
    /// `residency` finds where memory is; a thread of its own calls it whenever somebody asks for
    /// the status.
    ///
    /// # Errors
    /// As [`UnixSocket::bind`], or no thread can be had.
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

    /// Questions that came since the last call.
    pub fn questions(&self) -> impl Iterator<Item = Question> + '_ {
        self.questions.try_iter().filter(|question| !question.is_withdrawn())
    }
}

/// Hands each client to a thread of its own, as long as there is a place for it.
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
        // Where no thread can be had the client is hung up on.
        let _ = std::thread::Builder::new().name("client".to_owned()).spawn(move || {
            let _place = place;
            // A client that hangs up or sends nonsense ends its own connection only.
            let _ = serve(&stream, owner, &answers);
        });
    }
}

/// Tells a client that there is no place for it, without waiting for it to listen.
fn turn_away(mut stream: &UnixStream) {
    let answer = failure("too many clients are served at once; try again");
    let _ = stream.set_nonblocking(true).and_then(|()| writeln!(stream, "{answer}"));
}

fn serve(mut stream: &UnixStream, owner: bool, answers: &Answers) -> std::io::Result<()> {
    stream.set_write_timeout(Some(TRANSFER_TIMEOUT))?;
    let answer = match serde_json::from_slice(&line::read(
        stream,
        REQUEST_BYTES_MAX,
        Instant::now() + TRANSFER_TIMEOUT,
    )?) {
        Ok(Request::Status { as_text }) => status(as_text, answers),
        Ok(Request::Switch { .. }) if !owner => {
            failure("only root and the daemon's own user may switch managers: run it as one of them")
        }
        // Frames and how hot they are tell what other users' programs do, which is why the kernel
        // hides pagemap too.
        Ok(Request::Explain { .. }) if !owner => {
            failure("only root and the daemon's own user may have pages explained: run it as one of them")
        }
        Ok(Request::Config) if !owner => failure(
            "only root and the daemon's own user may read the whole configuration: run it as one of them",
        ),
        Ok(Request::Reload) if !owner => failure(
            "only root and the daemon's own user may have the configuration reloaded: run it as one of them",
        ),
        Ok(
            request @ (Request::Config | Request::Reload | Request::Explain { .. } | Request::Switch { .. }),
        ) => put(request, answers),
        Err(e) => failure(&format!("not a request: {e}")),
    };
    writeln!(stream, "{answer}")
}

/// The newest snapshot, with where memory is at this moment.
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

/// Whether the daemon's own user or root asks: to a group the socket may be open as well.
fn is_owner(stream: &UnixStream) -> bool {
    let owners = [rustix::process::geteuid(), rustix::process::Uid::ROOT];
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| owners.contains(&peer.uid))
}

/// Puts a question to the loop, and takes it back where the loop does not turn.
fn put(request: Request, answers: &Answers) -> Value {
    if let Some(late) = answers.pulse.late() {
        return failure(&standing(late));
    }
    let end = Instant::now() + request.timeout();
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
