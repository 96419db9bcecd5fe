//! Rows of a table in memory, column by column, as they are written and as they are read.

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::RowGroupReader;
use parquet::file::writer::SerializedColumnWriter;

use crate::schema::{Column, Kind, Table};

/// A value of a row that is not what its column may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row} of table {table}: column {column} has a value that it cannot have")]
pub struct Bad {
    /// The table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
    /// The row of its group, from 0.
    pub row: usize,
}

/// The values of a column. Those of rows without a value are left out where it is written, and
/// arbitrary where it is read.
#[derive(Debug)]
pub enum Values {
    /// 64 bits, signed or not as the column is.
    Long(Vec<i64>),
    /// 32 bits, unsigned.
    Int(Vec<i32>),
    /// True or false.
    Flag(Vec<bool>),
    /// Text.
    Text(Vec<ByteArray>),
}

impl Values {
    fn of(kind: Kind) -> Values {
        match kind {
            Kind::Near | Kind::NearSigned | Kind::Wide | Kind::WideSigned => Values::Long(Vec::new()),
            Kind::Number => Values::Int(Vec::new()),
            Kind::Flag => Values::Flag(Vec::new()),
            Kind::Text => Values::Text(Vec::new()),
        }
    }

    fn clear(&mut self) {
        match self {
            Values::Long(values) => values.clear(),
            Values::Int(values) => values.clear(),
            Values::Flag(values) => values.clear(),
            Values::Text(values) => values.clear(),
        }
    }
}

/// A column's values, and for each row whether it has one: 1 or 0, as Parquet wants it, and nothing
/// if it is not nullable.
#[derive(Debug)]
pub struct Cells {
    /// The column.
    pub column: &'static Column,
    /// Its values.
    pub values: Values,
    /// Which rows have one.
    pub has: Vec<i16>,
}

/// Rows of one table.
#[derive(Debug)]
pub struct Rows {
    table: &'static Table,
    cells: Vec<Cells>,
    len: usize,
}

impl Rows {
    /// No rows.
    pub fn new(table: &'static Table) -> Rows {
        let cells = table.columns.iter();
        let cells = cells.map(|c| Cells { column: c, values: Values::of(c.kind), has: Vec::new() });
        Rows { table, cells: cells.collect(), len: 0 }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all rows and keeps their memory.
    pub fn clear(&mut self) {
        self.len = 0;
        for cells in &mut self.cells {
            cells.values.clear();
            cells.has.clear();
        }
    }

    /// The columns, in order.
    pub fn into_columns(self) -> Vec<Cells> {
        self.cells
    }

    /// Adds a row, whose values are then given in the order of its columns.
    pub fn add(&mut self, event: u64) -> Cell<'_> {
        self.len += 1;
        Cell { cells: self.cells.iter_mut() }.number(event)
    }

    /// Writes a column into a file.
    pub(crate) fn write(&self, column: usize, to: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let cells = &self.cells[column];
        let has = cells.column.nullable.then_some(&cells.has[..]);
        fn put<T: DataType>(
            to: &mut SerializedColumnWriter<'_>,
            values: &[T::T],
            has: Option<&[i16]>,
        ) -> Result<()> {
            let typed: &mut ColumnWriterImpl<'_, T> = to.typed();
            typed.write_batch(values, has, None).map(drop)
        }
        match &cells.values {
            Values::Long(values) => put::<Int64Type>(to, values, has),
            Values::Int(values) => put::<Int32Type>(to, values, has),
            Values::Flag(values) => put::<BoolType>(to, values, has),
            Values::Text(values) => put::<ByteArrayType>(to, values, has),
        }
    }

    /// Replaces the rows by those of a group of a file.
    pub(crate) fn read(&mut self, group: &dyn RowGroupReader) -> Result<()> {
        self.clear();
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
        for (i, cells) in self.cells.iter_mut().enumerate() {
            // A file may be older than the column's being nullable.
            let nullable = group.metadata().column(i).column_descr().max_def_level() > 0;
            match (group.get_column_reader(i)?, &mut cells.values) {
                (ColumnReader::Int64ColumnReader(mut from), Values::Long(to)) => {
                    take(&mut from, rows, nullable, to, &mut cells.has)?;
                }
                (ColumnReader::Int32ColumnReader(mut from), Values::Int(to)) => {
                    take(&mut from, rows, nullable, to, &mut cells.has)?;
                }
                (ColumnReader::BoolColumnReader(mut from), Values::Flag(to)) => {
                    take(&mut from, rows, nullable, to, &mut cells.has)?;
                }
                (ColumnReader::ByteArrayColumnReader(mut from), Values::Text(to)) => {
                    take(&mut from, rows, nullable, to, &mut cells.has)?;
                }
                _ => return Err(ParquetError::General(format!("column {i} is of another type"))),
            }
            if cells.column.nullable && !nullable {
                cells.has.resize(rows, 1);
            }
        }
        self.len = rows;
        Ok(())
    }

    /// The event that a row belongs to.
    pub fn event(&self, row: usize) -> Option<u64> {
        match &self.cells[0].values {
            Values::Long(values) if row < self.len => values.get(row).map(|event| *event as u64),
            _ => None,
        }
    }

    /// The values of a row after its event, in the order of the columns.
    pub fn values(&self, row: usize) -> RowValues<'_> {
        RowValues { rows: self, row, column: 1 }
    }
}

/// Reads all rows of a column. Parquet gives the values alone; each is put where its row is.
fn take<T: DataType>(
    from: &mut ColumnReaderImpl<T>,
    rows: usize,
    nullable: bool,
    values: &mut Vec<T::T>,
    has: &mut Vec<i16>,
) -> Result<()> {
    let mut read = 0;
    while read < rows {
        let (records, ..) = from.read_records(rows - read, nullable.then_some(&mut *has), None, values)?;
        if records == 0 {
            return Err(ParquetError::General(format!("{read} of {rows} rows are there")));
        }
        read += records;
    }
    if nullable && values.len() < rows {
        let mut next = values.len();
        values.resize(rows, T::T::default());
        // From the end, so that no value is overwritten before it has been moved.
        for row in (0..rows).rev() {
            if has[row] == 1 {
                next =
                    next.checked_sub(1).ok_or_else(|| ParquetError::General("values are missing".into()))?;
                values.swap(row, next);
            }
        }
    }
    Ok(())
}

/// Gives a new row its values.
pub struct Cell<'a> {
    cells: std::slice::IterMut<'a, Cells>,
}

impl Cell<'_> {
    fn next(&mut self) -> Option<&mut Cells> {
        let next = self.cells.next();
        debug_assert!(next.is_some(), "more values than columns");
        next
    }

    /// A number.
    pub fn number(mut self, number: impl Into<u64>) -> Self {
        if let Some(cells) = self.next() {
            put_number(cells, number.into());
        }
        self
    }

    /// A number, if there is one.
    pub fn maybe(mut self, number: Option<impl Into<u64>>) -> Self {
        if let Some(cells) = self.next() {
            cells.has.push(i16::from(number.is_some()));
            if let Some(number) = number {
                put_number(cells, number.into());
            }
        }
        self
    }

    /// A flag.
    pub fn flag(mut self, flag: bool) -> Self {
        if let Some(Cells { values: Values::Flag(values), .. }) = self.next() {
            values.push(flag);
        }
        self
    }

    /// A flag, if there is one.
    pub fn maybe_flag(mut self, flag: Option<bool>) -> Self {
        if let Some(Cells { values: Values::Flag(values), has, .. }) = self.next() {
            has.push(i16::from(flag.is_some()));
            values.extend(flag);
        }
        self
    }

    /// A text.
    pub fn text(mut self, text: &str) -> Self {
        if let Some(Cells { values: Values::Text(values), .. }) = self.next() {
            values.push(ByteArray::from(text));
        }
        self
    }

    /// A text, if there is one.
    pub fn maybe_text(mut self, text: Option<&str>) -> Self {
        if let Some(Cells { values: Values::Text(values), has, .. }) = self.next() {
            has.push(i16::from(text.is_some()));
            values.extend(text.map(ByteArray::from));
        }
        self
    }
}

fn put_number(cells: &mut Cells, number: u64) {
    match &mut cells.values {
        Values::Long(values) => values.push(number as i64),
        Values::Int(values) => values.push(number as i32),
        Values::Flag(_) | Values::Text(_) => debug_assert!(false, "{} takes no number", cells.column.name),
    }
}

/// Reads a row's values one after the other.
pub struct RowValues<'a> {
    rows: &'a Rows,
    row: usize,
    column: usize,
}

impl<'a> RowValues<'a> {
    /// The complaint about the value that was read last.
    pub fn bad(&self) -> Bad {
        let column = self.rows.table.columns.get(self.column.saturating_sub(1));
        Bad { table: self.rows.table.name, column: column.map_or("?", |c| c.name), row: self.row }
    }

    fn next(&mut self) -> Option<(&'a Values, bool)> {
        let cells = self.rows.cells.get(self.column)?;
        self.column += 1;
        Some((&cells.values, !cells.column.nullable || cells.has.get(self.row) == Some(&1)))
    }

    /// A number, if there is one.
    ///
    /// # Errors
    /// It does not fit its type.
    #[inline]
    pub fn maybe<T: TryFrom<u64>>(&mut self) -> std::result::Result<Option<T>, Bad> {
        let number = match self.next() {
            Some((Values::Long(values), true)) => values.get(self.row).map(|n| *n as u64),
            // Through 32 bits, so that the sign is not extended.
            Some((Values::Int(values), true)) => values.get(self.row).map(|n| u64::from(*n as u32)),
            Some((_, false)) => return Ok(None),
            _ => None,
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.bad())
    }

    /// A number.
    ///
    /// # Errors
    /// It does not fit its type, or there is none.
    #[inline]
    pub fn number<T: TryFrom<u64>>(&mut self) -> std::result::Result<T, Bad> {
        self.maybe()?.ok_or_else(|| self.bad())
    }

    /// A flag, if there is one.
    ///
    /// # Errors
    /// The column has no flags.
    pub fn maybe_flag(&mut self) -> std::result::Result<Option<bool>, Bad> {
        match self.next() {
            Some((Values::Flag(values), true)) => values.get(self.row).copied().map(Some),
            Some((_, false)) => Some(None),
            _ => None,
        }
        .ok_or_else(|| self.bad())
    }

    /// A flag.
    ///
    /// # Errors
    /// There is none.
    pub fn flag(&mut self) -> std::result::Result<bool, Bad> {
        self.maybe_flag()?.ok_or_else(|| self.bad())
    }

    /// A text, if there is one.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn maybe_text(&mut self) -> std::result::Result<Option<&'a str>, Bad> {
        match self.next() {
            Some((Values::Text(values), true)) => {
                values.get(self.row).and_then(|text| text.as_utf8().ok()).map(Some)
            }
            Some((_, false)) => Some(None),
            _ => None,
        }
        .ok_or_else(|| self.bad())
    }

    /// A text.
    ///
    /// # Errors
    /// It is not UTF-8, or there is none.
    pub fn text(&mut self) -> std::result::Result<&'a str, Bad> {
        self.maybe_text()?.ok_or_else(|| self.bad())
    }

    /// A text that names something.
    ///
    /// # Errors
    /// Nothing is named so.
    pub fn named<T>(&mut self, of: impl FnOnce(&str) -> Option<T>) -> std::result::Result<T, Bad> {
        let text = self.text()?;
        of(text).ok_or_else(|| self.bad())
    }
}
