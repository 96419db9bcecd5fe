//! A table of a recording, as Arrow.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchIterator, StringArray, UInt32Array,
    UInt64Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use thermocline_trace::column::{Cells, Values};
use thermocline_trace::reader::Recording;
use thermocline_trace::schema::{Column, Kind, TABLES, TableId};

use crate::answer::answer;

/// A table of a recording. Whoever takes Arrow takes it, without a copy: `pyarrow.table(table)`,
/// `polars.DataFrame(table)`.
#[pyclass(frozen, module = "thermocline", name = "Table")]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// Its name.
    #[pyo3(get)]
    name: &'static str,
    /// Files of the recording that are torn or damaged, and why.
    #[pyo3(get)]
    left_out: Vec<String>,
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    fn __repr__(&self) -> String {
        format!("<thermocline.Table {}: {} rows>", self.name, self.__len__())
    }

    /// The schema, by the PyCapsule interface of Arrow.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema);
        let schema = schema.map_err(|e| crate::answer::Error::new_err(e.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows, by the PyCapsule interface of Arrow. Another schema is not made of them.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore it.
        drop(requested_schema);
        let batches: Vec<_> = self.batches.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// The names of all tables.
#[pyfunction]
pub fn tables() -> Vec<&'static str> {
    TABLES.iter().map(|table| table.name).collect()
}

/// Reads a table of a recording into memory, as far as its files are whole.
#[pyfunction]
#[pyo3(signature = (folder, table))]
pub fn read_trace(py: Python<'_>, folder: PathBuf, table: &str) -> PyResult<Table> {
    answer(py, |stop| {
        let id = TableId::ALL.into_iter().find(|id| id.table().name == table);
        let id = id.ok_or_else(|| {
            anyhow!("table: a recording has no \"{table}\"; it has {}", tables().join(", "))
        })?;
        let recording = Recording::open(&folder)?;
        let schema = Arc::new(schema(id.table().columns));
        let mut reader = recording.read();
        let mut batches = Vec::new();
        while let Some(rows) = reader.next_rows(id) {
            let columns = rows.into_columns().into_iter().map(array).collect::<anyhow::Result<Vec<_>>>()?;
            batches.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                break;
            }
        }
        let damages = recording.left_out().iter().chain(reader.damages());
        let left_out = damages.map(ToString::to_string).collect();
        Ok(Table { schema, batches, name: id.table().name, left_out })
    })
}

fn schema(columns: &[Column]) -> Schema {
    let field = |column: &Column| {
        let kind = match column.kind {
            Kind::Near | Kind::Wide => DataType::UInt64,
            Kind::NearSigned | Kind::WideSigned => DataType::Int64,
            Kind::Number => DataType::UInt32,
            Kind::Flag => DataType::Boolean,
            Kind::Text => DataType::Utf8,
        };
        let about = [("unit", column.unit), ("meaning", column.meaning)];
        let about = about.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Field::new(column.name, kind, column.nullable).with_metadata(HashMap::from(about))
    };
    Schema::new(columns.iter().map(field).collect::<Vec<Field>>())
}

/// A column's values, in the memory that they were read into; text is copied.
fn array(cells: Cells) -> anyhow::Result<ArrayRef> {
    let Cells { column, values, has } = cells;
    let nulls = column.nullable.then(|| has.iter().map(|has| *has == 1).collect::<NullBuffer>());
    Ok(match (values, column.kind) {
        (Values::Long(values), Kind::NearSigned | Kind::WideSigned) => {
            Arc::new(Int64Array::try_new(values.into(), nulls)?)
        }
        (Values::Long(values), _) => {
            let values = ScalarBuffer::<u64>::from(Buffer::from_vec(values));
            Arc::new(UInt64Array::try_new(values, nulls)?)
        }
        (Values::Int(values), _) => {
            let values = ScalarBuffer::<u32>::from(Buffer::from_vec(values));
            Arc::new(UInt32Array::try_new(values, nulls)?)
        }
        (Values::Flag(values), _) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
        (Values::Text(texts), _) => {
            let there = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            let text = |row: usize| {
                let text = there(row).then(|| texts[row].as_utf8());
                text.transpose().with_context(|| format!("column {} is not text", column.name))
            };
            Arc::new((0..texts.len()).map(text).collect::<anyhow::Result<StringArray>>()?)
        }
    })
}
