//! Values from the environment. A variable is `THERMOCLINE_`, section and key in capitals, with `_`
//! for every character that is neither letter nor digit, as in
//! `THERMOCLINE_RULE_FAULT_COUNT_RESTAMP=true`.
//!
//! Scopes are lists, so variables cannot set them. A variable that begins like a section but names
//! none of its keys is an error. Other variables that begin with `THERMOCLINE_` are not ours and
//! are ignored.

use std::collections::BTreeMap;
use std::ffi::OsString;

use thermocline_core::config::Config;

use super::layer::Layer;
use super::message::nearest;

const PREFIX: &str = "THERMOCLINE_";

/// The variable of a dotted key.
pub fn name_of(key: &str) -> String {
    let capital = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    PREFIX.chars().chain(key.chars().map(capital)).collect()
}

/// Every variable with its key.
fn known() -> BTreeMap<String, String> {
    let sections = Config::sections().into_iter().filter(|(section, _)| section != "scope");
    let keys = sections.flat_map(|(section, fields)| {
        fields.into_iter().map(move |field| format!("{section}.{}", field.name))
    });
    keys.map(|key| (name_of(&key), key)).collect()
}

/// The layers of an environment, sorted by variable name.
pub(super) fn layers(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<Layer>, String> {
    let known = known();
    let ours: BTreeMap<String, OsString> = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    let mut layers = Vec::new();
    for (name, value) in ours {
        let Some(key) = known.get(&name) else {
            if is_of_a_section(&name) {
                return Err(unknown(&name, &known));
            }
            continue;
        };
        let value = value.into_string().map_err(|_| format!("environment {name}: not UTF-8 text"))?;
        layers.push(Layer::variable(&name, key, &value));
    }
    Ok(layers)
}

fn is_of_a_section(name: &str) -> bool {
    Config::sections().iter().any(|(section, _)| name.starts_with(&(name_of(section) + "_")))
}

fn unknown(name: &str, known: &BTreeMap<String, String>) -> String {
    let meant = match nearest(name, known.keys().map(String::as_str)) {
        Some(known) => format!("did you mean {known}? "),
        None => String::new(),
    };
    format!(
        "environment {name}: there is no such key; {meant}`thermocline config` lists every key, \
         and `thermocline config explain KEY` names its variable; unset it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Ok(layers(variables)?.into_iter().map(|layer| layer.text).collect())
    }

    #[test]
    fn every_key_but_those_of_scopes_has_a_variable_of_its_own() {
        let keys: usize = Config::sections()
            .iter()
            .filter(|(name, _)| name != "scope")
            .map(|(_, fields)| fields.len())
            .sum();
        assert_eq!(known().len(), keys);
        assert_eq!(name_of("rule.fault-count.restamp"), "THERMOCLINE_RULE_FAULT_COUNT_RESTAMP");
    }

    #[test]
    fn variables_set_keys() {
        let texts = read(&[
            ("THERMOCLINE_RULE_NAME", "latency"),
            ("THERMOCLINE_ADMISSION_RATE_LIMIT_MBPS", "64"),
            ("THERMOCLINE_SOAK", "1"),
            ("HOME", "/root"),
        ]);
        assert_eq!(texts.unwrap(), ["admission.rate_limit_mbps = 64", "rule.name = \"latency\""]);
    }

    #[test]
    fn a_misspelt_variable_is_told_with_the_one_that_was_meant() {
        let error = read(&[("THERMOCLINE_ADMISSION_RATE_LIMT_MBPS", "64")]).unwrap_err();
        assert!(error.contains("did you mean THERMOCLINE_ADMISSION_RATE_LIMIT_MBPS?"), "{error}");
        assert!(read(&[("THERMOCLINE_SCOPE_NAME", "a")]).is_err());
    }
}
