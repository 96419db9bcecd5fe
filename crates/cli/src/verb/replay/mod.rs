//! `thermocline replay`: lets a rule decide on recorded evidence, and compares the decisions.

mod diff;
pub mod journals;
mod text;
mod wanted;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use thermocline_core::journal::Decision;
use thermocline_trace::part::Damage;
use thermocline_trace::reader::Recording;
use thermocline_trace::replay::{Followed, ReplayError, replay as replayed};

use crate::args::Replay;
use crate::config::FileError;
use crate::output::{print, tell};
use crate::progress::shown_while;
use crate::recorded;
use diff::{Diff, Fates};
use journals::{Difference, Journals};
use wanted::Wanted;

/// What a replay came to.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The recording.
    recording: String,
    /// The program that recorded it.
    program: Option<String>,
    /// The rule that it was recorded with, and the one that it was replayed with.
    rules: [&'static str; 2],
    /// Whether it was replayed with its own configuration.
    unchanged: bool,
    /// Steps.
    steps: u64,
    /// Pieces of evidence.
    pieces: u64,
    /// Decisions recorded, and decisions of the replay.
    decisions: [u64; 2],
    /// Whether they are the same.
    same: bool,
    /// The first that differs.
    first_difference: Option<Difference>,
    /// What of the engine's moves and demands the recording has.
    followed: Followed,
    /// Events that are missing in the recording, and the first of them.
    missing: u64,
    missing_from: Option<u64>,
    /// Files that were left out.
    left_out: Vec<String>,
    /// Where the fates of pages differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<Diff>,
}

/// Replays a recording, and says how its decisions compare.
///
/// # Errors
/// It is no recording that can be replayed (a [`Damage`]), the configuration cannot be used, or a
/// file cannot be written.
pub fn replay(args: &Replay) -> anyhow::Result<ExitCode> {
    let recording = Recording::open(&args.folder)?;
    if let Some(format) = recording.imported() {
        let what = format!(
            "it was imported from {format}, which does not say on which node a page is, nor what was \
             decided: there is nothing to replay; ask `plan` about it, export it, or query it as Parquet"
        );
        return Err(Damage::new(&args.folder, what).into());
    }
    let wanted = Wanted::new(args, &recording)?;
    let mut journals = Journals::default();
    let mut fates = args.diff.then(Fates::default);
    let mut file = args.journal.as_deref().map(JournalFile::create).transpose()?;
    let mut compare = |theirs: &[Decision], ours: &[Decision]| {
        journals.add(theirs, ours);
        if let Some(fates) = &mut fates {
            fates.add(theirs, ours);
        }
        if let Some(file) = &mut file {
            file.write(ours);
        }
    };
    let start = Instant::now();
    let reload = |config| wanted.reloaded(config);
    let done = shown_while("replaying ...", || replayed(&recording, &wanted.config, &reload, &mut compare));
    let done = done.map_err(|error| unusable(error, &args.folder))?;
    let seconds = start.elapsed().as_secs_f64();
    if let Some(file) = file {
        file.finish()?;
    }
    let left_out = recording.left_out().iter().map(ToString::to_string).chain(done.damages.clone());
    let outcome = Outcome {
        recording: args.folder.display().to_string(),
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
        diff: fates.map(|fates| fates.diff(args.pages)),
    };
    outcome.left_out.iter().for_each(|file| tell!("left out: {file}"));
    if args.json {
        print(serde_json::to_string_pretty(&outcome)? + "\n")?;
    } else {
        print(text::text(&outcome))?;
        tell!(
            "{:.2} s, {:.2} million pieces a second",
            seconds,
            done.pieces as f64 / seconds.max(1e-6) / 1e6
        );
    }
    let wrong = outcome.unchanged && !outcome.same && outcome.is_whole() && outcome.is_of_this_version();
    Ok(ExitCode::from(u8::from(wrong)))
}

impl Outcome {
    /// Whether nothing of the recording is missing.
    fn is_whole(&self) -> bool {
        self.missing == 0 && self.left_out.is_empty()
    }

    /// Whether this version has recorded it.
    fn is_of_this_version(&self) -> bool {
        self.program.as_deref() == Some(recorded::PROGRAM)
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

/// The replayed journal, as it is written.
struct JournalFile<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    written: std::io::Result<()>,
}

impl JournalFile<'_> {
    fn create(path: &Path) -> anyhow::Result<JournalFile<'_>> {
        let file = File::create(path).with_context(|| JournalFile::cannot(path))?;
        Ok(JournalFile { path, file: BufWriter::new(file), written: Ok(()) })
    }

    fn cannot(path: &Path) -> String {
        format!("cannot write the journal to {}", path.display())
    }

    /// The first failure is told at the end.
    fn write(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            if self.written.is_ok() {
                let line = serde_json::to_string(decision).unwrap_or_default();
                self.written = writeln!(self.file, "{line}");
            }
        }
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.written.and_then(|()| self.file.flush()).with_context(|| JournalFile::cannot(self.path))
    }
}
