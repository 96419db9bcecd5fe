//! The log of kernel settings to put back: written before each change, read after a crash.
//!
//! One record a line: eight hexadecimal digits of CRC-32, a space, JSON. A record is on the disk before the
//! value that it tells of is written, so a last line without its end means that nothing was written for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Name of the log in the state folder.
pub const FILE_NAME: &str = "restore.log";

/// Records in a log at most; a daemon that sets more without ever restoring is broken.
const RECORDS_MAX: usize = 65_536;

/// Bytes that are read of a log at most.
const BYTES_MAX: u64 = 64 << 20;

/// A kernel value that we changed, or were about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// In which boot.
    pub boot_id: String,
    /// The file.
    pub path: PathBuf,
    /// Its value before.
    pub old: String,
    /// The value that we put there.
    pub ours: String,
}

/// What a log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Values to put back, oldest first.
    pub entries: Vec<Entry>,
    /// Numbers of lines that cannot be trusted; the last line of a crash is not among them.
    pub damaged: Vec<usize>,
}

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file operation failed.
    #[error("cannot {action} {}: {cause}; no kernel setting is changed without a record of it", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The log.
        path: PathBuf,
        /// The answer.
        cause: io::Error,
    },
    /// Others can write the log, or own it: it must not tell root what to write where.
    #[error(
        "{} may be written by others than its user; check what it says, then remove it or `chmod 600` it",
        .0.display()
    )]
    Untrusted(PathBuf),
    /// There is no folder to keep a log in.
    #[error("no state folder for the restore log; no kernel setting is changed without a record of it")]
    NoFolder,
    /// Too many records.
    #[error("{} is full ({RECORDS_MAX} records)", .0.display())]
    Full(PathBuf),
}

/// The log, open for appending.
#[derive(Debug)]
pub struct RestoreLog {
    path: PathBuf,
    file: Option<File>,
    records: usize,
}

impl RestoreLog {
    /// The log of `state_dir`, cut down to `entries`. Without entries the file is removed, and made again with
    /// the first record.
    ///
    /// # Errors
    /// A file operation failed; the old log is then still there.
    pub fn begin(state_dir: &Path, entries: &[Entry]) -> Result<RestoreLog, LogError> {
        let path = state_dir.join(FILE_NAME);
        let mut log = RestoreLog { path: path.clone(), file: None, records: 0 };
        let io = |action, cause| LogError::Io { action, path: path.clone(), cause };
        if entries.is_empty() {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io("remove", e)),
                _ => return Ok(log),
            }
        }
        let next = state_dir.join(format!("{FILE_NAME}.new"));
        let _ = fs::remove_file(&next);
        log.file = Some(create(&next).map_err(|e| io("create", e))?);
        for entry in entries {
            log.append(entry)?;
        }
        fs::rename(&next, &path).map_err(|e| io("replace", e))?;
        sync_folder(state_dir).map_err(|e| io("sync the folder of", e))?;
        Ok(log)
    }

    /// Appends a record and waits until it is on the disk.
    ///
    /// # Errors
    /// The record may not be there; nothing may be changed for it.
    pub fn append(&mut self, entry: &Entry) -> Result<(), LogError> {
        if self.records >= RECORDS_MAX {
            return Err(LogError::Full(self.path.clone()));
        }
        let path = self.path.clone();
        let io = |action, cause| LogError::Io { action, path: path.clone(), cause };
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = create(&self.path).map_err(|e| io("create", e))?;
                let folder = self.path.parent().unwrap_or(Path::new("/"));
                sync_folder(folder).map_err(|e| io("sync the folder of", e))?;
                self.file.insert(file)
            }
        };
        let line = line(entry).map_err(|e| io("write", e.into()))?;
        file.write_all(line.as_bytes()).map_err(|e| io("write", e))?;
        file.sync_data().map_err(|e| io("sync", e))?;
        self.records += 1;
        Ok(())
    }
}

/// Reads the log of `state_dir`; an absent one is empty.
///
/// # Errors
/// It cannot be read, or others could have written it.
pub fn read(state_dir: &Path) -> Result<Contents, LogError> {
    let path = state_dir.join(FILE_NAME);
    let io = |action, cause| LogError::Io { action, path: path.clone(), cause };
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
        Err(e) => return Err(io("open", e)),
    };
    let meta = file.metadata().map_err(|e| io("look at", e))?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(LogError::Untrusted(path));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(|e| io("read", e))?;
    Ok(parse(&bytes))
}

/// What a log's bytes tell; any bytes are answered.
pub fn parse(bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut lines = bytes.split(|&b| b == b'\n').enumerate().peekable();
    while let Some((i, line)) = lines.next() {
        let last = lines.peek().is_none();
        // What follows the last newline is empty, or a record that was cut off before its value was written.
        if last || contents.entries.len() >= RECORDS_MAX {
            break;
        }
        match entry(line) {
            Some(entry) => contents.entries.push(entry),
            None => contents.damaged.push(i + 1),
        }
    }
    contents
}

fn entry(line: &[u8]) -> Option<Entry> {
    let (sum, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if sum != crc32(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// A path that is no UTF-8 has no JSON.
fn line(entry: &Entry) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(entry)?;
    Ok(format!("{:08x} {json}\n", crc32(json.as_bytes())))
}

fn create(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW;
    OpenOptions::new().append(true).create_new(true).mode(0o600).custom_flags(flags).open(path)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// CRC-32 as of IEEE 802.3, bit by bit: the log is a few lines long.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()))
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(n: u32) -> Entry {
        Entry {
            boot_id: "boot".to_owned(),
            path: PathBuf::from(format!("/proc/sys/{n}")),
            old: "1".to_owned(),
            ours: "line\nbreak \u{1f33a}".to_owned(),
        }
    }

    #[test]
    fn the_checksum_is_the_standard_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn what_was_appended_is_read_back_and_a_new_beginning_keeps_what_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = RestoreLog::begin(dir.path(), &[]).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Contents::default());
        for n in 0..3 {
            log.append(&entry(n)).unwrap();
        }
        assert_eq!(read(dir.path()).unwrap().entries, [entry(0), entry(1), entry(2)]);
        let mut log = RestoreLog::begin(dir.path(), &[entry(1)]).unwrap();
        log.append(&entry(7)).unwrap();
        assert_eq!(read(dir.path()).unwrap().entries, [entry(1), entry(7)]);
        RestoreLog::begin(dir.path(), &[]).unwrap();
        assert!(!dir.path().join(FILE_NAME).exists());
    }

    #[test]
    fn a_log_cut_anywhere_keeps_every_whole_record() {
        let bytes: Vec<u8> = (0..3).flat_map(|n| line(&entry(n)).unwrap().into_bytes()).collect();
        for cut in 0..=bytes.len() {
            let contents = parse(&bytes[..cut]);
            let whole = bytes[..cut].iter().filter(|&&b| b == b'\n').count();
            assert_eq!(contents.entries.len(), whole, "cut at {cut}");
            assert!(contents.damaged.is_empty(), "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_line_is_named_and_the_others_are_used() {
        let mut bytes: Vec<u8> = (0..3).flat_map(|n| line(&entry(n)).unwrap().into_bytes()).collect();
        let second = line(&entry(0)).unwrap().len() + 20;
        bytes[second] ^= 1;
        let contents = parse(&bytes);
        assert_eq!(contents.entries, [entry(0), entry(2)]);
        assert_eq!(contents.damaged, [2]);
    }

    #[test]
    fn a_log_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        RestoreLog::begin(dir.path(), &[entry(0)]).unwrap();
        let path = dir.path().join(FILE_NAME);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(matches!(read(dir.path()), Err(LogError::Untrusted(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }
    }
}
