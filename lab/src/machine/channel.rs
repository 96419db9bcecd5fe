//! Byte streams between the guest and the host: Unix sockets that QEMU connects its ports to.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::{Error, Result};

/// How much of a stream is kept, in bytes. The rest is only counted.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// A socket waiting for QEMU.
#[derive(Debug)]
pub(crate) struct Port {
    path: PathBuf,
    listener: UnixListener,
}

impl Port {
    /// Listens at `name` in `folder`.
    pub(crate) fn listen(folder: &Path, name: &str) -> Result<Port> {
        let path = folder.join(name);
        let listener = UnixListener::bind(&path).map_err(Error::file("listen on", &path))?;
        listener.set_nonblocking(true).map_err(Error::file("listen on", &path))?;
        Ok(Port { path, listener })
    }

    /// The socket's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// QEMU's connection, if it has connected.
    pub(crate) fn try_accept(&self) -> Result<Option<UnixStream>> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(Error::file("use", &self.path))?;
                Ok(Some(stream))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Error::file("accept a connection on", &self.path)(error)),
        }
    }
}

/// What was received from a stream so far.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Its first bytes.
    pub(crate) bytes: Vec<u8>,
    /// How many further bytes were not kept.
    pub(crate) dropped: u64,
}

/// Reads a stream to its end in a separate thread.
#[derive(Debug)]
pub(crate) struct Reader {
    kept: Arc<Mutex<Kept>>,
    thread: JoinHandle<()>,
}

/// Bytes are passed on to it as they arrive.
pub(crate) type Sink = Box<dyn Write + Send>;

impl Reader {
    /// Starts reading. Every byte is passed to `sink` at once, and kept up to a limit.
    pub(crate) fn start(mut stream: impl Read + Send + 'static, mut sink: Option<Sink>) -> Reader {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let shared = Arc::clone(&kept);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 16384];
            loop {
                let count = match stream.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => return,
                };
                let bytes = &buffer[..count];
                if let Some(out) = &mut sink
                    && out.write_all(bytes).and_then(|()| out.flush()).is_err()
                {
                    // The reader of our output has gone away. The guest's command continues.
                    sink = None;
                }
                let mut kept = lock(&shared);
                let room = KEPT_BYTES_MAX.saturating_sub(kept.bytes.len()).min(count);
                kept.bytes.extend_from_slice(&bytes[..room]);
                kept.dropped += (count - room) as u64;
            }
        });
        Reader { kept, thread }
    }

    /// What was received so far, without waiting.
    pub(crate) fn text_so_far(&self) -> String {
        String::from_utf8_lossy(&lock(&self.kept).bytes).into_owned()
    }

    /// Waits for the end of the stream and returns what was received.
    pub(crate) fn finish(self) -> Kept {
        // A reader that panicked has kept what it read.
        let _ = self.thread.join();
        std::mem::take(&mut *lock(&self.kept))
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_kept_to_its_bound_and_the_rest_counted() {
        let long = io::repeat(b'x').take(KEPT_BYTES_MAX as u64 + 100);
        let kept = Reader::start(long, None).finish();
        assert_eq!((kept.bytes.len(), kept.dropped), (KEPT_BYTES_MAX, 100));
    }

    #[test]
    fn a_port_passes_bytes_from_its_peer() {
        let folder = tempfile::tempdir().unwrap();
        let port = Port::listen(folder.path(), "port").unwrap();
        assert!(port.try_accept().unwrap().is_none());
        let mut peer = UnixStream::connect(port.path()).unwrap();
        let stream = port.try_accept().unwrap().unwrap();
        peer.write_all(b"hello").unwrap();
        drop(peer);
        assert_eq!(Reader::start(stream, None).finish().bytes, b"hello");
    }
}
