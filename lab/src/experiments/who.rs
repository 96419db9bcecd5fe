//! A row of an experiment's table: a baseline of the experiment's own, or a manager.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::score::manager::Manager;

/// A baseline that an experiment has beside managers.
pub(crate) trait Baseline: Copy + PartialEq + 'static {
    /// All of them, with their names.
    const NAMES: &'static [(Self, &'static str)];
    /// What they are, after "or NAME, NAME".
    const MEANING: &'static str;
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String", bound = "B: Baseline")]
pub(crate) enum Who<B> {
    /// A baseline.
    Baseline(B),
    /// A manager, as `lab score` takes it.
    Managed(Manager),
}

impl<B: Baseline> FromStr for Who<B> {
    type Err = String;

    fn from_str(text: &str) -> Result<Who<B>, String> {
        if let Some((baseline, _)) = B::NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(Who::Baseline(*baseline));
        }
        text.parse().map(Who::Managed).map_err(|error| {
            let names: Vec<&str> = B::NAMES.iter().map(|(_, name)| *name).collect();
            format!("{error}; or {}, {}", names.join(" or "), B::MEANING)
        })
    }
}

impl<B: Baseline> fmt::Display for Who<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Baseline(baseline) => {
                let named = B::NAMES.iter().find(|(other, _)| other == baseline);
                f.write_str(named.map_or("", |(_, name)| name))
            }
            Who::Managed(manager) => manager.fmt(f),
        }
    }
}

impl<B: Baseline> TryFrom<String> for Who<B> {
    type Error = String;

    fn try_from(text: String) -> Result<Who<B>, String> {
        text.parse()
    }
}

impl<B: Baseline> From<Who<B>> for String {
    fn from(who: Who<B>) -> String {
        who.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Nothing;

    impl Baseline for Nothing {
        const NAMES: &'static [(Nothing, &'static str)] = &[(Nothing, "nothing")];
        const MEANING: &'static str = "where nothing runs";
    }

    #[test]
    fn names_survive_and_nonsense_is_refused() {
        for text in ["nothing", "none", "damon+manager.damon.cold_ms=5000", "thermocline:latency"] {
            let who: Who<Nothing> = text.parse().unwrap();
            assert_eq!(who.to_string(), text);
            assert_eq!(who == Who::Baseline(Nothing), text == "nothing");
        }
        let refused = "numa".parse::<Who<Nothing>>().unwrap_err();
        assert!(refused.ends_with("; or nothing, where nothing runs"), "{refused}");
    }
}
