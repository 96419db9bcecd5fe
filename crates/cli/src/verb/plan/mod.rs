//! `thermocline plan`: how much DRAM a recorded program needs.

mod outline;

pub use outline::{Outline, outline};

use thermocline_front::plan::{Asked, plan as answer, text};
use thermocline_sim::picture;
use thermocline_trace::reader::Recording;

use crate::args::Plan;
use crate::output::{print, tell};
use crate::progress::shown_while;
use crate::verb::picture as file;

/// Estimates heat, and prints what each size of DRAM would give.
///
/// # Errors
/// It is no recording (a [`Damage`](thermocline_trace::part::Damage)), has no evidence (a
/// [`SpecError`](thermocline_sim::spec::SpecError)), or the picture cannot be written.
pub fn plan(args: &Plan) -> anyhow::Result<()> {
    let recording = Recording::open(&args.folder)?;
    args.svg.as_deref().map_or(Ok(()), file::check)?;
    let asked = Asked {
        loss: args.loss,
        latency_ns: args.latency,
        memory_bound: args.memory_bound,
        sizes: args.sizes.clone(),
        source: args.source,
    };
    let answer = shown_while("estimating ...", || answer(&asked, &recording))?;
    recording.left_out().iter().for_each(|file| tell!("left out: {file}"));
    if let Some(path) = &args.svg {
        file::write(path, &picture::plan(&text::picture(&answer)))?;
    }
    if args.json { print(serde_json::to_string_pretty(&answer)? + "\n") } else { print(text::text(&answer)) }
}
