//! Programs with known behaviour, and their judge.

pub mod ballast;
pub mod chase;
pub mod compute;
mod dataset;
pub mod hot_set;
pub mod hotcold;
pub mod judge;
pub mod keys;
pub mod memory;
pub mod modelled;
pub mod pattern;
pub mod report;
pub mod residency;
pub mod stream;
pub mod zipf;

pub use dataset::{DataSet, Database};

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// Writes `value` as JSON to `path`: readers see the old file or the whole new one.
///
/// # Errors
/// When the file or the part file beside it cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let write = || -> anyhow::Result<()> {
        // At once: a folder that the host shares takes a message for each write.
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        fs::write(&part, text)?;
        fs::rename(&part, path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Reads JSON from `path`.
///
/// # Errors
/// When the file cannot be read or does not hold a `T`.
pub fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes)
        .with_context(|| format!("{} does not hold what was expected", path.display()))
}

/// Writes `line` as one line of JSON, at once.
fn say(out: &mut impl Write, line: &impl Serialize) -> anyhow::Result<()> {
    let mut write = || -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        out.write_all(&text)?;
        Ok(out.flush()?)
    };
    write().context("cannot write the output")
}
