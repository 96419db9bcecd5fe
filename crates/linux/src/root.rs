//! Where the kernel's file systems are, so that a test can give every module a folder instead of
//! the machine.

use std::io;
use std::path::{Path, PathBuf};

use thermocline_core::units::Pid;

use crate::record::{Entry, note};

/// No process number is as large (`PID_MAX_LIMIT` of 64-bit kernels, linux/threads.h).
const PIDS_MAX: u32 = 4 << 20;

/// Longest description of a malformed file.
const TOLD_BYTES_MAX: usize = 400;

/// The first bytes of a text, at most `bytes_max`, with a mark if it continues.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> String {
    format!("{}...", &text[..text.floor_char_boundary(bytes_max)])
}

/// The folders that the kernel's interfaces are mounted at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// sysfs, with debugfs, tracefs, bpffs and cgroup file systems below it.
    pub sys: PathBuf,
    /// procfs.
    pub proc: PathBuf,
    /// Kernel images and their configurations.
    pub boot: PathBuf,
    /// Runtime files: the lock that all daemons of the machine share.
    pub run: PathBuf,
}

impl Default for Root {
    fn default() -> Root {
        Root::at("/")
    }
}

/// Why a file of the kernel could not be used.
#[derive(Debug, thiserror::Error)]
pub enum KernelFileError {
    /// The kernel (or its configuration) has no such file.
    #[error("this kernel does not offer {what}: {} is absent; {remedy}", path.display())]
    NotSupported {
        /// The feature, in the kernel's own terms.
        what: String,
        /// The file that would be there.
        path: PathBuf,
        /// What brings the feature.
        remedy: String,
    },
    /// The file is there but an operation on it failed.
    #[error("cannot {action} {}: {cause}", path.display())]
    Io {
        /// "read", "write", "list".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The file's text is not what the kernel documents.
    #[error("{}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        what: String,
    },
}

impl KernelFileError {
    /// An [`KernelFileError::Io`].
    pub fn io(action: &'static str, path: &Path, cause: io::Error) -> KernelFileError {
        KernelFileError::Io { action, path: path.to_owned(), cause }
    }

    /// A [`KernelFileError::Malformed`]. Only the beginning of a quoted text is kept.
    pub fn malformed(path: &Path, what: impl Into<String>) -> KernelFileError {
        let what = what.into();
        let what = if what.len() > TOLD_BYTES_MAX { beginning(&what, TOLD_BYTES_MAX) } else { what };
        KernelFileError::Malformed { path: path.to_owned(), what }
    }

    /// A [`KernelFileError::NotSupported`].
    pub fn not_supported(what: &str, path: &Path, remedy: &str) -> KernelFileError {
        KernelFileError::NotSupported {
            what: what.to_owned(),
            path: path.to_owned(),
            remedy: remedy.to_owned(),
        }
    }
}

impl Root {
    /// The kernel's file systems below `folder`, each at its usual place.
    pub fn at(folder: impl AsRef<Path>) -> Root {
        let folder = folder.as_ref();
        Root {
            sys: folder.join("sys"),
            proc: folder.join("proc"),
            boot: folder.join("boot"),
            run: folder.join("run"),
        }
    }

    /// Whether this is the machine that we run on. Questions that only a running machine can
    /// answer, such as this process's permissions, must not be asked otherwise.
    pub fn is_live(&self) -> bool {
        self.proc == Path::new("/proc")
    }

    /// Our own process number there. On a machine that we do not run on it is a number that no
    /// process can have, so that none of its processes is taken for us.
    pub fn own_pid(&self) -> Pid {
        match self.is_live() {
            true => Pid(std::process::id()),
            false => Pid(PIDS_MAX),
        }
    }

    /// Maps a path of the machine to its place below the root.
    pub fn rebase(&self, path: &Path) -> PathBuf {
        let folder = self.proc.parent().unwrap_or(Path::new("/"));
        folder.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// `kernel/debug` of sysfs, where debugfs is mounted by convention.
    pub fn debugfs(&self) -> PathBuf {
        self.sys.join("kernel/debug")
    }

    /// The version of the running kernel; `None` if it cannot be determined.
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let release = read_optional(&self.proc.join("sys/kernel/osrelease")).ok()??;
        kernel_version(&release)
    }

    /// The identity of this boot: values recorded in another boot are not ours to put back.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn boot_id(&self) -> Result<String, KernelFileError> {
        let path = self.proc.join("sys/kernel/random/boot_id");
        match read_optional(&path)? {
            Some(text) => Ok(text.trim().to_owned()),
            None => Err(KernelFileError::not_supported("the boot id", &path, "mount procfs")),
        }
    }
}

/// The version that a release begins with, as in "6.12.117+deb12-amd64".
pub(crate) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The text of a file, or `None` if it is absent. Bytes that are not UTF-8 are replaced: the kernel
/// writes ASCII, but command names are arbitrary bytes.
///
/// # Errors
/// The file exists and cannot be read.
pub fn read_optional(path: &Path) -> Result<Option<String>, KernelFileError> {
    match read_bytes(path) {
        Ok(bytes) => Ok(Some(lossy(bytes))),
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(KernelFileError::io("read", path, e)),
    }
}

/// Larger than any kernel file that we read; a copy of a machine may have a longer one in its
/// place.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The bytes of a file.
///
/// # Errors
/// As [`std::fs::read`], or it is too long.
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = crate::regular::read_at_most(path, FILE_BYTES_MAX)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than any file of the kernel"));
    }
    note(path, || Entry::File(bytes.clone()));
    Ok(bytes)
}

/// Whether something exists at a path.
pub(crate) fn exists(path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    note(path, || entry(&meta));
    true
}

/// The target of a symbolic link; `None` if there is none.
pub(crate) fn link_target(path: &Path) -> Option<PathBuf> {
    let target = std::fs::read_link(path).ok()?;
    note(path, || Entry::Link(target.clone()));
    Some(target)
}

fn entry(meta: &std::fs::Metadata) -> Entry {
    if meta.is_dir() { Entry::Folder } else { Entry::File(Vec::new()) }
}

/// The names in a folder in unspecified order, or `None` if it is absent.
///
/// # Errors
/// The folder exists and cannot be listed.
pub fn list_optional(path: &Path) -> Result<Option<Vec<String>>, KernelFileError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if is_absent(&e) => return Ok(None),
        Err(e) => return Err(KernelFileError::io("list", path, e)),
    };
    note(path, || Entry::Folder);
    let mut names = Vec::new();
    for found in entries {
        let found = found.map_err(|e| KernelFileError::io("list", path, e))?;
        let place = found.path();
        note(&place, || std::fs::metadata(&place).map_or(Entry::File(Vec::new()), |meta| entry(&meta)));
        names.push(found.file_name().to_string_lossy().into_owned());
    }
    Ok(Some(names))
}

/// A file that vanished between listing and reading, or a process that ended while its file was
/// read (ESRCH), counts as absent.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ESRCH)
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_file_is_normal_and_a_folder_in_its_place_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_optional(&dir.path().join("absent")).unwrap(), None);
        let error = read_optional(dir.path()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot read {}", dir.path().display())), "{error}");
        assert_eq!(list_optional(&dir.path().join("absent")).unwrap(), None);
    }

    #[test]
    fn what_is_too_long_is_refused_and_what_is_quoted_is_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zoneinfo");
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read_optional(&path).unwrap_err().to_string().contains("longer than any file"));
        let told = KernelFileError::malformed(&path, format!("{:?} is no size", "é".repeat(3 << 20)));
        assert!(told.to_string().len() < path.display().to_string().len() + 500);
    }

    #[test]
    fn says_which_feature_the_kernel_lacks() {
        let error = KernelFileError::not_supported("NUMA balancing", Path::new("/x"), "boot another kernel");
        assert_eq!(
            error.to_string(),
            "this kernel does not offer NUMA balancing: /x is absent; boot another kernel"
        );
    }
}
