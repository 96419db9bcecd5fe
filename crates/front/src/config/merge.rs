//! Merges layers: the last value of a key counts. The scopes of all layers are concatenated. A
//! scope replaces one of the same name in an earlier layer.

use std::ops::Range;

use thermocline_core::config::Config;
use toml::{Table, Value};

use super::layer::Layer;
use super::place::span_of;

/// The layers, and the layer that each scope comes from.
#[derive(Debug)]
pub(super) struct Merged {
    layers: Vec<Layer>,
    /// For each scope: its layer, and its index among that layer's scopes.
    scopes: Vec<(usize, usize)>,
}

impl Merged {
    /// Where the value of a dotted key is: in the last layer that sets it.
    pub(super) fn place(&self, key: &str) -> Option<(&Layer, Range<usize>)> {
        if let Some((number, rest)) = key.strip_prefix("scope[").and_then(|rest| rest.split_once(']')) {
            let (layer, place) = self.scopes.get(number.parse::<usize>().ok()?)?;
            let layer = self.layers.get(*layer)?;
            return Some((layer, span_of(&layer.text, &format!("scope[{place}]{rest}"))?));
        }
        self.layers.iter().rev().find_map(|layer| Some((layer, span_of(&layer.text, key)?)))
    }
}

/// Merges layers that are each valid by themselves.
pub(super) fn merge(layers: Vec<Layer>) -> Result<(Config, Merged), String> {
    let (mut whole, mut scopes, mut origins) = (Table::new(), Vec::new(), Vec::new());
    for (number, layer) in layers.iter().enumerate() {
        let mut table: Table = layer.text.parse().map_err(|e| format!("{}: {e}", layer.name))?;
        if let Some(Value::Array(found)) = table.remove("scope") {
            let earlier = scopes.len();
            for (place, scope) in found.into_iter().enumerate() {
                match scopes[..earlier].iter().position(|other| same_name(other, &scope)) {
                    Some(at) => (scopes[at], origins[at]) = (scope, (number, place)),
                    None => {
                        scopes.push(scope);
                        origins.push((number, place));
                    }
                }
            }
        }
        put(&mut whole, table);
    }
    if !scopes.is_empty() {
        whole.insert("scope".to_owned(), Value::Array(scopes));
    }
    let config = whole.try_into().map_err(|e: toml::de::Error| e.message().to_owned())?;
    Ok((config, Merged { layers, scopes: origins }))
}

fn same_name(a: &Value, b: &Value) -> bool {
    let name = |scope: &Value| scope.get("name").and_then(Value::as_str).map(str::to_owned);
    name(a).is_some_and(|name_of_a| !name_of_a.is_empty() && Some(name_of_a) == name(b))
}

fn put(whole: &mut Table, layer: Table) {
    for (key, value) in layer {
        match (whole.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(new)) => put(inner, new),
            (_, value) => drop(whole.insert(key, value)),
        }
    }
}
