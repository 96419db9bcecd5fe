//! The configuration as JSON Schema, for editors.
//!
//! It is made of the declarations that the checks are made of, so that it cannot differ from them.
//! A library that reads types, as schemars does, would see none of the ranges, which are
//! expressions.

use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::config::schema::Field;

/// The schema, of draft 2020-12.
pub fn json_schema() -> Value {
    let mut root = object();
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("Configuration of thermocline");
    for (section, fields) in Config::sections() {
        let mut here = &mut root;
        for part in section.split('.') {
            here = &mut here["properties"][part];
            if here.is_null() {
                *here = object();
            }
        }
        for field in &fields {
            here["properties"][field.name] = of(field);
        }
        if section == "scope" {
            let item = here.take();
            *here = json!({ "type": "array", "items": item });
        }
    }
    root
}

fn object() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

fn of(field: &Field) -> Value {
    let mut schema: Map<String, Value> = field.schema.as_object().cloned().unwrap_or_default();
    schema.insert("description".to_owned(), json!(described(field)));
    if let Ok(default) = serde_json::from_str::<Value>(&field.default) {
        schema.insert("default".to_owned(), default);
    }
    Value::Object(schema)
}

fn described(field: &Field) -> String {
    let unit = if field.unit.is_empty() { String::new() } else { format!(" Unit: {}.", field.unit) };
    let reload = if field.reloads { "" } else { " Needs a restart." };
    format!("{}{unit} Allowed: {}. Source: {}.{reload}", field.doc, field.range, field.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_type_and_its_range() {
        let schema = json_schema();
        let of = |key: &str| {
            let path = key.split('.').map(|part| format!("/properties/{part}")).collect::<String>();
            schema.pointer(&path).cloned().unwrap_or_default()
        };
        let rate = of("admission.rate_limit_mbps");
        assert_eq!(
            (&rate["minimum"], &rate["maximum"], &rate["default"]),
            (&json!(1), &json!(65536), &json!(256))
        );
        assert_eq!(of("source.hwsample.enabled")["enum"], json!([true, false, "auto"]));
        assert_eq!(of("rule.fault-count.restamp")["enum"], json!([true, false]));
        let unit = of("source.chmu.unit_bytes");
        assert!(unit["enum"].as_array().is_some_and(|powers| powers.contains(&json!(4096))));
        for (section, fields) in Config::sections() {
            for field in fields {
                let typed = field.schema.get("type").is_some();
                let listed = field.schema["enum"].as_array().is_some_and(|values| values.len() > 1);
                assert!(typed || listed, "{section}.{}: {}", field.name, field.schema);
            }
        }
    }
}
