//! Lets a rule decide on recorded evidence, and compares the decisions.

pub mod diff;
mod file;
pub mod journals;
mod wanted;

use std::path::{Path, PathBuf};

use serde::Serialize;
use thermocline_core::journal::Decision;
use thermocline_trace::part::Damage;
use thermocline_trace::reader::Recording;
use thermocline_trace::replay::{Followed, ReplayError, replay as replayed};

use crate::config::FileError;
use crate::words::PROGRAM;
use diff::{Diff, Fates};
pub use file::JournalFile;
use journals::{Difference, Journals};
pub use wanted::Wanted;

/// With what a recording is replayed.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The rule that decides.
    pub rule: Option<String>,
    /// Values of the configuration: `section.key=value`.
    pub changes: Vec<String>,
    /// A configuration in the place of the recorded one.
    pub config: Option<PathBuf>,
    /// So many pages whose fates differ are listed; nothing: fates are not compared.
    pub pages: Option<usize>,
}

/// What a replay came to.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The recording.
    pub recording: String,
    /// The program that recorded it.
    pub program: Option<String>,
    /// The rule that it was recorded with, and the one that it was replayed with.
    pub rules: [&'static str; 2],
    /// Whether it was replayed with its own configuration.
    pub unchanged: bool,
    /// Steps.
    pub steps: u64,
    /// Pieces of evidence.
    pub pieces: u64,
    /// Decisions recorded, and decisions of the replay.
    pub decisions: [u64; 2],
    /// Whether they are the same.
    pub same: bool,
    /// The first that differs.
    pub first_difference: Option<Difference>,
    /// What of the engine's moves and demands the recording has.
    pub followed: Followed,
    /// Events that are missing in the recording.
    pub missing: u64,
    /// The first of them.
    pub missing_from: Option<u64>,
    /// Files that were left out.
    pub left_out: Vec<String>,
    /// Where the fates of pages differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<Diff>,
}

/// Opens a recording that can be replayed.
///
/// # Errors
/// It is no recording, or an imported one.
pub fn open(folder: &Path) -> Result<Recording, Damage> {
    let recording = Recording::open(folder)?;
    if let Some(format) = recording.imported() {
        let what = format!(
            "it was imported from {format}, which does not say on which node a page is, nor what was \
             decided: there is nothing to replay; ask `plan` about it, export it, or query it as Parquet"
        );
        return Err(Damage::new(folder, what));
    }
    Ok(recording)
}

/// Replays a recording, and says how its decisions compare. `each` gets the decisions of the
/// replay, in order.
///
/// # Errors
/// The configuration does not suit the recording.
pub fn replay(
    recording: &Recording,
    wanted: &Wanted,
    pages: Option<usize>,
    each: &mut dyn FnMut(&[Decision]),
) -> anyhow::Result<Outcome> {
    let mut journals = Journals::default();
    let mut fates = pages.map(|_| Fates::default());
    let mut compare = |theirs: &[Decision], ours: &[Decision]| {
        journals.add(theirs, ours);
        if let Some(fates) = &mut fates {
            fates.add(theirs, ours);
        }
        each(ours);
    };
    let reload = |config| wanted.reloaded(config);
    let done = replayed(recording, &wanted.config, &reload, &mut compare);
    let done = done.map_err(|error| unusable(error, recording.folder()))?;
    let left_out = recording.left_out().iter().map(ToString::to_string).chain(done.damages);
    Ok(Outcome {
        recording: recording.folder().display().to_string(),
        program: recording.setting("program").map(str::to_owned),
        rules: wanted.rules,
        unchanged: wanted.unchanged,
        steps: done.steps,
        pieces: done.pieces,
        decisions: journals.counts(),
        same: journals.is_same(),
        first_difference: journals.first(),
        followed: done.followed,
        missing: done.missing,
        missing_from: done.incomplete_from,
        left_out: left_out.collect(),
        diff: fates.zip(pages).map(|(fates, pages)| fates.diff(pages)),
    })
}

impl Outcome {
    /// Whether nothing of the recording is missing.
    pub fn is_whole(&self) -> bool {
        self.missing == 0 && self.left_out.is_empty()
    }

    /// Whether the recorded configuration decides otherwise now, which it should not.
    pub fn is_wrong(&self) -> bool {
        self.unchanged && !self.same && self.is_whole() && self.is_of_this_version()
    }

    /// Whether this version has recorded it.
    pub fn is_of_this_version(&self) -> bool {
        self.program.as_deref() == Some(PROGRAM)
    }
}

/// A configuration that does not suit the recording is the user's.
fn unusable(error: ReplayError, folder: &Path) -> anyhow::Error {
    match error {
        ReplayError::Engine(_) | ReplayError::Reload(_) => FileError::Invalid(format!(
            "{error}; what was recorded in {} cannot be replayed with this configuration",
            folder.display()
        ))
        .into(),
        ReplayError::Config { .. } => Damage::new(folder, error.to_string()).into(),
    }
}
