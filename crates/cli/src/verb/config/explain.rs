//! `thermocline config explain`: what a key means.

use std::fmt::Write;

use thermocline_core::config::Config;
use thermocline_core::config::schema::Field;
use thermocline_front::config::{environment_name, field, nearest_key};

use super::keys::wrap;

/// Describes a key, or lists the keys of a section.
///
/// # Errors
/// There is no such key.
pub fn explain(key: &str) -> anyhow::Result<String> {
    // Messages write the key of one of several scopes like this.
    let key = match key.strip_prefix("scope[").and_then(|rest| rest.split_once(']')) {
        Some((_, rest)) => &format!("scope{rest}"),
        None => key,
    };
    if let Some(field) = field(key) {
        return Ok(of_key(key, &field));
    }
    let below = format!("{key}.");
    let sections = Config::sections();
    let found = sections.iter().filter(|(name, _)| name == key || name.starts_with(&below));
    let mut out = String::new();
    for (section, fields) in found {
        for field in fields {
            let first = field.doc.split_inclusive(['.', ':', ';']).next().unwrap_or_default();
            let _ = writeln!(out, "{section}.{}\n    {}", field.name, first.trim_end_matches([':', ';']));
        }
    }
    if out.is_empty() {
        let last = key.rsplit('.').next().unwrap_or(key);
        let meant = nearest_key(last).map(|key| format!("did you mean `{key}`? ")).unwrap_or_default();
        anyhow::bail!("there is no key `{key}`; {meant}`thermocline config` lists every key");
    }
    Ok(out)
}

fn of_key(key: &str, field: &Field) -> String {
    let mut out = format!("{key}\n");
    for line in wrap(&field.doc, 90) {
        let _ = writeln!(out, "    {line}");
    }
    let unit = if field.unit.is_empty() { "none" } else { field.unit };
    let reload = if field.reloads { "yes, by `thermocline reload`" } else { "no, it needs a restart" };
    let option = match key.starts_with("scope.") {
        true => "a file's [[scope]]".to_owned(),
        false => format!("a file, {}=VALUE, or --set {key}=VALUE", environment_name(key)),
    };
    for (what, told) in [
        ("unit", unit),
        ("allowed", &field.range),
        ("default", &field.default),
        ("source", field.source),
        ("reload", reload),
        ("set by", &option),
    ] {
        let _ = writeln!(out, "{what:8} {told}");
    }
    out
}
