//! The log of kernel settings to put back: written before each change, read after a crash.
//!
//! One record a line: eight hexadecimal digits of CRC-32, a space, JSON. A record is on disk before
//! its value is written, so an incomplete last line means that nothing was written for it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::private::{Folder, NotOurs};

/// Name of the log in the state folder.
pub const FILE_NAME: &str = "restore.log";

/// Maximum number of records in a log; a daemon that sets more without ever restoring is broken.
const RECORDS_MAX: usize = 65_536;

/// Name of the log while it is rewritten.
pub(crate) const NEXT_NAME: &str = "restore.log.new";

/// Maximum number of damaged logs kept.
const ASIDE_MAX: u32 = 100;

/// Maximum number of bytes read of a log.
const BYTES_MAX: u64 = 64 << 20;

/// A kernel value that we changed, or were about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The boot.
    pub boot_id: String,
    /// The file.
    pub path: PathBuf,
    /// Its value before.
    pub old: String,
    /// The value that we put there.
    pub ours: String,
}

/// The content of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Values to put back, oldest first.
    pub entries: Vec<Entry>,
    /// Numbers of lines that cannot be trusted; the last line of a crash is not among them. Lines
    /// beyond the maximum of a log are ignored.
    pub damaged: Vec<usize>,
}

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file operation failed.
    #[error("cannot {action} {}: {cause}; no kernel setting is changed without a record of it", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The log.
        path: PathBuf,
        /// The error.
        cause: io::Error,
    },
    /// Others can access it: such a log must not determine what root writes.
    #[error("{0}; no kernel setting is changed without a record of it")]
    NotOurs(#[from] NotOurs),
    /// A damaged log could not be kept.
    #[error(
        "a damaged restore log cannot be kept aside, and stays where it is: {0}; make room, then start again"
    )]
    Aside(NotOurs),
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
    folder: Arc<Folder>,
    file: Option<File>,
    records: usize,
    /// Bytes of the whole records.
    bytes: u64,
    /// A partial record may follow them.
    torn: bool,
}

impl RestoreLog {
    /// The log of `folder`, cut down to `entries`. Without entries the file is removed, and created
    /// again with the first record.
    ///
    /// # Errors
    /// A file operation failed; the old log is then still there.
    pub fn begin(folder: &Arc<Folder>, entries: &[Entry]) -> Result<RestoreLog, LogError> {
        let mut log =
            RestoreLog { folder: Arc::clone(folder), file: None, records: 0, bytes: 0, torn: false };
        if entries.is_empty() {
            folder.remove(FILE_NAME)?;
            return Ok(log);
        }
        folder.remove(NEXT_NAME)?;
        log.file = Some(folder.create(NEXT_NAME)?);
        for entry in entries {
            log.append(entry)?;
        }
        folder.rename(NEXT_NAME, FILE_NAME)?;
        folder.sync()?;
        Ok(log)
    }

    /// Appends a record and waits until it is on disk.
    ///
    /// # Errors
    /// The record is missing, or partly written, in which case the next one replaces it; its
    /// setting must not be changed.
    pub fn append(&mut self, entry: &Entry) -> Result<(), LogError> {
        let path = self.folder.path().join(FILE_NAME);
        if self.records >= RECORDS_MAX {
            return Err(LogError::Full(path));
        }
        let io = |action, cause| LogError::Io { action, path: path.clone(), cause };
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = self.folder.create(FILE_NAME)?;
                self.folder.sync()?;
                self.file.insert(file)
            }
        };
        let line = line(entry).map_err(|e| io("write", e.into()))?;
        if self.torn {
            file.set_len(self.bytes).map_err(|e| io("cut", e))?;
        }
        self.torn = true;
        let written = write(file, line.as_bytes());
        if written.is_err() {
            // If even that fails, it is tried again before the next record.
            self.torn = file.set_len(self.bytes).is_err();
        }
        written.map_err(|e| io("write", e))?;
        (self.records, self.bytes, self.torn) = (self.records + 1, self.bytes + line.len() as u64, false);
        Ok(())
    }
}

/// Appends to a file and syncs it to disk.
fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_data()
}

/// Reads the log of `state_dir`; an absent one is empty.
///
/// # Errors
/// It cannot be read, or others could have written it.
pub fn read(state_dir: &Path) -> Result<Contents, LogError> {
    Folder::open(state_dir)?.map_or_else(|| Ok(Contents::default()), |folder| read_in(&folder))
}

/// Like [`read`], for a folder that is known to be ours.
pub(super) fn read_in(folder: &Folder) -> Result<Contents, LogError> {
    Ok(parse(&bytes(folder)?))
}

fn bytes(folder: &Folder) -> Result<Vec<u8>, LogError> {
    let mut bytes = Vec::new();
    if let Some(file) = folder.read(FILE_NAME)? {
        let path = folder.path().join(FILE_NAME);
        let read = file.take(BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|cause| LogError::Io { action: "read", path, cause })?;
    }
    Ok(bytes)
}

/// Keeps a copy of a log that cannot be followed completely; returns its path.
///
/// # Errors
/// No free name is left, or it cannot be written.
pub(super) fn keep_aside(folder: &Folder) -> Result<PathBuf, LogError> {
    let log = bytes(folder)?;
    for number in 1..=ASIDE_MAX {
        let name = format!("{FILE_NAME}.damaged-{number}");
        let path = folder.path().join(&name);
        let mut file = match folder.create(&name) {
            Err(NotOurs::Io { cause, .. }) if is_taken(&cause) => continue,
            made => made.map_err(LogError::Aside)?,
        };
        if let Err(cause) = write(&mut file, &log) {
            // A partial copy would be mistaken for the whole.
            let _ = folder.remove(&name);
            return Err(LogError::Aside(NotOurs::Io { action: "write", path, cause }));
        }
        return Ok(path);
    }
    let (path, cause) = (folder.path().to_owned(), io::Error::other("there are too many damaged logs in it"));
    Err(LogError::Aside(NotOurs::Io { action: "add to", path, cause }))
}

fn is_taken(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::AlreadyExists
}

/// Parses a log; accepts any bytes.
pub fn parse(bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut lines = bytes.split(|&b| b == b'\n').enumerate().peekable();
    while let Some((i, line)) = lines.next() {
        let last = lines.peek().is_none();
        // After the last newline there is nothing, or a record that was cut off before its value
        // was written.
        if last || contents.entries.len() + contents.damaged.len() >= RECORDS_MAX {
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

/// A path that is not UTF-8 has no JSON.
fn line(entry: &Entry) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(entry)?;
    Ok(format!("{:08x} {json}\n", crc32(json.as_bytes())))
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
    use std::fs;

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
        let folder = Arc::new(Folder::make(dir.path()).unwrap());
        let mut log = RestoreLog::begin(&folder, &[]).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Contents::default());
        for n in 0..3 {
            log.append(&entry(n)).unwrap();
        }
        assert_eq!(read(dir.path()).unwrap().entries, [entry(0), entry(1), entry(2)]);
        let mut log = RestoreLog::begin(&folder, &[entry(1)]).unwrap();
        log.append(&entry(7)).unwrap();
        assert_eq!(read(dir.path()).unwrap().entries, [entry(1), entry(7)]);
        RestoreLog::begin(&folder, &[]).unwrap();
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
        assert_eq!(parse(&[b'\n'; 3 * RECORDS_MAX]).damaged.len(), RECORDS_MAX);
    }

    #[test]
    fn a_log_that_others_can_write_is_refused() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let dir = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::make(dir.path()).unwrap());
        RestoreLog::begin(&folder, &[entry(0)]).unwrap();
        let path = dir.path().join(FILE_NAME);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(matches!(read(dir.path()), Err(LogError::NotOurs(_))));
    }

    #[test]
    fn a_log_in_a_folder_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::make(dir.path()).unwrap());
        RestoreLog::begin(&folder, &[entry(0)]).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(read(dir.path()), Err(LogError::NotOurs(_))));
    }

    #[test]
    fn a_damaged_log_is_kept_beside_others_that_were() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::make(dir.path()).unwrap();
        fs::write(dir.path().join(FILE_NAME), "damaged\n").unwrap();
        let kept = [keep_aside(&folder).unwrap(), keep_aside(&folder).unwrap()];
        assert_ne!(kept[0], kept[1]);
        assert!(kept.iter().all(|path| fs::read(path).unwrap() == b"damaged\n"));
    }

    /// Set when the test reruns itself on a disk of a few pages.
    const SMALL_DISK: &str = "THERMOCLINE_TEST_SMALL_DISK";

    #[test]
    fn a_record_that_a_full_disk_has_cut_off_takes_no_other_with_it() {
        let Some(disk) = std::env::var_os(SMALL_DISK).map(PathBuf::from) else {
            return on_a_small_disk(
                "actuator::log::tests::a_record_that_a_full_disk_has_cut_off_takes_no_other_with_it",
            );
        };
        let folder = Arc::new(Folder::make(&disk.join("state")).unwrap());
        let mut log = RestoreLog::begin(&folder, &[entry(0)]).unwrap();
        // All but some bytes of the log's page is taken, and every other page.
        let long = |bytes: usize| Entry { old: "x".repeat(bytes), ..entry(1) };
        log.append(&long(4096 - 2 * line(&entry(1)).unwrap().len() - 20)).unwrap();
        let ballast = fs::write(disk.join("ballast"), vec![1; 1 << 20]);
        assert_eq!(ballast.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        let whole = fs::metadata(folder.path().join(FILE_NAME)).unwrap().len();
        let failed = log.append(&long(400)).unwrap_err().to_string();
        assert!(failed.contains("No space left"), "{failed}");
        assert_eq!(fs::metadata(folder.path().join(FILE_NAME)).unwrap().len(), whole);
        fs::remove_file(disk.join("ballast")).unwrap();
        log.append(&entry(2)).unwrap();
        let contents = read(folder.path()).unwrap();
        assert_eq!((contents.damaged.len(), contents.entries.len()), (0, 3));
        assert_eq!(contents.entries[2], entry(2));
    }

    /// Reruns a test, in a separate mount namespace with its own disk; requires root.
    fn on_a_small_disk(test: &str) {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let disk = tempfile::tempdir().unwrap();
        let mounted = "mount -t tmpfs -o size=32k,mode=700 none \"$1\" && shift && exec \"$@\"";
        let child = std::process::Command::new("unshare")
            .args(["-m", "sh", "-c", mounted, "sh"])
            .arg(disk.path())
            .arg(std::env::current_exe().unwrap())
            .args([test, "--exact"])
            .env(SMALL_DISK, disk.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{child:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }
    }
}
