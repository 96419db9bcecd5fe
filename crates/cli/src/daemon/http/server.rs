//! The listening side: one thread that waits for all clients.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::time::{ClockId, clock_gettime};

use super::answers::Answers;
use super::budget::Budget;
use super::client::Client;
use crate::daemon::pulse::Pulse;
use crate::daemon::unix_socket::UnixSocket;
use crate::snapshot::Latest;

/// Maximum number of clients that are connected. One more takes the place of the one that has been
/// connected for longest: who sends a request at once is served whatever others do.
pub const CLIENTS_MAX: usize = 256;
/// Maximum number of clients accepted before those that are connected are served.
const ACCEPTED_MAX: usize = 64;
/// Pause after a failed accept, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// By how much the priority of the thread is lowered (`nice`).
const NICE: i32 = 10;

/// Serves metrics until the process ends; removes its Unix socket when dropped.
#[derive(Debug)]
pub struct MetricsServer {
    _socket: Option<UnixSocket>,
    /// The address that it listens on, unless it is a Unix socket.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests ask for the port that they were given"))]
    pub address: Option<SocketAddr>,
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
        let (socket, listener, address) = if address.starts_with('/') {
            let (socket, listener) = UnixSocket::bind(Path::new(address), group, "metrics.listen")?;
            (Some(socket), OwnedFd::from(listener), None)
        } else {
            let listener = tcp(address)?;
            let address = listener.local_addr().ok();
            (None, OwnedFd::from(listener), address)
        };
        rustix::io::ioctl_fionbio(&listener, true).context("cannot listen for metrics without waiting")?;
        let answers = Answers::new(latest, pulse);
        std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || serve(&listener, answers))
            .context("cannot start the metrics thread")?;
        Ok(MetricsServer { _socket: socket, address })
    }
}

fn tcp(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| {
        let remedy = match Errno::from_io_error(&error) {
            // This happens under the installed unit, which allows only Unix sockets.
            Some(Errno::AFNOSUPPORT) => "the service has no network; see /usr/share/thermocline/metrics.conf",
            _ => "see who uses the port (ss -ltnp), and whether the address is this machine's",
        };
        anyhow::anyhow!("metrics.listen: cannot listen on {address}: {error}; {remedy}")
    })
}

fn serve(listener: &OwnedFd, mut answers: Answers) {
    // If it is refused, the thread runs at the daemon's priority.
    let _ = rustix::process::nice(NICE);
    let start = Instant::now();
    let mut budget = Budget::default();
    // In the order of their arrival.
    let mut clients = VecDeque::new();
    loop {
        let ready = wait(listener, &clients);
        let now = Instant::now();
        // The listener is the last.
        let mut ready = ready.into_iter();
        clients.retain_mut(|client: &mut Client| match ready.next() {
            Some(true) => client.goes_on(now, &mut answers),
            Some(false) | None => now < client.end(),
        });
        if ready.next() == Some(true) {
            accept(listener, now, &mut clients, &mut answers);
        }
        std::thread::sleep(budget.pause(start.elapsed(), cpu_time()));
    }
}

/// Waits until something happens or a client's time is over. Which of the clients can go on, and at
/// the end whether there are new ones.
fn wait(listener: &OwnedFd, clients: &VecDeque<Client>) -> Vec<bool> {
    let mut all: Vec<PollFd<'_>> =
        clients.iter().map(|client| PollFd::new(client, client.waits_for())).collect();
    all.push(PollFd::new(listener, PollFlags::IN));
    let next = clients.iter().map(Client::end).min();
    // Rounded up, so that the time is over when it wakes up.
    let left = next.map(|end| end.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    // It fails if a signal comes. Then nothing is ready.
    let _ = poll(&mut all, left.as_ref());
    all.iter().map(|one| !one.revents().is_empty()).collect()
}

/// Takes new clients in, and serves those that have sent their request already.
fn accept(listener: &OwnedFd, now: Instant, clients: &mut VecDeque<Client>, answers: &mut Answers) {
    for _ in 0..ACCEPTED_MAX {
        match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(stream) => {
                let mut client = Client::new(stream, now);
                if !client.goes_on(now, answers) {
                    continue;
                }
                if clients.len() == CLIENTS_MAX {
                    clients.pop_front();
                }
                clients.push_back(client);
            }
            Err(Errno::AGAIN) => return,
            // The client has gone.
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(_) => {
                std::thread::sleep(ACCEPT_PAUSE);
                return;
            }
        }
    }
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
