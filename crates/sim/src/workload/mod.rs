//! What programs do: processes with threads, each thread following a [`Pattern`].
//!
//! A pattern partitions the pages of its process into cells and gives each thread one [`Phase`]
//! after another. Within a phase every access is drawn independently from the same distribution (a
//! [`Distribution`] over cells, even within each), or follows a [`Walk`]. That suffices for event
//! mode to be exact in distribution: a change of distribution is a new phase. Exact mode draws
//! every access from the same phases ([`access::fill`]), in batches.
//!
//! To add a pattern: a file here with its keys (a serde struct) and its `Pattern`; a variant of
//! [`PatternSpec`]; an arm of [`PatternSpec::build`]. `tests/patterns.rs` and `tests/it/modes.rs`
//! compare the two modes.

pub mod access;
mod chunk_random;
pub mod distribution;
mod hotspot;
mod key_value;
mod latest;
mod oltp;
pub mod operation;
mod ranks;
mod recorded;
pub mod spec;
mod steady;
mod steps;
mod stream;
mod uniform;
pub mod walk;
mod zipf;

pub use chunk_random::ChunkRandom;
pub use distribution::Distribution;
pub use hotspot::Hotspot;
pub use key_value::{KeyValue, Workload};
pub use latest::Latest;
pub use oltp::Oltp;
pub use operation::{Operation, Visits};
pub use recorded::{Recorded, RecordedHeat};
pub use spec::{Place, ProcessSpec, Think};
pub use steps::{Phases, RandomStep, Region, Step, WalkStep};
pub use stream::{Split, Stream};
pub use uniform::Uniform;
pub use walk::Walk;
pub use zipf::Zipf;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::memory::CellMap;
use crate::memory::layout::Layout;
use crate::random::Random;
use crate::spec::SpecError;

/// How a thread accesses memory until something changes.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Each access is drawn from the distribution. Threads of a process that share it are simulated
    /// together.
    Random(Arc<Distribution>),
    /// One page after another.
    Walk(Walk),
}

/// A part of a thread's life with one way of accessing memory.
#[derive(Clone, Debug)]
pub struct Phase {
    /// How it accesses memory.
    pub shape: Shape,
    /// Accesses until the next phase.
    pub accesses: u64,
}

/// What the threads of a process access.
pub trait Pattern: std::fmt::Debug + Send {
    /// How positions follow from pages; fixed.
    fn layout(&self) -> Layout {
        Layout::Identity
    }

    /// The cells, by position; fixed. A few hundred are fast; every position belongs to one.
    fn cells(&self) -> CellMap;

    /// Share of the accesses that are stores, where it follows from the pattern and not from the
    /// process's own key.
    fn store_share(&self) -> Option<f64> {
        None
    }

    /// What an operation accesses, where accesses belong to operations.
    fn operation(&self) -> Option<Operation> {
        None
    }

    /// The next phase of a thread (of its process, from 0); `None` when it is done. `random`
    /// belongs to the thread and is used only for this, so that both modes have the same phases.
    fn next_phase(&mut self, thread: u32, random: &mut Random) -> Option<Phase>;
}

/// The patterns, as written in TOML: `pattern = { kind = "uniform", ... }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PatternSpec {
    /// A chunk chosen at random is accessed at random for a while, then the next.
    ChunkRandom(ChunkRandom),
    /// All pages are equally likely.
    Uniform(Uniform),
    /// Items of zipf popularity, scattered over the pages.
    Zipf(Zipf),
    /// Younger items are more popular.
    Latest(Latest),
    /// A share of the pages takes a share of the accesses; which ones changes.
    Hotspot(Hotspot),
    /// Walks, up or down, in pages or strides.
    Stream(Stream),
    /// Steps of walks and random accesses, repeatedly.
    Phases(Phases),
    /// A key-value store under YCSB.
    KeyValue(KeyValue),
    /// A database under sysbench.
    Oltp(Oltp),
    /// As recorded.
    Recorded(Recorded),
    /// Nothing: cold ballast.
    Idle(Idle),
}

impl PatternSpec {
    /// The pattern for a process of `pages` pages and `threads` threads.
    ///
    /// # Errors
    /// A key that does not suit the process; `place` is the dotted key of the pattern.
    pub fn build(&self, pages: u32, threads: u32, place: &str) -> Result<Box<dyn Pattern>, SpecError> {
        match self {
            PatternSpec::ChunkRandom(spec) => spec.build(pages, threads, place),
            PatternSpec::Uniform(spec) => spec.build(pages, place),
            PatternSpec::Zipf(spec) => spec.build(pages, threads, place),
            PatternSpec::Latest(spec) => spec.build(pages, threads, place),
            PatternSpec::Hotspot(spec) => spec.build(pages, threads, place),
            PatternSpec::Stream(spec) => spec.build(pages, threads, place),
            PatternSpec::Phases(spec) => spec.build(pages, threads, place),
            PatternSpec::KeyValue(spec) => spec.build(pages, threads, place),
            PatternSpec::Oltp(spec) => spec.build(pages, threads, place),
            PatternSpec::Recorded(spec) => spec.build(pages, threads, place),
            PatternSpec::Idle(_) => Ok(Box::new(Untouched { pages })),
        }
    }
}

/// The keys of the pattern `idle`: none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {}

/// Pages that are never accessed.
#[derive(Debug)]
struct Untouched {
    pages: u32,
}

impl Pattern for Untouched {
    fn cells(&self) -> CellMap {
        CellMap::equal(self.pages, self.pages)
    }

    fn next_phase(&mut self, _thread: u32, _random: &mut Random) -> Option<Phase> {
        None
    }
}
