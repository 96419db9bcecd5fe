//! `--set key=value`: a change of one value of a specification.

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Value;

use crate::spec::SpecError;

/// `spec` with the changes; `prefix` begins each key and is not part of the specification.
pub(super) fn apply<T: Serialize + DeserializeOwned>(
    spec: T,
    changes: &[&String],
    prefix: &str,
) -> Result<T, SpecError> {
    if changes.is_empty() {
        return Ok(spec);
    }
    let wrong = |place: &str, message: String| SpecError::new(place, message, "correct the change");
    let mut tree = Value::try_from(&spec).map_err(|e| wrong("--set", e.to_string()))?;
    let mut keys = Vec::new();
    for change in changes {
        let (key, value) = change
            .split_once('=')
            .ok_or_else(|| wrong(change, "a change is written key=value".to_owned()))?;
        let key = key.trim();
        // Anything that is not a TOML value is taken as text: quotes are easily lost in a shell.
        let value = format!("v = {}", value.trim())
            .parse::<toml::Table>()
            .ok()
            .and_then(|mut t| t.remove("v"))
            .unwrap_or_else(|| Value::String(value.trim().to_owned()));
        set(&mut tree, &key[prefix.len()..], value).map_err(|message| wrong(key, message))?;
        keys.push(key);
    }
    // The values come from the tree, not from text, so errors name the changes as the place.
    tree.try_into().map_err(|e: toml::de::Error| {
        wrong(&format!("--set {}", keys.join(", ")), e.message().lines().collect::<Vec<_>>().join("; "))
    })
}

fn set(tree: &mut Value, key: &str, value: Value) -> Result<(), String> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(a, b)| (a, Some(b)));
    let next = match tree {
        Value::Table(table) => {
            if rest.is_none() {
                // An integer becomes a float if the value before was a float.
                let value = match (table.get(first), value) {
                    (Some(Value::Float(_)), Value::Integer(n)) => Value::Float(n as f64),
                    (_, value) => value,
                };
                table.insert(first.to_owned(), value);
                return Ok(());
            }
            table.entry(first).or_insert_with(|| Value::Table(toml::Table::new()))
        }
        Value::Array(list) => {
            let len = list.len();
            let index =
                first.parse::<usize>().map_err(|_| format!("\"{first}\" is no number of a list's item"))?;
            let item = list.get_mut(index).ok_or(format!("there is no item {index}; the list has {len}"))?;
            if rest.is_none() {
                *item = value;
                return Ok(());
            }
            item
        }
        _ => return Err(format!("\"{first}\" is inside a value that has no keys")),
    };
    set(next, rest.unwrap_or_default(), value)
}
