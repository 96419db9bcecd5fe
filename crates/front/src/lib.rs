//! What the command and the Python module share: configuration files, scenarios and recordings by
//! name, and what is computed for them. Each has its own way to ask and to show.
//!
//! [`load`] finds scenarios and machines, [`workload`] makes a scenario of a recording.
//! [`simulate`] and [`compare`] run them, and [`record`] records a run. [`plan`] and [`replay`]
//! answer from a recording, [`sweep`] keeps the runs of a grid in a folder. [`config`] reads
//! configurations, with messages that show the place.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod compare;
pub mod config;
pub mod foreign;
pub mod load;
pub mod plan;
pub mod record;
pub mod replay;
pub mod simulate;
pub mod sweep;
pub mod words;
pub mod workload;
