//! The listening side.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::io::Errno;

use super::request::{self, Page, REQUEST_BYTES_MAX, Refusal, Request};
use crate::daemon::handlers::Handlers;
use crate::daemon::pulse::Pulse;
use crate::daemon::unix_socket::UnixSocket;
use crate::metrics::{Format, families, loop_late};
use crate::snapshot::{Latest, Snapshot};

/// How long a client may take to send its request, and to receive the response.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// By how much the priority of these threads is lowered (`nice`).
const NICE: i32 = 10;
/// Content type of everything but metrics.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Serves metrics until the process ends; removes its Unix socket when dropped.
#[derive(Debug)]
pub struct MetricsServer {
    _socket: Option<UnixSocket>,
    /// The address that it listens on, unless it is a Unix socket.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ask for the port that they were given"))]
    pub address: Option<SocketAddr>,
}

/// What responses are made from.
#[derive(Clone, Debug)]
struct Answers {
    latest: Latest,
    pulse: Arc<Pulse>,
    /// The newest snapshot's text in each format.
    rendered: Arc<Mutex<Vec<Rendered>>>,
}

#[derive(Clone, Debug)]
struct Rendered {
    format: Format,
    of: Arc<Snapshot>,
    text: Arc<str>,
}

impl MetricsServer {
    /// Listens on an IP address and port, or on the path of a Unix socket, which `group` may open
    /// as well.
    ///
    /// # Errors
    /// As [`UnixSocket::bind`]; the address is in use or not one of this machine's; a thread cannot
    /// be started.
    pub fn listen(
        address: &str,
        group: Option<&str>,
        latest: Latest,
        pulse: Arc<Pulse>,
    ) -> anyhow::Result<MetricsServer> {
        let answers = Answers { latest, pulse, rendered: Arc::default() };
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let cannot = "cannot start the metrics thread";
        if address.starts_with('/') {
            let (socket, listener) = UnixSocket::bind(Path::new(address), group, "metrics.listen")?;
            thread.spawn(move || accept(|| listener.accept_one(), &answers)).context(cannot)?;
            return Ok(MetricsServer { _socket: Some(socket), address: None });
        }
        let listener = TcpListener::bind(address).map_err(|error| {
            let remedy = match Errno::from_io_error(&error) {
                // This happens under the installed unit, which allows only Unix sockets.
                Some(Errno::AFNOSUPPORT) => {
                    "the service has no network; see /usr/share/thermocline/metrics.conf"
                }
                _ => "see who uses the port (ss -ltnp), and whether the address is this machine's",
            };
            anyhow::anyhow!("metrics.listen: cannot listen on {address}: {error}; {remedy}")
        })?;
        let address = listener.local_addr().ok();
        thread.spawn(move || accept(|| listener.accept_one(), &answers)).context(cannot)?;
        Ok(MetricsServer { _socket: None, address })
    }
}

/// A connection of either kind.
trait Connection: Read + Write + Send + 'static {
    fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()>;
    fn set_nonblocking(&self) -> io::Result<()>;
}

/// A listener of either kind.
trait Accept {
    type Stream: Connection;
    fn accept_one(&self) -> io::Result<Self::Stream>;
}

macro_rules! either_kind {
    ($( $listener:ty => $stream:ty; )*) => {
        $(
            impl Connection for $stream {
                fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
                    self.set_read_timeout(read).and_then(|()| self.set_write_timeout(write))
                }

                fn set_nonblocking(&self) -> io::Result<()> {
                    <$stream>::set_nonblocking(self, true)
                }
            }

            impl Accept for $listener {
                type Stream = $stream;

                fn accept_one(&self) -> io::Result<$stream> {
                    self.accept().map(|(stream, _)| stream)
                }
            }
        )*
    };
}

either_kind! {
    TcpListener => TcpStream;
    UnixListener => UnixStream;
}

/// Hands each client to its own thread while there is a place for it.
fn accept<S: Connection>(next: impl Fn() -> io::Result<S>, answers: &Answers) {
    // The threads for clients inherit it. If it is refused, they run at the daemon's priority.
    let _ = rustix::process::nice(NICE);
    let handlers = Handlers::default();
    loop {
        let Ok(stream) = next() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(place) = handlers.take(false) else {
            turn_away(stream);
            continue;
        };
        let answers = answers.clone();
        // If no thread can be started, the connection is closed.
        let _ = std::thread::Builder::new().name("scrape".to_owned()).spawn(move || {
            let _place = place;
            // A client that closes the connection or sends nonsense ends only its own connection.
            let _ = serve(stream, &answers);
        });
    }
}

/// Tells a client that there is no place for it, without waiting for the client to read.
fn turn_away(mut stream: impl Connection) {
    let body = "too many clients are served at once; try again\n";
    let head = request::head((503, "Service Unavailable"), PLAIN, body.len());
    let _ = stream.set_nonblocking().and_then(|()| stream.write_all((head + body).as_bytes()));
}

fn serve(mut stream: impl Connection, answers: &Answers) -> io::Result<()> {
    let end = Instant::now() + TRANSFER_TIMEOUT;
    let asked = match read(&mut stream, end) {
        Ok(bytes) if bytes.is_empty() => return Ok(()),
        Ok(bytes) => request::parse(&bytes),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err((431, "Request Header Fields Too Large")),
        Err(error) => return Err(error),
    };
    stream.set_timeouts(None, Some(TRANSFER_TIMEOUT))?;
    let (status, content_type, body) = answer(&asked, answers);
    stream.write_all(request::head(status, content_type, body.len()).as_bytes())?;
    if !asked.is_ok_and(|asked| asked.head) {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// Reads the head of a request.
fn read(stream: &mut impl Connection, end: Instant) -> io::Result<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 2048]);
    while !request::is_whole(&bytes) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_timeouts(Some(left), None)?;
        let read = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&piece[..read]);
        if bytes.len() > REQUEST_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    Ok(bytes)
}

/// Status, content type and body of the response.
fn answer(asked: &Result<Request, Refusal>, answers: &Answers) -> (Refusal, &'static str, String) {
    const OK: Refusal = (200, "OK");
    const UNAVAILABLE: Refusal = (503, "Service Unavailable");
    let late = answers.pulse.late();
    match asked {
        Err(refusal) => (*refusal, PLAIN, format!("{}\n", refusal.1)),
        Ok(Request { page: Page::Index, .. }) => {
            (OK, PLAIN, "thermocline serves /metrics and /-/healthy\n".to_owned())
        }
        Ok(Request { page: Page::Health, .. }) => match late {
            None => (OK, PLAIN, "healthy\n".to_owned()),
            Some(late) => {
                let body = format!("the loop has not turned for {:.1} s\n", late.as_secs_f64());
                (UNAVAILABLE, PLAIN, body)
            }
        },
        Ok(Request { page: Page::Metrics(format), .. }) => match answers.text(*format) {
            None => (UNAVAILABLE, PLAIN, "the daemon has just started; ask again in a second\n".to_owned()),
            Some(text) => {
                let body = format!("{text}{}{}", format.text(&[loop_late(late)]), format.end());
                (OK, format.content_type(), body)
            }
        },
    }
}

impl Answers {
    /// The newest snapshot's text; `None` before the first snapshot.
    fn text(&self, format: Format) -> Option<Arc<str>> {
        let snapshot = self.latest.get()?;
        // Other requests wait for the same text.
        let mut all = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| Arc::ptr_eq(&one.of, &snapshot));
        if let Some(found) = all.iter().find(|one| one.format == format) {
            return Some(Arc::clone(&found.text));
        }
        let text: Arc<str> = format.text(&families(&snapshot)).into();
        all.push(Rendered { format, of: snapshot, text: Arc::clone(&text) });
        Some(text)
    }
}
