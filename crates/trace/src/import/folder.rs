//! An import into a folder, as a recording.

use std::cell::Cell;
use std::fs;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::time::Duration;

use thermocline_core::topology::Topology;

use super::{Format, HEAD_BYTES, ImportError, Options, Summary, TIMES, detect, read};
use crate::reader::IMPORTED;
use crate::recorder::{self, Recorder};
use crate::writer::{About, Limits};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 18;

/// What an import came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The format.
    pub format: Format,
    /// What was read.
    pub read: Summary,
    /// What was written.
    pub written: recorder::Summary,
}

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum IntoFolderError {
    /// The format is not known.
    #[error("{0}")]
    Unknown(String),
    /// The input cannot be imported; what was written of it is removed.
    #[error("{0}")]
    Import(#[from] ImportError),
    /// The recording cannot be written.
    #[error("{0}")]
    Write(String),
}

/// Imports an input into a folder, which is made where it does not exist. `settings` are added to
/// those that say what was imported. `progress` gets the bytes read so far, now and then. The
/// format is recognised where none is given.
///
/// # Errors
/// The format is not known, the input is damaged or cannot be read, or the folder cannot be
/// written. Then nothing is left in the folder.
pub fn into_folder(
    input: &mut dyn Read,
    format: Option<Format>,
    options: &Options,
    (folder, settings): (&Path, &[(String, String)]),
    progress: &mut dyn FnMut(u64),
) -> Result<Done, IntoFolderError> {
    let mut head = Vec::new();
    input.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(ImportError::Read)?;
    let format = match format {
        Some(format) => format,
        None => detect(&head).map_err(IntoFolderError::Unknown)?,
    };
    let mut about = settings.to_vec();
    about.push((IMPORTED.to_owned(), format.name().to_owned()));
    about.push((TIMES.to_owned(), format.times().to_owned()));
    let about = About { settings: about, topology: Topology::default() };
    // Steps are not those of a machine, and their times may be no ns: parts end by their size.
    let limits = Limits { backlog_bytes: None, flush: Duration::MAX, ..Limits::default() };
    let existed = folder.exists();
    let recorder = Recorder::start(folder, about, limits, false);
    let mut recorder = recorder.map_err(|error| IntoFolderError::Write(error.to_string()))?;
    let bytes = Cell::new(0);
    let counted = Counted { input: Cursor::new(head).chain(input), bytes: &bytes };
    let mut buffered = BufReader::with_capacity(BUFFER_BYTES, counted);
    let result = read(format, &mut buffered as &mut dyn BufRead, options, &mut |time, piece| {
        progress(bytes.get());
        recorder.put(time, piece)
    });
    let written = recorder.finish();
    let failed = match (result, &written.ended) {
        (_, Some(end)) => IntoFolderError::Write(end.why.clone()),
        (Ok(read), None) => return Ok(Done { format, read, written }),
        (Err(error), None) => IntoFolderError::Import(error),
    };
    clear(folder, existed);
    Err(failed)
}

/// Removes what was written: the folder was empty.
fn clear(folder: &Path, existed: bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
    if !existed {
        let _ = fs::remove_dir(folder);
    }
}

/// Counts the bytes that pass.
struct Counted<'a, R> {
    input: R,
    bytes: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(to)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}
