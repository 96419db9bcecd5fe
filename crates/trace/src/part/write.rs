//! Writes a part.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use thermocline_core::units::Nanos;

use super::file::{Summed, properties, row_type};
use super::{FileEntry, Manifest, UNFINISHED, file_name, manifest_name};
use crate::column::Rows;
use crate::piece::{Phase, Piece};
use crate::rows::Tables;
use crate::schema::{TABLES, Table, VERSION};

/// Rows of a group: what waits in memory to be written, per table.
const GROUP_ROWS: usize = 1 << 16;

/// A finished part.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its number.
    pub part: u32,
    /// Bytes on disk.
    pub bytes: u64,
    /// Pieces of evidence in it.
    pub pieces: u64,
    /// When its last step was.
    pub last_ns: Nanos,
    /// Its files.
    pub paths: Vec<PathBuf>,
}

/// A part that is being written.
pub struct PartWriter {
    folder: PathBuf,
    part: u32,
    tables: Tables,
    files: BTreeMap<usize, TableFile>,
    first: Option<(u64, Nanos)>,
    end: u64,
    last: Nanos,
    pieces: u64,
    rows: u64,
}

struct TableFile {
    writer: SerializedFileWriter<Summed<File>>,
    rows: u64,
}

impl PartWriter {
    /// A part with this number in a folder. Nothing is written before there are rows.
    pub fn new(folder: &Path, part: u32) -> PartWriter {
        PartWriter {
            folder: folder.to_owned(),
            part,
            tables: Tables::default(),
            files: BTreeMap::new(),
            first: None,
            end: 0,
            last: Nanos(0),
            pieces: 0,
            rows: 0,
        }
    }

    /// Whether it has no event yet.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// When its first step was.
    pub fn began(&self) -> Option<Nanos> {
        self.first.map(|(_, time)| time)
    }

    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes on disk so far. What waits in memory is not counted.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.writer.bytes_written() as u64).sum()
    }

    /// Rows that belong to the part as a whole: they have the number of its first event, which
    /// stands in no row of `events` by itself.
    pub fn head(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Adds an event.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn put(&mut self, event: u64, phase: Phase, time: Nanos, piece: &Piece) -> Result<(), ParquetError> {
        self.first.get_or_insert((event, time));
        (self.end, self.last) = (event + 1, time);
        self.pieces += piece.pieces();
        self.rows += 1 + piece.pieces();
        self.tables.put(event, phase, time, piece);
        self.write(GROUP_ROWS)
    }

    /// Writes the rows of tables that have at least `least` of them.
    fn write(&mut self, least: usize) -> Result<(), ParquetError> {
        for (i, rows) in self.tables.all().enumerate() {
            if rows.len() < least {
                continue;
            }
            let table = &TABLES[i];
            if !self.files.contains_key(&i) {
                let writer = open(&self.folder, table, self.part)?;
                self.files.insert(i, TableFile { writer, rows: 0 });
            }
            if let Some(file) = self.files.get_mut(&i) {
                file.group(table, rows)?;
            }
        }
        Ok(())
    }

    /// Finishes the part, which takes no further events; `None` if it has none.
    ///
    /// # Errors
    /// A file cannot be written or renamed. What there is of the part is to be
    /// [discarded](PartWriter::discard).
    pub fn finish(&mut self) -> Result<Option<Written>, ParquetError> {
        let Some((first_event, first_ns)) = self.first else { return Ok(None) };
        self.write(1)?;
        let mut files = Vec::new();
        let mut paths = Vec::new();
        for (i, file) in std::mem::take(&mut self.files) {
            let sum = file.writer.into_inner()?.sum;
            let (table, bytes) = (TABLES[i].name.to_owned(), sum.bytes());
            files.push(FileEntry { table, rows: file.rows, bytes, sum: sum.text() });
        }
        for file in &files {
            let path = self.folder.join(file_name(&file.table, self.part));
            fs::rename(unfinished(&path), &path)?;
            paths.push(path);
        }
        let manifest = Manifest {
            schema: VERSION,
            part: self.part,
            first_event,
            end_event: self.end,
            first_ns,
            last_ns: self.last,
            pieces: self.pieces,
            files,
            sum: String::new(),
        };
        let path = self.folder.join(manifest_name(self.part));
        let bytes = manifest.to_bytes();
        fs::write(unfinished(&path), &bytes)?;
        fs::rename(unfinished(&path), &path)?;
        paths.push(path);
        let bytes = manifest.bytes() + bytes.len() as u64;
        Ok(Some(Written { part: self.part, bytes, pieces: self.pieces, last_ns: self.last, paths }))
    }

    /// Removes what was written of an unfinished part, as far as possible.
    pub fn discard(self) {
        drop(self.files);
        let names = TABLES.iter().map(|table| file_name(table.name, self.part));
        for name in names.chain([manifest_name(self.part)]) {
            let path = self.folder.join(name);
            let _ = (fs::remove_file(unfinished(&path)), fs::remove_file(&path));
        }
    }
}

impl TableFile {
    fn group(&mut self, table: &Table, rows: &mut Rows) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for i in 0..table.columns.len() {
            let column = group.next_column()?;
            let mut column = column.ok_or_else(|| ParquetError::General("a column is missing".into()))?;
            rows.write(i, &mut column)?;
            column.close()?;
        }
        group.close()?;
        self.rows += rows.len() as u64;
        rows.clear();
        Ok(())
    }
}

fn open(folder: &Path, table: &Table, part: u32) -> Result<SerializedFileWriter<Summed<File>>, ParquetError> {
    let path = unfinished(&folder.join(file_name(table.name, part)));
    let file = File::create(path)?;
    SerializedFileWriter::new(Summed::new(file), Arc::new(row_type(table)?), Arc::new(properties(table)))
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// What a Parquet error says; of one of the file system, that alone.
pub fn message(error: &ParquetError) -> String {
    match error {
        ParquetError::External(source) => source.to_string(),
        other => other.to_string(),
    }
}

/// Makes the folder for a recording where it does not exist. Only its owner may read it: what is
/// accessed when tells of what programs do.
///
/// # Errors
/// It cannot be made or read, it is not empty, or others may write to it.
pub fn prepare(folder: &Path) -> io::Result<()> {
    let says = |kind, what: &str| io::Error::new(kind, format!("{} {what}", folder.display()));
    if let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    if fs::read_dir(folder)?.next().is_some() {
        return Err(says(io::ErrorKind::AlreadyExists, "is not empty; name another folder"));
    }
    let found = fs::metadata(folder)?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        let what = "may be written by others; name a folder that is not there yet";
        return Err(says(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}
