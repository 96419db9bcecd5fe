//! What is asked of a recording as a whole.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use pyo3::prelude::*;
use serde_json::Value;
use thermocline_front::plan as planned;
use thermocline_front::plan::{latency, share, source, text};
use thermocline_front::replay as replayed;
use thermocline_front::replay::{JournalFile, Wanted, open};
use thermocline_trace::reader::Recording;

use crate::answer::{answer, told};

/// Says how much DRAM a recorded program needs.
#[pyfunction]
#[pyo3(signature = (folder, loss, latency_ns, memory_bound, sizes, source))]
pub fn plan(
    py: Python<'_>,
    folder: PathBuf,
    loss: &str,
    latency_ns: Option<&str>,
    memory_bound: Option<&str>,
    sizes: Vec<String>,
    source: Option<&str>,
) -> PyResult<String> {
    let wrong = |name: &'static str| move |what: String| anyhow!("{name}: {what}");
    answer(py, |_| {
        let asked = planned::Asked {
            loss: share(loss).map_err(wrong("loss"))?,
            latency_ns: latency_ns.map(latency).transpose().map_err(wrong("latency_ns"))?,
            memory_bound: memory_bound.map(share).transpose().map_err(wrong("memory_bound"))?,
            sizes: sizes.iter().map(|s| s.parse()).collect::<Result<_, _>>().map_err(wrong("sizes"))?,
            source: source.map(self::source).transpose().map_err(wrong("source"))?,
        };
        let recording = Recording::open(&folder)?;
        let answer = planned::plan(&asked, &recording)?;
        let mut value = serde_json::to_value(&answer)?;
        let fields = value.as_object_mut().context("an answer is an object")?;
        fields.insert("sentence".to_owned(), Value::String(text::sentence(&answer)));
        fields.insert("text".to_owned(), Value::String(text::text(&answer)));
        Ok(told(value, recording.left_out().iter().map(|file| format!("left out: {file}")).collect()))
    })
}

/// Replays a recording, and compares the decisions.
#[pyfunction]
#[pyo3(signature = (folder, rule, set, config, pages, journal))]
pub fn replay(
    py: Python<'_>,
    folder: PathBuf,
    rule: Option<String>,
    set: Vec<String>,
    config: Option<PathBuf>,
    pages: Option<usize>,
    journal: Option<PathBuf>,
) -> PyResult<String> {
    answer(py, |_| {
        let recording = open(&folder)?;
        let asked = replayed::Asked { rule, changes: set, config, pages };
        let wanted = Wanted::new(&asked, &recording)?;
        let mut file = journal.as_deref().map(JournalFile::create).transpose()?;
        let mut write = |decisions: &[_]| {
            if let Some(file) = &mut file {
                file.write(decisions);
            }
        };
        let outcome = replayed::replay(&recording, &wanted, pages, &mut write)?;
        file.map_or(Ok(()), JournalFile::finish)?;
        Ok(told(serde_json::to_value(&outcome)?, wanted.notes))
    })
}
