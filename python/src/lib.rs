//! The native half of the Python package `thermocline`: asks the simulator and recordings, and
//! answers in JSON, which the package makes objects of. Tables of recordings go out as Arrow.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod grid;
mod recording;
mod simulation;
mod table;

use pyo3::prelude::*;

/// The native half of `thermocline`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::answer::Error;
    #[pymodule_export]
    use super::grid::{merge, runs, shard};
    #[pymodule_export]
    use super::recording::{plan, replay};
    #[pymodule_export]
    use super::simulation::{compare, simulate};
    #[pymodule_export]
    use super::table::{Table, read_trace, tables};

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
