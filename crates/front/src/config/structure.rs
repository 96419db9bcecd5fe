//! Errors of a single layer: it is not TOML, has unknown keys, or values of the wrong type. Every
//! such key is reported, not only the first.

use std::ops::Range;

use thermocline_core::config::Config;
use toml::de::{DeTable, DeValue};

use super::layer::Layer;
use super::message::{Mark, field, help_for, message_of, render, with_more};
use super::{SHOWN_MAX, place};
use crate::foreign;

/// Checks a layer.
///
/// # Errors
/// All errors, with their places.
pub(super) fn check(layer: &Layer) -> Result<(), String> {
    let Err(error) = toml::from_str::<Config>(&layer.text) else { return Ok(()) };
    if layer.is_file()
        && let Some(told) = foreign::told(&layer.text)
    {
        return Err(format!(
            "{} {told}\nnothing of it is used; `thermocline config import` translates it as far as it can be, and `thermocline \
             config` prints a configuration with all defaults",
            layer.name
        ));
    }
    let mut found = Found { layer, marks: Vec::new(), more: 0 };
    if let Ok(table) = DeTable::parse(&layer.text) {
        found.look(table.get_ref(), "");
    }
    if found.marks.is_empty() {
        let span = error.span().unwrap_or(0..0);
        let help = help_for(place::key_at(&layer.text, &span), error.message());
        found.add(span, message_of(&error), help);
    }
    found.marks.sort_by_key(|mark| mark.place.as_ref().map(|(_, span)| span.start));
    Err(with_more(render(&found.marks), found.more))
}

struct Found<'a> {
    layer: &'a Layer,
    marks: Vec<Mark<'a>>,
    /// Errors beyond those that are shown.
    more: usize,
}

impl Found<'_> {
    fn add(&mut self, span: Range<usize>, message: String, help: String) {
        if self.marks.len() < SHOWN_MAX {
            self.marks.push(Mark { place: Some((self.layer, span)), message, help });
        } else {
            self.more += 1;
        }
    }

    /// Checks the keys of a section.
    fn look(&mut self, table: &DeTable<'_>, section: &str) {
        for (name, value) in table {
            let path = match section {
                "" => name.get_ref().to_string(),
                section => format!("{section}.{}", name.get_ref()),
            };
            let span = value.span();
            match (kind(&path), value.get_ref()) {
                (Kind::Scopes, DeValue::Array(scopes)) => {
                    for scope in scopes.iter() {
                        match scope.get_ref() {
                            DeValue::Table(scope) => self.look(scope, "scope"),
                            _ => self.is_no_section(scope.span(), "[[scope]]"),
                        }
                    }
                }
                (Kind::Scopes, _) => self.is_no_section(name.span(), "[[scope]]"),
                (Kind::Section, DeValue::Table(inner)) => self.look(inner, &path),
                (Kind::Section, _) => self.is_no_section(span, &format!("[{path}]")),
                (Kind::Key, DeValue::Table(_)) => {
                    let help = help_for(Some(path.clone()), "");
                    self.add(name.span(), format!("`{path}` is a key, not a section"), help);
                }
                (Kind::Key, _) => self.look_at_value(&path, span),
                (Kind::Unknown, _) => {
                    let unknown = name.get_ref();
                    let help = help_for(None, &format!("unknown field `{unknown}`"));
                    let message = match section {
                        "" => format!("there is no section `{unknown}`"),
                        section => format!("there is no key `{unknown}` in [{section}]"),
                    };
                    self.add(name.span(), message, help);
                }
            }
        }
    }

    fn is_no_section(&mut self, span: Range<usize>, header: &str) {
        let message = format!("{header} is a section, not a value");
        self.add(span, message, format!("begin it with a line `{header}`, and put its keys below"));
    }

    /// Checks a single value.
    fn look_at_value(&mut self, path: &str, span: Range<usize>) {
        let Some(value) = self.layer.text.get(span.clone()) else { return };
        let text = match path.strip_prefix("scope.") {
            Some(key) => format!("[[scope]]\n{key} = {value}"),
            None => format!("{path} = {value}"),
        };
        if let Err(error) = toml::from_str::<Config>(&text) {
            self.add(span, message_of(&error), help_for(Some(path.to_owned()), error.message()));
        }
    }
}

enum Kind {
    Scopes,
    Section,
    Key,
    Unknown,
}

fn kind(path: &str) -> Kind {
    let below = format!("{path}.");
    let is_section = |section: &str| section == path || section.starts_with(&below);
    match path {
        "scope" => Kind::Scopes,
        _ if Config::sections().iter().any(|(section, _)| is_section(section)) => Kind::Section,
        _ if field(path).is_some() => Kind::Key,
        _ => Kind::Unknown,
    }
}
