//! `thermocline config show`: the resulting configuration, and where each value comes from.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use thermocline_core::config::{Config, at};

use thermocline_front::config::Loaded;

/// Column of the origins, if the values leave room.
const ORIGIN_COLUMN: usize = 52;

/// A TOML file with the origin after each value.
pub fn text(loaded: &Loaded) -> String {
    let mut out = String::new();
    let tree = json!(loaded.config);
    for (section, fields) in Config::sections() {
        for (values, path, header) in tables(&tree, &section) {
            let _ = writeln!(out, "{header}");
            for field in &fields {
                let set = match &values[field.name] {
                    Value::Null => format!("# {} is unset", field.name),
                    value => format!("{} = {value}", field.name),
                };
                let origin = loaded.origin(&format!("{path}.{}", field.name));
                let _ = writeln!(out, "{set:ORIGIN_COLUMN$} # {origin}");
            }
            out.push('\n');
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The values and origins as a JSON object by dotted key.
pub fn json(loaded: &Loaded) -> String {
    let tree = json!(loaded.config);
    let mut out = Map::new();
    for (section, fields) in Config::sections() {
        for (values, path, _) in tables(&tree, &section) {
            for field in &fields {
                let key = format!("{path}.{}", field.name);
                let told = json!({ "value": values[field.name], "origin": loaded.origin(&key) });
                out.insert(key, told);
            }
        }
    }
    format!("{:#}\n", Value::Object(out))
}

/// The tables of a section, each with its key and its header. There may be several scopes, or none.
fn tables<'a>(tree: &'a Value, section: &str) -> Vec<(&'a Value, String, String)> {
    let values = at(tree, section);
    match values.as_array() {
        None => vec![(values, section.to_owned(), format!("[{section}]"))],
        Some(all) => {
            let all = all.iter().enumerate();
            all.map(|(n, values)| (values, format!("{section}[{n}]"), format!("[[{section}]]"))).collect()
        }
    }
}
