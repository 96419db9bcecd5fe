//! The files of a configuration: the main file, then those of the folder `conf.d` beside it, sorted
//! by name.

use std::path::{Path, PathBuf};

use thermocline_linux::regular;

use super::layer::Layer;

/// The file of the installed service.
pub const DEFAULT_FILE: &str = "/etc/thermocline/thermocline.toml";
/// The folder of further files.
const FOLDER: &str = "conf.d";
/// Longest configuration that is read, in bytes.
const SIZE_BYTES_MAX: u64 = 256 << 10;
/// Maximum number of files read from a folder.
const FILES_MAX: usize = 256;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error(
        "cannot read {path}: {source}; give the path of a TOML file, or leave it out to use the defaults"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a configuration.
    #[error(
        "{path} is longer than {} KiB and cannot be a configuration; `thermocline config` prints one with all defaults",
        SIZE_BYTES_MAX >> 10
    )]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// There are too many files.
    #[error("{path} holds more than {FILES_MAX} files; put them together")]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
    /// The file is not text.
    #[error(
        "{path} line {line}: not UTF-8 text; `thermocline config` prints a configuration with all defaults"
    )]
    NotText {
        /// The file.
        path: PathBuf,
        /// The line of the first bad byte.
        line: usize,
    },
    /// The text is wrong; the message shows where, and what is allowed.
    #[error("{0}")]
    Invalid(String),
}

/// Reads the requested file and the files in the folder beside it. If none is requested, reads the
/// service's files if they exist.
pub(super) fn read(asked: Option<&Path>) -> Result<Vec<Layer>, FileError> {
    let path = asked.unwrap_or(Path::new(DEFAULT_FILE));
    let mut layers = match (read_one(path), asked) {
        (Err(FileError::Read { source, .. }), None) if source.kind() == std::io::ErrorKind::NotFound => {
            Vec::new()
        }
        (read, _) => vec![read?],
    };
    let beside = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.join(FOLDER),
        _ => PathBuf::from(FOLDER),
    };
    for file in of_folder(&beside)? {
        layers.push(read_one(&file)?);
    }
    Ok(layers)
}

/// The `.toml` files of a folder, sorted. Empty if the folder does not exist.
fn of_folder(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let failed = |source| FileError::Read { path: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(FileError::TooMany { path: folder.to_owned() });
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a file as text.
///
/// # Errors
/// It cannot be read, is too long, or is not text.
pub fn text(path: &Path) -> Result<String, FileError> {
    let read = |e| FileError::Read { path: path.to_owned(), source: e };
    let bytes = regular::read_at_most(path, SIZE_BYTES_MAX).map_err(read)?;
    if bytes.len() as u64 > SIZE_BYTES_MAX {
        return Err(FileError::TooLong { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = e.utf8_error().valid_up_to();
        let line = 1 + e.as_bytes()[..good].iter().filter(|b| **b == b'\n').count();
        FileError::NotText { path: path.to_owned(), line }
    })
}

fn read_one(path: &Path) -> Result<Layer, FileError> {
    Ok(Layer::file(&path.display().to_string(), &text(path)?))
}
