//! The answer to the question that `plan` asks by default, for those who show it among other
//! things.

use thermocline_front::plan::{Answer, Asked, text};
use thermocline_sim::picture::Planned;
use thermocline_trace::heat::{Options, estimate};
use thermocline_trace::reader::Recording;

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
    let answer = Answer::new(&Asked::default(), recording, &heat).map_err(|error| error.to_string())?;
    Ok(Outline {
        sentence: text::sentence(&answer),
        planned: text::picture(&answer),
        assumptions: answer.assumptions,
        notes: answer.notes,
    })
}
