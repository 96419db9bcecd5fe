//! The configuration that a recording is replayed with.

use anyhow::Context;
use thermocline_core::config::{Config, RuleChoice};
use thermocline_sim::spec::SpecError;
use thermocline_trace::reader::Recording;

use super::Asked;
use crate::config::{over, text};

/// Why scopes of one's own do not count.
const SCOPES_STAY: &str = "scopes are the recorded ones, since the evidence refers to them";

/// See the module's description.
#[derive(Debug)]
pub struct Wanted {
    /// The configuration at the beginning.
    pub config: Config,
    /// Whether it is the recorded one.
    pub unchanged: bool,
    /// The rule recorded, and the rule wanted.
    pub rules: [&'static str; 2],
    /// What of it does not count, in sentences.
    pub notes: Vec<String>,
    changes: Vec<String>,
    choice: Option<RuleChoice>,
    /// A file of one's own takes the place of configurations that were loaded during the recording.
    own_file: bool,
}

impl Wanted {
    /// What is asked for.
    ///
    /// # Errors
    /// There is no such rule, or the configuration cannot be used.
    pub fn new(asked: &Asked, recording: &Recording) -> anyhow::Result<Wanted> {
        let choice = asked.rule.as_deref().map(rule).transpose()?;
        let unchanged = choice.is_none() && asked.changes.is_empty() && asked.config.is_none();
        let recorded = recording.config();
        let before = recorded.as_ref().map_or("unknown", |config| config.rule.name.text());
        let mut notes = Vec::new();
        let mut config = match &asked.config {
            None => {
                let recorded = recorded?;
                match asked.changes.is_empty() {
                    true => recorded,
                    false => changed(&recorded, &asked.changes)?,
                }
            }
            Some(path) => {
                let read = text(path)?;
                let scopes = recorded.map(|config| (config.scope, config.tiers));
                let place = |config: &mut Config| {
                    let Ok((scope, tiers)) = scopes else { return };
                    if !config.scope.is_empty() && config.scope != scope {
                        notes.push(SCOPES_STAY.to_owned());
                    }
                    (config.scope, config.tiers) = (scope, tiers);
                };
                over(&path.display().to_string(), &read, &asked.changes, place)?
            }
        };
        if let Some(choice) = choice {
            config.choose(choice);
        }
        let rules = [before, config.rule.name.text()];
        let own_file = asked.config.is_some();
        Ok(Wanted { config, unchanged, rules, notes, changes: asked.changes.clone(), choice, own_file })
    }

    /// What takes the place of a configuration that was loaded during the recording.
    ///
    /// # Errors
    /// It cannot be used with the changes.
    pub fn reloaded(&self, recorded: Config) -> Result<Config, String> {
        if self.own_file {
            return Ok(self.config.clone());
        }
        let mut config = recorded;
        if !self.changes.is_empty() {
            config = changed(&config, &self.changes).map_err(|error| format!("{error:#}"))?;
        }
        if let Some(choice) = self.choice {
            config.choose(choice);
        }
        Ok(config)
    }
}

/// The rule of that name.
fn rule(name: &str) -> Result<RuleChoice, SpecError> {
    RuleChoice::all().find(|choice| choice.text() == name).ok_or_else(|| {
        let names: Vec<&str> = RuleChoice::all().map(RuleChoice::text).collect();
        let remedy = format!("use one of {}", names.join(", "));
        SpecError::new("--rule", format!("there is no rule \"{name}\""), remedy)
    })
}

/// The recorded configuration with other values.
fn changed(recorded: &Config, changes: &[String]) -> anyhow::Result<Config> {
    let text = toml::to_string(recorded).context("the recorded configuration cannot be written as TOML")?;
    Ok(over("the recorded configuration", &text, changes, |_| {})?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_changes_nothing_else() {
        let mut recorded = Config::default();
        recorded.admission.rate_limit_mbps = 17;
        recorded.rule.latency.hot_threshold_ms = 250;
        let same = changed(&recorded, &["rule.name=adaptive".to_owned()]).unwrap();
        assert_eq!(same, recorded);
        let other = changed(&recorded, &["admission.rate_limit_mbps=64".to_owned()]).unwrap();
        recorded.admission.rate_limit_mbps = 64;
        assert_eq!(other, recorded);
        let error = changed(&recorded, &["admission.rate_limit=64".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("rate_limit_mbps"), "{error}");
    }

    #[test]
    fn rules_are_named_where_there_is_none_of_a_name() {
        assert_eq!(rule("latency"), Ok(RuleChoice::Rule(thermocline_core::config::RuleName::Latency)));
        let error = rule("lru").unwrap_err().to_string();
        assert!(error.contains("adaptive") && error.contains("speculative"), "{error}");
    }
}
