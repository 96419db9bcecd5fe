//! Files that are ours alone: no other user can have written or replaced them.
//!
//! A [`Folder`] is reached from `/` without a symbolic link, through folders that only root or we
//! may change, and belongs to us. Files opened in it are regular files of ours with a single link.
//! So we wrote every line in them, and our writes go nowhere else.

mod folder;

use std::io;
use std::path::{Path, PathBuf};

pub use folder::Folder;

/// Why a file or folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum NotOurs {
    /// Others have, or could have, written it.
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
        /// The attempted action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error.
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

    /// Whether permission is missing or nothing exists, rather than the owner being wrong.
    pub fn is_out_of_reach(&self) -> bool {
        use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
        matches!(self, NotOurs::Io { cause, .. }
            if matches!(cause.kind(), NotFound | PermissionDenied | ReadOnlyFilesystem))
    }
}

#[cfg(test)]
mod tests;
