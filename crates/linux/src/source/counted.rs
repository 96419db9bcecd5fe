//! What a source has counted, ready to be shown: as JSON, as text and as values of its statistics.

use serde::Serialize;
use serde_json::{Value, json};
use thermocline_core::statistics::{Declared, Sample};

/// What a source has counted by now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// For `status --json`.
    pub json: Value,
    /// For `status`, whole lines.
    pub text: String,
    /// The values, a list for each list of declarations of the source's row, in the same order.
    pub samples: Vec<Vec<Sample>>,
}

impl Counted {
    /// `counters`, of which `text` tells.
    pub fn new(counters: &(impl Declared + Serialize), text: String) -> Counted {
        Counted { json: json!(counters), text, samples: vec![counters.samples()] }
    }

    /// The same with the values of a further list of declarations; its JSON is part of the first's.
    pub fn and(mut self, counters: &impl Declared) -> Counted {
        self.samples.push(counters.samples());
        self
    }
}

/// A line for each figure of trouble that is not 0, but for those that were `told` otherwise.
pub fn troubles<D: Declared>(counters: &D, told: &[&str]) -> String {
    let statistics = D::statistics();
    let wanted = |name: &str| statistics.iter().any(|s| s.trouble && s.name == name) && !told.contains(&name);
    let counts = counters.samples().into_iter().filter(|sample| sample.value > 0 && wanted(sample.name));
    counts.map(|sample| format!("  {}: {}\n", sample.name, sample.value)).collect()
}
