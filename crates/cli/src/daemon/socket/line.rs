//! Reads lines that client and daemon exchange. A sender may be slow, or never end its line.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Bytes read at a time.
const PIECE_BYTES: usize = 4096;

/// Reads until the end of a line or of the stream, or until `bytes_max` bytes are there. The last
/// piece may exceed `bytes_max` by less than [`PIECE_BYTES`].
///
/// # Errors
/// The line is not complete by `end` ([`ErrorKind::TimedOut`]), or the stream cannot be read.
pub(super) fn read(mut stream: &UnixStream, bytes_max: usize, end: Instant) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    while line.len() < bytes_max {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The kernel reports a timeout of the socket as this.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            read => &piece[..read?],
        };
        line.extend_from_slice(read);
        if read.is_empty() || read.contains(&b'\n') {
            break;
        }
    }
    Ok(line)
}
