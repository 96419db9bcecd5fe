//! Recordings of other tools, read as evidence: Valgrind's lackey, perf, damo, memtierd.
//!
//! Every piece of evidence is true to the input: what a format does not say stays unknown. A page
//! has no node, a sample that was not drawn from accesses has no period, regions that were counted
//! out of an unknown number are [`Piece::RegionCounts`]. The recording says in its settings what
//! its times are.
//!
//! A file is read as a stream. One that ends in the middle, or has something else in it, is refused
//! with its line; or it is read up to there.

mod bounded;
mod damo;
mod damon;
mod detect;
mod fields;
mod folder;
mod inflate;
mod lackey;
mod lines;
mod memtierd;
mod out;
mod perf;
mod quantity;

pub use detect::{HEAD_BYTES, detect};
pub use fields::Fields;
pub use folder::{Done, IntoFolderError, into_folder};

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader};

use thermocline_core::units::Nanos;

use crate::piece::Piece;
use crate::reader::TIMES;
use inflate::Inflate;
use lines::Lines;
use out::Out;

/// The setting that says where the input was damaged, if it was read up to there.
pub const DAMAGE: &str = "damage";
/// The setting that says what of the input is not in the recording.
pub const LEFT_OUT: &str = "left_out";

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What `valgrind --tool=lackey --trace-mem=yes` prints.
    Lackey,
    /// What `perf script` prints of memory samples and page faults.
    Perf,
    /// What `perf script` prints of `damon:damon_aggregated`, and damo writes as `perf_script`.
    Damon,
    /// What damo writes as `json`.
    Damo,
    /// What damo writes as `json_compressed`: the same, compressed by zlib.
    DamoCompressed,
    /// What memtierd prints for `tracker -dump raw new`.
    Memtierd,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] =
        [Format::Lackey, Format::Perf, Format::Damon, Format::Damo, Format::DamoCompressed, Format::Memtierd];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Lackey => "lackey",
            Format::Perf => "perf",
            Format::Damon => "damon",
            Format::Damo => "damo-json",
            Format::DamoCompressed => "damo-json-compressed",
            Format::Memtierd => "memtierd",
        }
    }

    /// The format of a name.
    pub fn named(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What the times of its recordings are.
    const fn times(self) -> &'static str {
        match self {
            Format::Lackey => lackey::TIMES,
            Format::Perf => "ns of perf's clock: CLOCK_MONOTONIC after `perf record -k CLOCK_MONOTONIC` only",
            Format::Damon => "ns of the tracer's clock",
            Format::Damo | Format::DamoCompressed => "ns of a clock that the file does not name",
            Format::Memtierd => "ns since 1970",
        }
    }
}

/// Intervals of DAMON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Between two checks of a region.
    pub sample: Nanos,
    /// Between two reports.
    pub aggregation: Nanos,
}

/// What a reader is told beside the input.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Read up to the first damage instead of refusing a damaged input.
    pub until_damage: bool,
    /// The fields that `perf script` was asked for, if they are not those that need no telling.
    pub fields: Option<Fields>,
    /// DAMON's intervals, for formats that do not name them.
    pub intervals: Option<Intervals>,
}

/// What is wrong with an input, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The line, from 1; of a compressed file, of what was compressed. 0: behind the last.
    pub line: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "at its end: {}", self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

/// Why an input is not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It is damaged, cut or mixed.
    #[error("{0}")]
    Flaw(Flaw),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The taker of the evidence takes no more.
    #[error("the recording has ended")]
    Stopped,
}

impl ImportError {
    /// Something is wrong in a line.
    fn flaw(line: u64, what: impl Into<String>) -> ImportError {
        ImportError::Flaw(Flaw { line, what: what.into() })
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pieces of evidence.
    pub pieces: u64,
    /// What of the input is no evidence of the recording: how much of what.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Where reading has ended before the input.
    pub damage: Option<Flaw>,
}

/// Reads evidence from an input. `take` gets the pieces in the input's order, each with the latest
/// time so far; it returns whether it takes more.
///
/// # Errors
/// The input is damaged, unless it is read [until there](Options::until_damage), or cannot be read.
/// Pieces that were taken before stay taken.
pub fn read(
    format: Format,
    input: &mut dyn BufRead,
    options: &Options,
    take: &mut dyn FnMut(Nanos, Piece) -> bool,
) -> Result<Summary, ImportError> {
    let mut out = Out::new(take);
    let result = match format {
        Format::Lackey => lackey::read(&mut Lines::new(input), &mut out),
        Format::Perf => perf::read(&mut Lines::new(input), options.fields.as_ref(), &mut out),
        Format::Damon => damon::read(&mut Lines::new(input), options.intervals, &mut out),
        Format::Damo => damo::read(input, options.intervals, &mut out),
        Format::DamoCompressed => compressed(input, options.intervals, &mut out),
        Format::Memtierd => memtierd::read(&mut Lines::new(input), &mut out),
    };
    match result {
        Ok(()) => {}
        Err(ImportError::Flaw(flaw)) if options.until_damage => out.summary.damage = Some(flaw),
        Err(error) => return Err(error),
    }
    out.finish()
}

fn compressed(
    input: &mut dyn BufRead,
    intervals: Option<Intervals>,
    out: &mut Out<'_>,
) -> Result<(), ImportError> {
    let mut inflate = Inflate::new(input);
    damo::read(&mut BufReader::new(&mut inflate), intervals, out)?;
    match inflate.is_followed()? {
        true => Err(ImportError::flaw(0, "something follows the compressed recording; cut it off")),
        false => Ok(()),
    }
}
