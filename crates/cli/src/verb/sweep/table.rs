//! Rows as Parquet: the columns of a plan, a row a run, in the order of their numbers. Equal rows make equal bytes.

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
use thermocline_sim::sweep::{KEYS, Kind, Plan, Row, Value};

/// Rows of a group; readers take a group at a time.
const GROUP_ROWS: usize = 1 << 16;
/// The file's own note of the grid that it belongs to.
const GRID: &str = "thermocline.grid";

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
    let note = KeyValue::new(GRID.to_owned(), grid.to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![note])).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let rows: Vec<(u64, &Row)> = rows.iter().map(|(run, row)| (*run, row)).collect();
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

/// Reads the rows that [`write()`] has written.
///
/// # Errors
/// It cannot be read, or is of another grid.
pub fn read(file: File, plan: &Plan, grid: &str) -> anyhow::Result<Vec<(u64, Row)>> {
    let reader = SerializedFileReader::new(file).context("it is not whole")?;
    let notes = reader.metadata().file_metadata().key_value_metadata();
    let of = notes.and_then(|all| all.iter().find(|n| n.key == GRID)).and_then(|n| n.value.as_deref());
    ensure!(of == Some(grid), "it is another grid's");
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
        let figures: Row = fields.into_iter().skip(first).map(value).collect::<anyhow::Result<_>>()?;
        ensure!(fits(plan, &figures), "it has other columns than the grid");
        rows.push((run, figures));
    }
    Ok(rows)
}

/// A column of the file.
struct Column<'a> {
    name: &'a str,
    kind: Kind,
    /// A figure may be missing.
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

/// A run's value in a column of [`columns`].
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
