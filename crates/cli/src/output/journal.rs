//! The journal's native protocol: one datagram an entry, with fields of its own
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>).
//!
//! It is used where standard error already goes to the journal, so that whoever runs the daemon
//! with standard error elsewhere finds its lines there.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use super::Said;

/// The journal's socket.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Tells which device and inode the journal has given a service as its output.
const STREAM: &str = "JOURNAL_STREAM";
/// How long the journal may keep an entry waiting, which is then written to standard error.
const PATIENCE: Duration = Duration::from_secs(1);

/// The journal.
#[derive(Debug)]
pub struct Journal(UnixDatagram);

impl Journal {
    /// The journal, if standard error goes there.
    pub fn of_stderr() -> Option<Journal> {
        let stream = std::env::var(STREAM).ok()?;
        if !is_stream(&stream, io::stderr()) {
            return None;
        }
        Journal::connect(Path::new(SOCKET)).ok()
    }

    /// The journal that listens at `socket`.
    fn connect(socket: &Path) -> io::Result<Journal> {
        let datagrams = UnixDatagram::unbound()?;
        datagrams.connect(socket)?;
        datagrams.set_write_timeout(Some(PATIENCE))?;
        Ok(Journal(datagrams))
    }

    /// Sends an entry.
    ///
    /// # Errors
    /// The journal is gone, does not read, or the entry is too large for a datagram.
    pub fn send(&self, said: &Said) -> io::Result<()> {
        self.0.send(&entry(said)).map(drop)
    }
}

/// Whether `stream`, as in `8:1234`, is the device and inode of a descriptor.
fn is_stream(stream: &str, descriptor: impl AsFd) -> bool {
    let numbers = stream.split_once(':').and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?)));
    let status = rustix::fs::fstat(descriptor);
    numbers.zip(status.ok()).is_some_and(|(numbers, status)| numbers == (status.st_dev, status.st_ino))
}

fn entry(said: &Said) -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, "MESSAGE", said.text.trim_end_matches('\n'));
    field(&mut out, "PRIORITY", &(said.priority as u8).to_string());
    field(&mut out, "SYSLOG_IDENTIFIER", "thermocline");
    said.fields.iter().for_each(|(name, value)| field(&mut out, name, value));
    out
}

/// `NAME=value` and a line break; a value of several lines has its length in front instead.
fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::output::Priority;

    /// The fields of a datagram, read by the rules of the protocol.
    fn fields(mut bytes: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|b| *b == b'=' || *b == b'\n').unwrap();
            let name = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let (begin, len) = match bytes[end] {
                b'=' => (end + 1, bytes[end + 1..].iter().position(|b| *b == b'\n').unwrap()),
                _ => {
                    let len = u64::from_le_bytes(bytes[end + 1..end + 9].try_into().unwrap());
                    (end + 9, usize::try_from(len).unwrap())
                }
            };
            fields.push((name, String::from_utf8(bytes[begin..begin + len].to_vec()).unwrap()));
            assert_eq!(bytes[begin + len], b'\n');
            bytes = &bytes[begin + len + 1..];
        }
        fields
    }

    #[test]
    fn an_entry_arrives_field_by_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixDatagram::bind(&path).unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let journal = Journal::connect(&path).unwrap();
        let mut said = Said::new("kswapd has given up = on two nodes\n".to_owned())
            .with("THERMOCLINE_FINDING", "demotion.given_up")
            .with("THERMOCLINE_NODE", 0)
            .with("THERMOCLINE_NODE", 1)
            .with("THERMOCLINE_SCOPE", "a\nb");
        said.priority = Priority::Warning;
        journal.send(&said).unwrap();
        let mut bytes = [0; 4096];
        let len = listener.recv(&mut bytes).unwrap();
        let expect = [
            ("MESSAGE", "kswapd has given up = on two nodes"),
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "thermocline"),
            ("THERMOCLINE_FINDING", "demotion.given_up"),
            ("THERMOCLINE_NODE", "0"),
            ("THERMOCLINE_NODE", "1"),
            ("THERMOCLINE_SCOPE", "a\nb"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(fields(&bytes[..len]), expect);

        // A message of several lines, as at the end of a run.
        journal.send(&Said::new("settings put back:\n  a = 1\n".to_owned())).unwrap();
        let len = listener.recv(&mut bytes).unwrap();
        let message = &fields(&bytes[..len])[0];
        assert_eq!(message.1, "settings put back:\n  a = 1");
        assert!(bytes[..len].starts_with(b"MESSAGE\n\x1a\0\0\0\0\0\0\0settings"));
        drop(listener);
        assert!(journal.send(&said).is_err(), "nobody listens");
    }

    #[test]
    fn standard_error_is_the_journal_only_if_device_and_inode_are_the_same() {
        let file = tempfile::tempfile().unwrap();
        let meta = file.metadata().unwrap();
        let stream = format!("{}:{}", meta.dev(), meta.ino());
        assert!(is_stream(&stream, &file));
        let other = File::open("/dev/null").unwrap();
        assert!(!is_stream(&stream, &other));
        for stream in ["", "1", "a:b", ":", &format!("{stream}:1")] {
            assert!(!is_stream(stream, &file), "{stream}");
        }
    }
}
