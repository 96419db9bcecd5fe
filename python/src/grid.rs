//! Sweeps: a shard of a grid, and the parts of all shards together.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use pyo3::prelude::*;
use rayon::ThreadPoolBuilder;
use serde_json::json;
use thermocline_front::sweep::{Begun, Folder, load, program};
use thermocline_sim::sweep::Shard;

use crate::answer::answer;

/// The number of runs of a grid, all of which are checked.
#[pyfunction]
#[pyo3(signature = (grid, machine))]
pub fn runs(py: Python<'_>, grid: PathBuf, machine: Option<String>) -> PyResult<u64> {
    answer(py, |_| Ok(load(&grid, machine.as_deref())?.plan.runs()))
}

/// Runs a shard, or what is left of it. `library`: this module's file, which says what made the
/// results.
#[pyfunction]
#[pyo3(signature = (grid, out, machine, shard, threads, library))]
pub fn shard(
    py: Python<'_>,
    grid: PathBuf,
    out: PathBuf,
    machine: Option<String>,
    shard: &str,
    threads: Option<usize>,
    library: PathBuf,
) -> PyResult<String> {
    answer(py, |stop| {
        let shard: Shard = shard.parse().map_err(|what| anyhow!("shard {shard}: {what}"))?;
        // As many as there are cores, if 0.
        let pool = ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build()?;
        let done = pool.install(|| {
            let sweep = load(&grid, machine.as_deref())?;
            let folder = Folder::create(&out, &sweep.plan, &program(&library)?)?;
            Begun::new(&folder, shard)?.run(&sweep, stop, &|| {})
        })?;
        if done.done < done.runs {
            bail!("{} of {} runs of shard {shard} are done and kept", done.done, done.runs);
        }
        Ok(json!({ "part": done.part, "runs": done.runs, "done_before": done.before }).to_string())
    })
}

/// Puts the parts of all shards together.
#[pyfunction]
#[pyo3(signature = (out))]
pub fn merge(py: Python<'_>, out: PathBuf) -> PyResult<String> {
    answer(py, |_| {
        let out: &Path = &out;
        let (file, rows) = thermocline_front::sweep::merge(&Folder::open(out)?, out)?;
        Ok(json!({ "file": file, "runs": rows.len() }).to_string())
    })
}
