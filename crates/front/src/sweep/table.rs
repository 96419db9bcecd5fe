//! Rows as Parquet: the columns of a plan, one row per run, in order of run numbers. Equal rows
//! give identical bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::record::Field;
use parquet::schema::types::Type;
use thermocline_sim::mode::ModeName;
use thermocline_sim::sweep::{KEYS, Kind, Plan, Row, Value, hash};

/// Rows per group; readers load a whole group.
const GROUP_ROWS: usize = 1 << 16;
/// Metadata key of the hash of the grid.
const GRID: &str = "thermocline.grid";
/// Metadata key of the hash of the rows. Damage may change a figure and still leave the file
/// readable.
const ROWS: &str = "thermocline.rows";

/// Whether a row has the plan's columns.
pub fn fits(plan: &Plan, row: &Row) -> bool {
    let fit = |(value, kind): (&Option<Value>, Kind)| value.as_ref().is_none_or(|v| v.kind() == kind);
    row.len() == plan.figures.len() && row.iter().zip(plan.figures.iter().map(|c| c.kind)).all(fit)
}

/// Writes rows.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    file: impl Write + Send,
    plan: &Plan,
    grid: &str,
    rows: &BTreeMap<u64, Row>,
) -> Result<(), ParquetError> {
    let columns = columns(plan);
    let fields: Vec<_> =
        columns.iter().map(|c| Ok(Arc::new(field(c)?))).collect::<Result<_, ParquetError>>()?;
    let schema = Arc::new(Type::group_type_builder("runs").with_fields(fields).build()?);
    let rows: Vec<(u64, &Row)> = rows.iter().map(|(run, row)| (*run, row)).collect();
    let note = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let notes = vec![note(GRID, grid.to_owned()), note(ROWS, rows_hash(plan, &rows))];
    let properties = WriterProperties::builder().set_key_value_metadata(Some(notes)).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    for group in rows.chunks(GROUP_ROWS) {
        let mut out = writer.next_row_group()?;
        for (i, column) in columns.iter().enumerate() {
            let values = group.iter().map(|(run, row)| cell(plan, *run, row, i));
            let mut to =
                out.next_column()?.ok_or_else(|| ParquetError::General("a column is missing".into()))?;
            match column.kind {
                Kind::Flag => put::<BoolType>(&mut to, column, values.map(flag)),
                Kind::Whole => put::<Int64Type>(&mut to, column, values.map(whole)),
                Kind::Real => put::<DoubleType>(&mut to, column, values.map(real)),
                Kind::Text => put::<ByteArrayType>(&mut to, column, values.map(text)),
            }?;
            to.close()?;
        }
        out.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Reads rows written by [`write()`].
///
/// # Errors
/// The file cannot be read, or belongs to another grid.
pub fn read(file: File, plan: &Plan, grid: &str) -> anyhow::Result<Vec<(u64, Row)>> {
    let reader = SerializedFileReader::new(file).context("it is not whole")?;
    let notes = reader.metadata().file_metadata().key_value_metadata();
    let note = |key| notes.and_then(|all| all.iter().find(|n| n.key == key)).and_then(|n| n.value.as_deref());
    ensure!(note(GRID) == Some(grid), "it is another grid's");
    let hash = note(ROWS).map(str::to_owned).context("it has no hash of its rows")?;
    let by_hash = plan.by_hash();
    let first = KEYS.len() + plan.parameters.len();
    let mut rows = Vec::new();
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let run = match (fields.first(), fields.get(KEYS.len() - 1)) {
            (Some(Field::Str(hash)), Some(Field::Long(seed))) => by_hash
                .get(hash.as_str())
                .zip(u64::try_from(*seed).ok())
                .and_then(|(configuration, seed)| plan.number(*configuration, seed)),
            _ => None,
        };
        let run = run.ok_or_else(|| anyhow!("it has a run that the grid has not"))?;
        // The columns that follow from the grid and that the file repeats.
        let own = fields.iter().take(first).enumerate().all(|(column, field)| {
            value(field).is_ok_and(|value| value == cell(plan, run, &Row::new(), column))
        });
        ensure!(own, DAMAGED);
        let figures: Row = fields.into_iter().skip(first).map(value).collect::<anyhow::Result<_>>()?;
        ensure!(fits(plan, &figures), "it has other columns than the grid");
        rows.push((run, figures));
    }
    let of: Vec<(u64, &Row)> = rows.iter().map(|(run, row)| (*run, row)).collect();
    ensure!(rows_hash(plan, &of) == hash, DAMAGED);
    Ok(rows)
}

/// The error for a file that differs from what was written.
const DAMAGED: &str = "it is damaged: its rows are not those that were written";

/// The hash of rows in order. It covers everything that distinguishes two values: kind, length and
/// every bit.
fn rows_hash(plan: &Plan, rows: &[(u64, &Row)]) -> String {
    let columns = KEYS.len() + plan.parameters.len() + plan.figures.len();
    let mut of_rows = String::new();
    let mut bytes = Vec::new();
    for (run, row) in rows {
        bytes.clear();
        for column in 0..columns {
            let (kind, value): (u8, Vec<u8>) = match cell(plan, *run, row, column) {
                None => (0, Vec::new()),
                Some(Value::Flag(flag)) => (1, vec![u8::from(flag)]),
                Some(Value::Whole(whole)) => (2, whole.to_le_bytes().to_vec()),
                Some(Value::Real(real)) => (3, real.to_bits().to_le_bytes().to_vec()),
                Some(Value::Text(text)) => (4, text.as_bytes().to_vec()),
            };
            bytes.push(kind);
            bytes.extend((value.len() as u64).to_le_bytes());
            bytes.extend(value);
        }
        of_rows += &hash(&bytes);
    }
    hash(of_rows.as_bytes())
}

/// A column of the file.
struct Column<'a> {
    name: &'a str,
    kind: Kind,
    /// Its figure may be missing.
    optional: bool,
}

fn columns(plan: &Plan) -> Vec<Column<'_>> {
    let key = |name| Column { name, kind: Kind::Text, optional: false };
    let mut columns: Vec<Column<'_>> = KEYS.into_iter().map(key).collect();
    columns[KEYS.len() - 1].kind = Kind::Whole;
    columns.extend(plan.parameters.iter().map(|p| Column { name: &p.name, kind: p.kind, optional: false }));
    columns.extend(plan.figures.iter().map(|f| Column { name: &f.name, kind: f.kind, optional: true }));
    columns
}

fn field(column: &Column<'_>) -> Result<Type, ParquetError> {
    let physical = match column.kind {
        Kind::Flag => Physical::BOOLEAN,
        Kind::Whole => Physical::INT64,
        Kind::Real => Physical::DOUBLE,
        Kind::Text => Physical::BYTE_ARRAY,
    };
    let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(column.name, physical)
        .with_repetition(repetition)
        .with_logical_type((column.kind == Kind::Text).then_some(LogicalType::String))
        .build()
}

/// The value of a run in a column of [`columns`].
fn cell(plan: &Plan, run: u64, row: &Row, column: usize) -> Option<Value> {
    let (configuration, seed) = plan.run(run);
    let of = &plan.configurations[configuration];
    let text = |text: &str| Some(Value::Text(text.into()));
    match column {
        0 => text(&of.hash),
        1 => text(&of.scenario),
        2 => text(&of.manager),
        3 => text(match of.mode {
            ModeName::Exact => "exact",
            ModeName::Event => "event",
        }),
        4 => Some(Value::Whole(seed as i64)),
        _ => of
            .values
            .get(column - KEYS.len())
            .cloned()
            .or_else(|| row.get(column - KEYS.len() - of.values.len()).cloned().flatten()),
    }
}

fn put<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    column: &Column<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let there: Vec<T::T> = values.into_iter().flatten().collect();
    let writer: &mut ColumnWriterImpl<'_, T> = to.typed::<T>();
    writer.write_batch(&there, column.optional.then_some(&levels), None).map(|_| ())
}

fn flag(value: Option<Value>) -> Option<bool> {
    match value {
        Some(Value::Flag(flag)) => Some(flag),
        _ => None,
    }
}

fn whole(value: Option<Value>) -> Option<i64> {
    match value {
        Some(Value::Whole(whole)) => Some(whole),
        _ => None,
    }
}

fn real(value: Option<Value>) -> Option<f64> {
    match value {
        Some(Value::Real(real)) => Some(real),
        _ => None,
    }
}

fn text(value: Option<Value>) -> Option<ByteArray> {
    match value {
        Some(Value::Text(text)) => Some(ByteArray::from(&*text)),
        _ => None,
    }
}

fn value(field: &Field) -> anyhow::Result<Option<Value>> {
    Ok(match field {
        Field::Null => None,
        Field::Bool(flag) => Some(Value::Flag(*flag)),
        Field::Long(whole) => Some(Value::Whole(*whole)),
        Field::Double(real) => Some(Value::Real(*real)),
        Field::Str(text) => Some(Value::Text(text.as_str().into())),
        _ => return Err(anyhow!("it has a column of a kind that sweeps have not")),
    })
}
