//! Recordings: what a machine reported and what the engine decided, as a folder of Parquet files;
//! written while a machine runs, read, and replayed through an engine.
//!
//! [`import`] makes recordings of what other tools have written, and [`export`] writes recordings
//! for other tools.
//!
//! [`recorder::Recorder`] wraps a machine and passes what it sees to a thread that writes.
//! [`reader::Reader`] gives it back in order, and [`replay::Replay`] plays it to an engine in the
//! machine's place. [`heat`] estimates from it how hot memory was, and [`plan`] how much DRAM that
//! needs. [`digest`] sums it up in bounded memory.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod column;
pub mod config;
pub mod digest;
pub mod export;
pub mod heat;
pub mod import;
pub mod part;
pub mod piece;
pub mod plan;
pub mod private;
pub mod reader;
pub mod recorder;
pub mod replay;
pub mod rows;
pub mod schema;
pub mod stats;
pub mod writer;
