//! Files that are files: a FIFO, a device or a socket in place of a file is refused without
//! waiting.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading. Links are followed.
///
/// # Errors
/// The file system's error; [`io::ErrorKind::InvalidInput`] with a sentence if it is not a regular
/// file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), 0, path)
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open`], or it cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open(path)?, &mut bytes)?;
    Ok(bytes)
}

/// The bytes of a regular file, or the first `bytes_max + 1` bytes of a longer one.
///
/// # Errors
/// As [`read`].
pub fn read_at_most(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = io::Read::take(open(path)?, bytes_max.saturating_add(1));
    io::Read::read_to_end(&mut { file }, &mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file with `options` and additional flags of open(2).
///
/// # Errors
/// As [`open`].
pub fn open_with(options: &OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    // Opening a FIFO would wait for its other end, and a terminal might become our controlling one.
    let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = options.clone().custom_flags(flags).open(path).map_err(|cause| {
        // A FIFO without a reader, or a socket.
        if cause.raw_os_error() == Some(libc::ENXIO) { refusal("a FIFO or a socket") } else { cause }
    })?;
    expect_regular(&file.metadata()?)?;
    Ok(file)
}

/// Refuses anything that is neither a regular file nor a folder; reading a folder gives its own
/// error.
pub(crate) fn expect_regular(meta: &Metadata) -> io::Result<()> {
    let kind = meta.file_type();
    let what = match kind {
        _ if kind.is_file() || kind.is_dir() => return Ok(()),
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(refusal(what))
}

fn refusal(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, socket) = (dir.path().join("fifo"), dir.path().join("socket"));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in
            [(fifo.as_path(), "FIFO"), (&socket, "socket"), (Path::new("/dev/zero"), "device")]
        {
            let error = read(path).unwrap_err().to_string();
            assert!(error.contains(what), "{}: {error}", path.display());
            let writing = open_with(OpenOptions::new().write(true), 0, path).unwrap_err();
            assert_eq!(writing.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read(&file).unwrap(), b"text");
        assert_eq!(read_at_most(&file, 2).unwrap(), b"tex");
        assert_eq!(read_at_most(&file, 4).unwrap(), b"text");
    }
}
