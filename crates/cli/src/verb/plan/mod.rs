//! `thermocline plan`: how much DRAM a recorded program needs.

mod answer;
mod outline;
mod text;

pub use outline::{Outline, outline};

use thermocline_sim::picture;
use thermocline_sim::spec::SpecError;
use thermocline_trace::heat::{Options, estimate};
use thermocline_trace::reader::Recording;

use crate::args::Plan;
use crate::output::{print, tell};
use crate::progress::shown_while;
use crate::verb::picture as file;
use answer::Answer;

/// Estimates heat, and prints what each size of DRAM would give.
///
/// # Errors
/// It is no recording (a [`Damage`](thermocline_trace::part::Damage)), has no evidence (a
/// [`SpecError`]), or the picture cannot be written.
pub fn plan(args: &Plan) -> anyhow::Result<()> {
    let recording = Recording::open(&args.folder)?;
    args.svg.as_deref().map_or(Ok(()), file::check)?;
    let options = Options { source: args.source, epochs: None };
    let place = args.folder.display().to_string();
    let answer = shown_while("estimating ...", || {
        let heat = estimate(&recording, options).map_err(|e| {
            SpecError::new(&place, "heat cannot be estimated from it".to_owned(), e.to_string())
        })?;
        Answer::new(args, &recording, &heat)
    })?;
    recording.left_out().iter().for_each(|file| tell!("left out: {file}"));
    if let Some(path) = &args.svg {
        file::write(path, &picture::plan(&text::picture(&answer)))?;
    }
    if args.json { print(serde_json::to_string_pretty(&answer)? + "\n") } else { print(text::text(&answer)) }
}
