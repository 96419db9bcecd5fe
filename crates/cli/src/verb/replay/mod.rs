//! `thermocline replay`: lets a rule decide on recorded evidence, and compares the decisions.

mod text;

use std::process::ExitCode;
use std::time::Instant;

use thermocline_front::replay::{Asked, JournalFile, Wanted, open, replay as replayed};

use crate::args::Replay;
use crate::output::{print, tell};
use crate::progress::shown_while;

/// Replays a recording, and says how its decisions compare.
///
/// # Errors
/// It is no recording that can be replayed (a [`Damage`](thermocline_trace::part::Damage)), the
/// configuration cannot be used, or a file cannot be written.
pub fn replay(args: &Replay) -> anyhow::Result<ExitCode> {
    let recording = open(&args.folder)?;
    let asked = Asked {
        rule: args.rule.clone(),
        changes: args.changes.clone(),
        config: args.config.clone(),
        pages: args.diff.then_some(args.pages),
    };
    let wanted = Wanted::new(&asked, &recording)?;
    wanted.notes.iter().for_each(|note| tell!("{note}"));
    let mut file = args.journal.as_deref().map(JournalFile::create).transpose()?;
    let mut write = |decisions: &[_]| {
        if let Some(file) = &mut file {
            file.write(decisions);
        }
    };
    let start = Instant::now();
    let outcome = shown_while("replaying ...", || replayed(&recording, &wanted, asked.pages, &mut write))?;
    let seconds = start.elapsed().as_secs_f64();
    if let Some(file) = file {
        file.finish()?;
    }
    outcome.left_out.iter().for_each(|file| tell!("left out: {file}"));
    if args.json {
        print(serde_json::to_string_pretty(&outcome)? + "\n")?;
    } else {
        print(text::text(&outcome))?;
        tell!(
            "{:.2} s, {:.2} million pieces a second",
            seconds,
            outcome.pieces as f64 / seconds.max(1e-6) / 1e6
        );
    }
    Ok(ExitCode::from(u8::from(outcome.is_wrong())))
}
