//! One client: its requests arrive and their responses leave, one after the other.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use thermocline_wire::http::Incoming;

use super::answers::{Answers, Response};

/// How long a client may take to send a request, from the last response on, and again to receive
/// the response.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes read at a time.
const PIECE_BYTES: usize = 4096;
/// Maximum of bytes that are read after the request and ignored.
const IGNORED_BYTES_MAX: usize = 256 << 10;

/// A connection, which does not block.
#[derive(Debug)]
pub struct Client {
    stream: OwnedFd,
    state: State,
    /// When it is closed, whatever its state.
    end: Instant,
    /// What has arrived contains no further request.
    reads: bool,
}

#[derive(Debug)]
enum State {
    /// The request arrives.
    Asking(Incoming),
    /// The response leaves; so many bytes of it have left. What has arrived of the next request
    /// waits, if there may be one.
    Answered { response: Response, sent: usize, next: Option<Incoming> },
    /// The response has left, and bytes arrive that nobody asked for. Closing now would reset the
    /// connection, and the client might not get to read the response.
    Ignored { bytes: usize },
}

/// The connection is over.
struct Over;

impl Client {
    /// A client that has just connected.
    pub fn new(stream: OwnedFd, now: Instant) -> Client {
        Client { stream, state: State::Asking(Incoming::default()), end: now + TRANSFER_TIMEOUT, reads: true }
    }

    /// When it is closed, whatever its state.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// What it waits for.
    pub fn waits_for(&self) -> PollFlags {
        match self.state {
            // There may be another request in what has arrived.
            State::Asking(ref incoming) if !incoming.is_empty() && !self.reads => PollFlags::OUT,
            State::Asking(_) | State::Ignored { .. } => PollFlags::IN,
            State::Answered { .. } => PollFlags::OUT,
        }
    }

    /// Goes on as far as this is possible without waiting. Whether the connection stays open.
    pub fn goes_on(&mut self, now: Instant, answers: &mut Answers) -> bool {
        now < self.end && self.step(now, answers).is_ok()
    }

    /// At most one response is begun, so that nobody else waits for the requests of one client.
    fn step(&mut self, now: Instant, answers: &mut Answers) -> Result<(), Over> {
        if let State::Asking(incoming) = &mut self.state {
            let mut piece = [0; PIECE_BYTES];
            let mut asked = if self.reads { None } else { incoming.again() };
            self.reads = true;
            let asked = loop {
                if let Some(asked) = asked {
                    break asked;
                }
                let Some(read) = read(self.stream.as_fd(), &mut piece)? else { return Ok(()) };
                asked = incoming.take(&piece[..read]);
            };
            let persists = asked.is_ok_and(|asked| asked.persists);
            let next = persists.then(|| std::mem::take(incoming));
            self.state = State::Answered { response: answers.to(&asked), sent: 0, next };
            self.end = now + TRANSFER_TIMEOUT;
        }
        if let State::Answered { response, sent, next } = &mut self.state {
            while *sent < response.length() {
                match response.send(self.stream.as_fd(), *sent) {
                    Ok(more) => *sent += more,
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(Errno::INTR) => {}
                    Err(_) => return Err(Over),
                }
            }
            if let Some(next) = next.take() {
                self.reads = next.is_empty();
                self.state = State::Asking(next);
                self.end = now + TRANSFER_TIMEOUT;
                return Ok(());
            }
            let _ = shutdown(&self.stream, Shutdown::Write);
            self.state = State::Ignored { bytes: 0 };
            // Most have sent nothing else. Their connection can be closed at once.
            let mut byte = [0];
            let ahead = recv(&self.stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
            if !ahead.is_ok_and(|(read, _)| read > 0) {
                return Err(Over);
            }
        }
        if let State::Ignored { bytes } = &mut self.state {
            let mut piece = [0; PIECE_BYTES];
            while let Some(read) = read(self.stream.as_fd(), &mut piece)? {
                *bytes += read;
                if *bytes > IGNORED_BYTES_MAX {
                    return Err(Over);
                }
            }
        }
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// How much was read; `None` if there is nothing now.
fn read(stream: BorrowedFd<'_>, piece: &mut [u8]) -> Result<Option<usize>, Over> {
    loop {
        return match rustix::io::read(stream, &mut *piece) {
            Ok(0) => Err(Over),
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(_) => Err(Over),
        };
    }
}

impl Response {
    fn parts(&self) -> [&[u8]; 3] {
        [self.head.as_bytes(), self.metrics.as_deref().unwrap_or_default().as_bytes(), self.rest.as_bytes()]
    }

    fn length(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Sends what follows the first `sent` bytes, as far as there is room.
    fn send(&self, stream: BorrowedFd<'_>, mut sent: usize) -> rustix::io::Result<usize> {
        let rest = self.parts().map(|part| {
            let before = sent.min(part.len());
            sent -= before;
            IoSlice::new(&part[before..])
        });
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(stream, &rest, &mut SendAncillaryBuffer::default(), flags)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use rustix::net::sockopt::set_socket_send_buffer_size;

    use super::*;
    use crate::metrics::tests::everything;
    use crate::snapshot::Latest;

    fn answers() -> Answers {
        let latest = Latest::default();
        latest.publish(everything());
        Answers::new(latest, std::sync::Arc::default())
    }

    fn connected(now: Instant) -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        set_socket_send_buffer_size(&ours, 4096).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (Client::new(ours.into(), now), theirs)
    }

    #[test]
    fn who_sends_bytes_one_by_one_and_reads_in_small_pieces_gets_all_of_it() {
        let (now, mut answers) = (Instant::now(), answers());
        let (mut client, mut theirs) = connected(now);
        for byte in b"GET /metrics HTTP/1.0\r\n\r\n" {
            assert!(client.goes_on(now, &mut answers) && client.waits_for() == PollFlags::IN);
            theirs.write_all(&[*byte]).unwrap();
        }
        let (mut got, mut piece, mut turns) = (Vec::new(), [0; 1000], 0);
        while client.goes_on(now, &mut answers) {
            assert!(client.waits_for() == PollFlags::OUT);
            turns += 1;
            let read = theirs.read(&mut piece).unwrap();
            got.extend_from_slice(&piece[..read]);
        }
        let _ = theirs.read_to_end(&mut got);
        drop(client);
        let _ = theirs.read_to_end(&mut got);
        let text = String::from_utf8(got).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(turns > 10, "it was sent at once, which tests nothing");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        let expected = answers.to(&Incoming::default().take(b"GET /metrics HTTP/1.1\n\n").unwrap());
        assert_eq!(body, expected.metrics.unwrap().to_string() + &expected.rest);
    }

    #[test]
    fn who_sends_or_reads_too_slowly_is_left() {
        let (start, mut answers) = (Instant::now(), answers());
        let (mut client, mut theirs) = connected(start);
        theirs.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        let almost = start + TRANSFER_TIMEOUT - Duration::from_millis(1);
        assert!(client.goes_on(almost, &mut answers));
        theirs.write_all(b"\r\n").unwrap();
        assert!(client.goes_on(almost, &mut answers), "the response has its own time");
        assert!(client.goes_on(start + TRANSFER_TIMEOUT, &mut answers));
        assert!(!client.goes_on(almost + TRANSFER_TIMEOUT, &mut answers), "it does not read");
        let (mut silent, _theirs) = connected(start);
        assert!(silent.goes_on(almost, &mut answers));
        assert!(!silent.goes_on(start + TRANSFER_TIMEOUT, &mut answers));
    }

    #[test]
    fn requests_in_a_row_are_answered_one_at_a_time_in_their_order() {
        let (now, mut answers) = (Instant::now(), answers());
        let (mut client, mut theirs) = connected(now);
        theirs
            .write_all(b"GET / HTTP/1.1\r\n\r\nGET /-/healthy HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\n\r\nGET")
            .unwrap();
        let mut got = String::new();
        for (waits_for, said) in
            [(PollFlags::OUT, "serves"), (PollFlags::OUT, "healthy"), (PollFlags::IN, "404")]
        {
            let open = client.goes_on(now, &mut answers);
            let mut piece = [0; 1000];
            let read = theirs.read(&mut piece).unwrap();
            let answer = String::from_utf8_lossy(&piece[..read]).into_owned();
            assert!(answer.matches("HTTP/1.1 ").count() == 1 && answer.contains(said), "{answer}");
            assert!(!open || client.waits_for() == waits_for);
            assert_eq!(answer.contains("Connection: close"), said == "404");
            got += &answer;
        }
        // A client that is answered has as long for the next request as for the first.
        let (mut client, mut theirs) = connected(now);
        theirs.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let later = now + TRANSFER_TIMEOUT - Duration::from_millis(1);
        assert!(client.goes_on(later, &mut answers) && client.goes_on(now + TRANSFER_TIMEOUT, &mut answers));
        assert!(!client.goes_on(later + TRANSFER_TIMEOUT, &mut answers), "it says nothing more");
    }

    #[test]
    fn what_follows_the_request_is_ignored_as_far_as_is_decent() {
        let (now, mut answers) = (Instant::now(), answers());
        let (mut client, mut theirs) = connected(now);
        theirs.write_all(b"POST / HTTP/1.1\r\n\r\n").unwrap();
        theirs.write_all(&[b'x'; 8192]).unwrap();
        assert!(client.goes_on(now, &mut answers), "it still sends");
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert!(got.starts_with(b"HTTP/1.1 405 "));
        let mut ignored = 0;
        while client.goes_on(now, &mut answers) {
            ignored += theirs.write(&[b'x'; 8192]).unwrap();
        }
        assert!(ignored > 100_000 && ignored < 2 * IGNORED_BYTES_MAX, "{ignored}");
    }
}
