//! The journal of a replay as a file, a decision a line.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Context;
use thermocline_core::journal::Decision;

/// The replayed journal, as it is written.
pub struct JournalFile<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    written: std::io::Result<()>,
}

impl JournalFile<'_> {
    /// An empty file.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path) -> anyhow::Result<JournalFile<'_>> {
        let file = File::create(path).with_context(|| JournalFile::cannot(path))?;
        Ok(JournalFile { path, file: BufWriter::new(file), written: Ok(()) })
    }

    fn cannot(path: &Path) -> String {
        format!("cannot write the journal to {}", path.display())
    }

    /// Adds decisions. The first failure is told at the end.
    pub fn write(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            if self.written.is_ok() {
                let line = serde_json::to_string(decision).unwrap_or_default();
                self.written = writeln!(self.file, "{line}");
            }
        }
    }

    /// Brings all of it to the file.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.written.and_then(|()| self.file.flush()).with_context(|| JournalFile::cannot(self.path))
    }
}
