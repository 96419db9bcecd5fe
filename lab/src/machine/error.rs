//! Errors and their remedies.

use std::path::PathBuf;
use std::time::Duration;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// How a guest ended if it did not report its command's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The guest's kernel panicked.
    Panicked,
    /// QEMU executed stale code after the guest's kernel had patched its own. The kernel took that
    /// for its own error, or did not get on. QEMU 7.2 occasionally does this when it emulates
    /// several processors, more often on a busy host.
    EmulatorFault {
        /// Whether the command had started.
        command_started: bool,
    },
    /// The time limit passed, and the guest was ended.
    TimedOut(Duration),
    /// The caller asked for the end (a signal).
    Interrupted,
    /// QEMU ended, or the guest powered off, before the command's status arrived.
    Died(String),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Panicked => write!(f, "the guest's kernel panicked"),
            End::EmulatorFault { .. } => write!(
                f,
                "QEMU ran stale code where the guest's kernel had patched its own (a known race of QEMU 7.2, not a \
                 fault of the kernel or the command); run it again"
            ),
            End::TimedOut(limit) => {
                write!(f, "the guest was ended after its time limit of {} s", limit.as_secs())
            }
            End::Interrupted => write!(f, "the guest was ended by a signal"),
            End::Died(why) => write!(f, "the guest ended before its command did: {why}"),
        }
    }
}

/// Why the lab failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A program that the lab needs is not installed.
    #[error(
        "{program} is not installed; install the packages that lab/packages.txt lists (Debian package: {package})"
    )]
    MissingProgram {
        /// The program's name.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// A program that the lab ran failed.
    #[error("{program} failed ({status}): {stderr}")]
    Program {
        /// The program and its arguments.
        program: String,
        /// Its exit status.
        status: String,
        /// The end of its error messages.
        stderr: String,
    },
    /// The machine's apt sources name no Debian archive.
    #[error(
        "no Debian archive among the apt sources of this machine ({searched}): the lab takes the mirror's address \
         from there; add a `deb` entry for Debian's main archive, or put a kernel into the cache on another machine"
    )]
    NoArchive {
        /// The files that were read.
        searched: String,
    },
    /// The signed index has no kernel of the requested line.
    #[error("the package index has no kernel image of line {line}; is the mirror complete?")]
    NoKernelInIndex {
        /// The kernel line.
        line: String,
    },
    /// A downloaded kernel package does not look as expected.
    #[error("the kernel package {release} lacks {what}; its layout may have changed")]
    Layout {
        /// The kernel release.
        release: String,
        /// What was expected.
        what: String,
    },
    /// No kernel is cached and none could be fetched.
    #[error("no kernel of line {line} in {} and none could be fetched: {source}; run `lab fetch` with a network", cache.display())]
    NoKernel {
        /// The kernel line.
        line: String,
        /// The cache folder.
        cache: PathBuf,
        /// Why the fetch failed.
        source: Box<Error>,
    },
    /// A data set could not be prepared.
    #[error("cannot prepare {name}: {source}")]
    DataSet {
        /// Program and size.
        name: String,
        /// Why.
        source: Box<Error>,
    },
    /// A cached kernel's record cannot be read.
    #[error("{} is not a kernel record ({source}); remove its folder and run `lab fetch`", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The requested machine cannot be built.
    #[error("{0}")]
    BadMachine(String),
    /// The guest ended without its command's status.
    #[error("{end}\n{console}")]
    Guest {
        /// How it ended.
        end: End,
        /// The last lines of the kernel's console, and QEMU's messages.
        console: String,
    },
}

impl Error {
    /// Whether this machine lacks what every guest needs: a program, or any kernel. In that case
    /// tests skip and say why.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::MissingProgram { .. } | Error::NoKernel { .. })
    }

    /// Wraps an I/O error with the action and the path.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { action, path, source }
    }
}
