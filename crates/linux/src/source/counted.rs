//! A source's counters in the forms in which they are shown: JSON, text, and values of its
//! statistics.

use serde::Serialize;
use serde_json::{Value, json};
use thermocline_core::statistics::{Declared, Sample};

/// A source's current counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// For `status --json`.
    pub json: Value,
    /// For `status`, whole lines.
    pub text: String,
    /// The values: one list for each list of declarations in the source's row, in the same order.
    pub samples: Vec<Vec<Sample>>,
}

impl Counted {
    /// Takes the values from `counters`; `text` describes them.
    pub fn new(counters: &(impl Declared + Serialize), text: String) -> Counted {
        Counted { json: json!(counters), text, samples: vec![counters.samples()] }
    }

    /// Adds the values of another list of declarations. Its JSON is already part of the first
    /// one's.
    pub fn and(mut self, counters: &impl Declared) -> Counted {
        self.samples.push(counters.samples());
        self
    }
}

/// One line for each trouble figure that is not 0, except those in `told`, which are reported
/// elsewhere.
pub fn troubles<D: Declared>(counters: &D, told: &[&str]) -> String {
    let statistics = D::statistics();
    let wanted = |name: &str| statistics.iter().any(|s| s.trouble && s.name == name) && !told.contains(&name);
    let counts = counters.samples().into_iter().filter(|sample| sample.value > 0 && wanted(sample.name));
    counts.map(|sample| format!("  {}: {}\n", sample.name, sample.value)).collect()
}
