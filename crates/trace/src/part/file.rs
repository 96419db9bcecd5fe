//! The sum of a file's bytes, the properties of a table's file, and a file that keeps its sum.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnPath, Type};

use crate::schema::{Kind, Table, VERSION};

/// Metadata key of the version of the schema.
const SCHEMA: &str = "thermocline.schema";

/// A sum of bytes: tells accidental damage, not forgery. FNV-1a (Fowler, Noll, Vo) over words of 8
/// bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    state: u64,
    /// Bytes that do not make a word yet, and how many.
    rest: ([u8; 8], usize),
    bytes: u64,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum { state: 0xcbf2_9ce4_8422_2325, rest: ([0; 8], 0), bytes: 0 }
    }
}

impl Sum {
    fn word(&mut self, word: u64) {
        self.state = (self.state ^ word).wrapping_mul(0x0100_0000_01b3);
        // The product carries nothing downwards.
        self.state ^= self.state >> 29;
    }

    /// Adds bytes.
    pub fn add(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.rest.1 > 0 {
            let (rest, have) = &mut self.rest;
            let more = bytes.len().min(8 - *have);
            rest[*have..*have + more].copy_from_slice(&bytes[..more]);
            *have += more;
            bytes = &bytes[more..];
            if *have < 8 {
                return;
            }
            let word = u64::from_le_bytes(*rest);
            self.rest.1 = 0;
            self.word(word);
        }
        let (words, left) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        self.rest.0[..left.len()].copy_from_slice(left);
        self.rest.1 = left.len();
    }

    /// The bytes added.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sum in hexadecimal. The length counts too.
    pub fn text(mut self) -> String {
        let (mut rest, have) = self.rest;
        rest[have..].fill(0);
        self.word(u64::from_le_bytes(rest));
        self.word(self.bytes);
        format!("{:016x}", self.state)
    }

    /// The sum of a file.
    pub fn of_file(path: &Path) -> io::Result<Sum> {
        let mut sum = Sum::default();
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(sum),
                n => sum.add(&buffer[..n]),
            }
        }
    }
}

/// A file that keeps the sum of what is written to it.
#[derive(Debug)]
pub struct Summed<W> {
    inner: W,
    /// Of what was written.
    pub sum: Sum,
}

impl<W> Summed<W> {
    /// An empty file.
    pub fn new(inner: W) -> Summed<W> {
        Summed { inner, sum: Sum::default() }
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The type of a table's rows in Parquet.
pub fn row_type(table: &Table) -> Result<Type> {
    let mut fields = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        let whole = |bit_width| Some(LogicalType::integer(bit_width, false));
        let (physical, logical) = match column.kind {
            Kind::Near | Kind::Wide => (Physical::INT64, whole(64)),
            Kind::NearSigned | Kind::WideSigned => (Physical::INT64, None),
            Kind::Number => (Physical::INT32, whole(32)),
            Kind::Flag => (Physical::BOOLEAN, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition);
        fields.push(Arc::new(field.build()?));
    }
    Type::group_type_builder(table.name).with_fields(fields).build()
}

/// How a table's file is written.
pub fn properties(table: &Table) -> WriterProperties {
    let note = KeyValue::new(SCHEMA.to_owned(), VERSION.to_string());
    let mut properties = WriterProperties::builder()
        .set_key_value_metadata(Some(vec![note]))
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // Of a group, which is small: nobody looks for single pages of it.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in table.columns {
        let path = || ColumnPath::from(column.name);
        if matches!(column.kind, Kind::Near | Kind::NearSigned) {
            properties = properties
                .set_column_dictionary_enabled(path(), false)
                .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_depends_on_every_byte_and_not_on_how_they_come() {
        let bytes: Vec<u8> = (0..1003u32).map(|n| (n * 7) as u8).collect();
        let of = |bytes: &[u8]| {
            let mut sum = Sum::default();
            sum.add(bytes);
            sum.text()
        };
        let mut pieces = Sum::default();
        bytes.chunks(13).for_each(|piece| pieces.add(piece));
        assert_eq!(pieces.text(), of(&bytes));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            assert_ne!(of(&other), of(&bytes), "{at}");
        }
        assert_ne!(of(&bytes[..1002]), of(&bytes));
        assert_ne!(of(&[0; 3]), of(&[0; 4]));
    }
}
