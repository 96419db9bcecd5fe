//! The answer to the question that `plan` asks by default, for those who show it among other
//! things.

use thermocline_sim::picture::Planned;
use thermocline_trace::heat::{Options, estimate};
use thermocline_trace::reader::Recording;

use super::answer::Answer;
use super::text;
use crate::args::Plan;

/// The loss of time that is acceptable by default.
const LOSS: f64 = 0.03;

/// What is said of the sizes of DRAM.
#[derive(Debug)]
pub struct Outline {
    /// In one sentence.
    pub sentence: String,
    /// What is drawn.
    pub planned: Planned,
    /// What is assumed, in sentences.
    pub assumptions: Vec<String>,
    /// What of the recording could not be used.
    pub notes: Vec<String>,
}

/// What each size of DRAM would give.
///
/// # Errors
/// Why that cannot be estimated.
pub fn outline(recording: &Recording) -> Result<Outline, String> {
    let heat = estimate(recording, Options::default()).map_err(|error| error.to_string())?;
    let args = Plan {
        folder: recording.folder().to_owned(),
        loss: LOSS,
        latency: None,
        memory_bound: None,
        sizes: Vec::new(),
        source: None,
        svg: None,
        json: false,
    };
    let answer = Answer::new(&args, recording, &heat).map_err(|error| error.to_string())?;
    Ok(Outline {
        sentence: text::sentence(&answer),
        planned: text::picture(&answer),
        assumptions: answer.assumptions,
        notes: answer.notes,
    })
}
