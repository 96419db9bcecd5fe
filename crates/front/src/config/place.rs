//! Keys and their places in a text.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Where the value of a dotted key is in the text.
pub(super) fn span_of(text: &str, key: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    let mut at: Option<(&DeValue<'_>, Range<usize>)> = None;
    let mut here = table.get_ref();
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        let value = here.get(name)?;
        let (mut inner, mut span) = (value.get_ref(), value.span());
        if let Some(i) = index {
            let item = inner.as_array()?.get(i)?;
            (inner, span) = (item.get_ref(), item.span());
        }
        if let Some(next) = inner.as_table() {
            here = next;
        }
        at = Some((inner, span));
    }
    at.map(|(_, span)| span)
}

/// The dotted key whose value covers `span`.
pub(super) fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    fn descend(table: &DeTable<'_>, span: &Range<usize>, path: &str) -> Option<String> {
        for (name, value) in table.iter() {
            let path = if path.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{path}.{}", name.get_ref())
            };
            if let Some(inner) = value.get_ref().as_table()
                && let Some(found) = descend(inner, span, &path)
            {
                return Some(found);
            }
            for item in value.get_ref().as_array().into_iter().flat_map(|a| a.iter()) {
                if let Some(found) = item.get_ref().as_table().and_then(|t| descend(t, span, &path)) {
                    return Some(found);
                }
            }
            let covers = value.span().start <= span.start && span.end <= value.span().end;
            if covers && value.get_ref().as_table().is_none() {
                return Some(path);
            }
        }
        None
    }
    descend(DeTable::parse(text).ok()?.get_ref(), span, "")
}
