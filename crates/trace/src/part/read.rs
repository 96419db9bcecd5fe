//! Reads a part.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::file::{Sum, row_type};
use super::{FileEntry, Manifest, file_name};
use crate::column::{Bad, RowValues, Rows};
use crate::piece::Piece;
use crate::rows::{Header, Ranks, Take, get};
use crate::schema::{TABLES, TableId, VERSION};

/// What is wrong with a file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {what}", .path.display())]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub what: String,
}

impl Damage {
    /// Something is wrong with a file.
    pub fn new(path: impl Into<PathBuf>, what: impl Into<String>) -> Damage {
        Damage { path: path.into(), what: what.into() }
    }
}

impl From<Bad> for Damage {
    fn from(bad: Bad) -> Damage {
        Damage::new("", bad.to_string())
    }
}

/// A part that is read event by event.
pub struct ReadPart {
    manifest: Manifest,
    folder: PathBuf,
    tables: BTreeMap<usize, Cursor>,
    event: u64,
    ranks: Ranks,
}

/// Where reading a table stands.
struct Cursor {
    reader: SerializedFileReader<File>,
    next_group: usize,
    rows: Rows,
    row: usize,
}

impl ReadPart {
    /// Opens a part whose files are whole, by their sums.
    ///
    /// # Errors
    /// The first file that is damaged or missing.
    pub fn open(folder: &Path, manifest: &Manifest) -> Result<ReadPart, Damage> {
        let path = |file: &FileEntry| folder.join(file_name(&file.table, manifest.part));
        if manifest.schema != VERSION {
            let what = format!(
                "its schema has version {}, this program reads {VERSION}; use the version that wrote it",
                manifest.schema
            );
            return Err(Damage::new(folder.join(super::manifest_name(manifest.part)), what));
        }
        let mut tables = BTreeMap::new();
        for file in &manifest.files {
            let path = path(file);
            let Some(place) = TABLES.iter().position(|table| table.name == file.table) else { continue };
            let sum = Sum::of_file(&path).map_err(|e| Damage::new(&path, format!("cannot be read: {e}")))?;
            if sum.bytes() != file.bytes || sum.text() != file.sum {
                return Err(Damage::new(
                    &path,
                    "its bytes are not those that were written; its part is left out",
                ));
            }
            let cursor = Cursor::open(&path, place).map_err(|e| Damage::new(&path, e.to_string()))?;
            tables.insert(place, cursor);
        }
        if !tables.contains_key(&(TableId::Events as usize)) {
            return Err(Damage::new(folder, format!("part {} has no events", manifest.part)));
        }
        let event = manifest.first_event;
        Ok(ReadPart {
            manifest: manifest.clone(),
            folder: folder.to_owned(),
            tables,
            event,
            ranks: Ranks::default(),
        })
    }

    /// Passes on the rows of a table that belong to the part as a whole.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn head(
        &mut self,
        table: TableId,
        each: &mut dyn FnMut(RowValues<'_>) -> Result<(), Bad>,
    ) -> Result<(), Damage> {
        self.event = self.manifest.first_event;
        self.take(table, each)
    }

    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// A file is damaged.
    pub fn next_event(&mut self) -> Result<Option<(u64, Header, Piece)>, Damage> {
        let Some(cursor) = self.tables.get_mut(&(TableId::Events as usize)) else { return Ok(None) };
        let (event, head) = match cursor.header() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(what) => return Err(self.damage(TableId::Events, what)),
        };
        if !(self.event..self.manifest.end_event).contains(&event) {
            return Err(self.damage(TableId::Events, format!("event {event} is out of order")));
        }
        self.event = event;
        let mut ranks = std::mem::take(&mut self.ranks);
        let piece = get(&head, &mut ranks, self)?;
        self.ranks = ranks;
        self.event = event + 1;
        Ok(Some((event, head, piece)))
    }

    /// The rows of a group of a table, in the order of the file; `None` after the last group. What
    /// else is read of the part does not depend on it.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn group(&self, table: TableId, group: usize) -> Result<Option<Rows>, Damage> {
        let Some(cursor) = self.tables.get(&(table as usize)) else { return Ok(None) };
        if group >= cursor.reader.num_row_groups() {
            return Ok(None);
        }
        let mut rows = Rows::new(table.table());
        let read = cursor.reader.get_row_group(group).and_then(|group| rows.read(&*group));
        read.map_err(|e| self.damage(table, e.to_string()))?;
        Ok(Some(rows))
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn damage(&self, table: TableId, what: String) -> Damage {
        Damage::new(self.folder.join(file_name(table.table().name, self.manifest.part)), what)
    }
}

impl Take for ReadPart {
    type Error = Damage;

    fn take(
        &mut self,
        table: TableId,
        each: &mut dyn FnMut(RowValues<'_>) -> Result<(), Bad>,
    ) -> Result<(), Damage> {
        let event = self.event;
        let Some(cursor) = self.tables.get_mut(&(table as usize)) else { return Ok(()) };
        match cursor.take(event, each) {
            Ok(()) => Ok(()),
            Err(what) => Err(self.damage(table, what)),
        }
    }

    fn bad(&self) -> Damage {
        self.damage(TableId::Events, format!("event {} has not the rows that it should have", self.event))
    }
}

impl Cursor {
    fn open(path: &Path, place: usize) -> Result<Cursor, ParquetError> {
        let reader = SerializedFileReader::new(File::open(path)?)?;
        let found = reader.metadata().file_metadata().schema_descr();
        let wanted = row_type(&TABLES[place])?;
        let same = |i: usize, field: &parquet::schema::types::Type| {
            found.num_columns() > i
                && found.column(i).name() == field.name()
                && found.column(i).physical_type() == field.get_physical_type()
                && (field.is_optional() || found.column(i).max_def_level() == 0)
        };
        if !wanted.get_fields().iter().enumerate().all(|(i, field)| same(i, field)) {
            return Err(ParquetError::General("its columns are not those of the schema".into()));
        }
        Ok(Cursor { reader, next_group: 0, rows: Rows::new(&TABLES[place]), row: 0 })
    }

    /// Whether there is a row; reads the next group where the last one is used up.
    fn fill(&mut self) -> Result<bool, ParquetError> {
        while self.row >= self.rows.len() {
            if self.next_group >= self.reader.num_row_groups() {
                return Ok(false);
            }
            let group = self.reader.get_row_group(self.next_group)?;
            self.next_group += 1;
            self.row = 0;
            self.rows.read(&*group)?;
        }
        Ok(true)
    }

    /// The next event and its header, of the table of events.
    fn header(&mut self) -> Result<Option<(u64, Header)>, String> {
        if !self.fill().map_err(|e| e.to_string())? {
            return Ok(None);
        }
        let event = self.rows.event(self.row).unwrap_or_default();
        let head = Header::of(&mut self.rows.values(self.row)).map_err(|bad| bad.to_string())?;
        self.row += 1;
        Ok(Some((event, head)))
    }

    fn take(
        &mut self,
        event: u64,
        each: &mut dyn FnMut(RowValues<'_>) -> Result<(), Bad>,
    ) -> Result<(), String> {
        while self.fill().map_err(|e| e.to_string())? {
            while let Some(found) = self.rows.event(self.row).filter(|found| *found <= event) {
                if found < event {
                    return Err(format!("it has rows of event {found} that no event names"));
                }
                each(self.rows.values(self.row)).map_err(|bad| bad.to_string())?;
                self.row += 1;
            }
            if self.row < self.rows.len() {
                break;
            }
        }
        Ok(())
    }
}
