//! Files that are ours alone: no other user can have written or replaced them.
//!
//! A [`Folder`] is reached from `/` without a symbolic link, through folders that only root or we
//! may change, and belongs to us. What is opened in it is a regular file of ours with one name. So
//! a line in it is one that we wrote, and what is written to it goes nowhere else.

mod folder;

use std::io;
use std::path::{Path, PathBuf};

pub use folder::Folder;

/// Why a file or folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum NotOurs {
    /// Others have, or could have, a hand in it.
    #[error("{} {why}; {remedy}", path.display())]
    Shared {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What would change that.
        remedy: String,
    },
    /// An operation failed.
    #[error("cannot {action} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The answer.
        cause: io::Error,
    },
}

impl NotOurs {
    fn shared(path: &Path, why: impl Into<String>, remedy: impl Into<String>) -> NotOurs {
        NotOurs::Shared { path: path.to_owned(), why: why.into(), remedy: remedy.into() }
    }

    fn io(action: &'static str, path: &Path, cause: impl Into<io::Error>) -> NotOurs {
        NotOurs::Io { action, path: path.to_owned(), cause: cause.into() }
    }

    /// Whether we may not, or there is nothing: no fault of who owns it.
    pub fn is_out_of_reach(&self) -> bool {
        use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
        matches!(self, NotOurs::Io { cause, .. }
            if matches!(cause.kind(), NotFound | PermissionDenied | ReadOnlyFilesystem))
    }
}

#[cfg(test)]
mod tests;
