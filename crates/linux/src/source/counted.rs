//! A source's counters, ready to be shown: as JSON, as text and as values of its statistics.

use serde::Serialize;
use serde_json::{Value, json};
use thermocline_core::statistics::{Declared, Sample};

/// A source's counters as of now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// For `status --json`.
    pub json: Value,
    /// For `status`, whole lines.
    pub text: String,
    /// The values: a list for each list of declarations in the source's row, in the same order.
    pub samples: Vec<Vec<Sample>>,
}

impl Counted {
    /// `counters`, which `text` describes.
    pub fn new(counters: &(impl Declared + Serialize), text: String) -> Counted {
        Counted { json: json!(counters), text, samples: vec![counters.samples()] }
    }

    /// The same with the values of a further list of declarations; its JSON is part of the first's.
    pub fn and(mut self, counters: &impl Declared) -> Counted {
        self.samples.push(counters.samples());
        self
    }
}

/// A line for each non-zero trouble figure, except those in `told`, which are reported elsewhere.
pub fn troubles<D: Declared>(counters: &D, told: &[&str]) -> String {
    let statistics = D::statistics();
    let wanted = |name: &str| statistics.iter().any(|s| s.trouble && s.name == name) && !told.contains(&name);
    let counts = counters.samples().into_iter().filter(|sample| sample.value > 0 && wanted(sample.name));
    counts.map(|sample| format!("  {}: {}\n", sample.name, sample.value)).collect()
}
