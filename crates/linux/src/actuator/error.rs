//! Why a setting was not written, and what to do.

use std::io;
use std::path::PathBuf;

use super::RestoreReport;
use super::log::LogError;
use crate::root::KernelFileError;

/// Why a value was not written.
#[derive(Debug, thiserror::Error)]
pub enum ActuatorError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] KernelFileError),
    /// The restore log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A damaged log could not be kept aside; what could be read in it was put back.
    #[error("{cause}; what could be read in it:\n{put_back}")]
    Damaged {
        /// The reason.
        cause: LogError,
        /// The fate of the records that could be read.
        put_back: Box<RestoreReport>,
    },
    /// The kernel refused the value.
    #[error("cannot write {value} to {}: {cause}{}", path.display(), remedy(cause))]
    Write {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The kernel took another value than the one written.
    #[error("wrote {wanted} to {}, but the kernel has {found}; choose a value that it takes", path.display())]
    NotTaken {
        /// The file.
        path: PathBuf,
        /// What was written.
        wanted: String,
        /// What reads back.
        found: String,
    },
    /// Somebody else changed the value each time that it was to be written.
    #[error(
        "{} has changed at each try, and is {found} now: something else sets it again and \
         again; stop that, or unset the key that asks for it",
        path.display()
    )]
    Contended {
        /// The file.
        path: PathBuf,
        /// The value that was found last.
        found: String,
    },
    /// The path is not one of our settings, or not at the given place.
    #[error("{} is none of the kernel settings that thermocline writes", .0.display())]
    Outside(PathBuf),
    /// Everything has been put back, or the deputy is doing so.
    #[error("settings have been put back already, and nothing is changed any more")]
    TakenOver,
    /// A later step of a plan failed; earlier changes were put back.
    #[error("{cause}; {}", if put_back.is_complete() {
        "the settings changed before it were put back".to_owned()
    } else {
        format!("of the settings changed before it, these could not be put back: {put_back}")
    })]
    Plan {
        /// The failure.
        cause: Box<ActuatorError>,
        /// The fate of the earlier steps.
        put_back: RestoreReport,
    },
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "; run as root, outside of kernel lockdown",
        Some(libc::EROFS) => "; the file system is read-only here: run outside of the container",
        Some(libc::EINVAL) => "; this kernel does not know the value",
        Some(libc::ENOENT) => "; this kernel does not have it: unset the key that asks for it",
        _ => "",
    }
}
