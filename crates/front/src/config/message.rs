//! Error messages: where the error is, what is wrong, what was probably meant and what is allowed.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use thermocline_core::config::Config;
use thermocline_core::config::schema::Field;

use super::layer::Layer;

/// The parser's message in one line.
pub(super) fn message_of(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join("; ")
}

/// An error.
pub(super) struct Mark<'a> {
    /// Where it is, if it has a place.
    pub(super) place: Option<(&'a Layer, Range<usize>)>,
    /// What is wrong.
    pub(super) message: String,
    /// What to do.
    pub(super) help: String,
}

/// Renders what is wrong and where. Errors without a place in a text are rendered without one.
pub(super) fn render(marks: &[Mark<'_>]) -> String {
    let groups: Vec<Group<'_>> = marks
        .iter()
        .map(|Mark { place, message, help }| {
            let title = Level::ERROR.primary_title(message.as_str());
            let help = Level::HELP.message(help.as_str());
            let Some((layer, span)) = place else { return title.element(help) };
            let (text, name) = (layer.text.as_str(), layer.name.as_str());
            let place = AnnotationKind::Primary.span(clamp(text, span));
            title.element(Snippet::source(text).path(name).line_start(1).annotation(place)).element(help)
        })
        .collect();
    Renderer::plain().render(&groups)
}

/// Appends the number of errors that are not shown.
pub(super) fn with_more(shown: String, more: usize) -> String {
    match more {
        0 => shown,
        more => format!("{shown}\nand {more} more"),
    }
}

/// Clamps a span to the text and to character boundaries, whatever the parser reported.
fn clamp(text: &str, span: &Range<usize>) -> Range<usize> {
    let mut start = span.start.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let mut end = span.end.clamp(start, text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    start..end
}

/// The remedy for a parser's error: the nearest key for an unknown one, the range for a bad value
/// of `key`.
pub(super) fn help_for(key: Option<String>, message: &str) -> String {
    if let Some(unknown) = message.strip_prefix("unknown field `").and_then(|m| m.split('`').next()) {
        return match nearest_key(unknown) {
            Some(key) => format!("did you mean `{key}`? `thermocline config` lists every key"),
            None => "`thermocline config` lists every key".to_owned(),
        };
    }
    match key.and_then(|key| field(&key).map(|f| (key, f))) {
        Some((key, f)) => {
            let unit = if f.unit.is_empty() { String::new() } else { format!(" {}", f.unit) };
            format!("`{key}` is {}{unit}; the default is {}", f.range, f.default)
        }
        None => "the file is TOML; `thermocline config` prints one with all defaults".to_owned(),
    }
}

/// The dotted key or section whose last part is most similar to `unknown`.
pub fn nearest_key(unknown: &str) -> Option<String> {
    let mut names: Vec<(String, String)> = Vec::new();
    for (section, fields) in Config::sections() {
        names.push((section.rsplit('.').next().unwrap_or(&section).to_owned(), section.clone()));
        names.extend(fields.iter().map(|f| (f.name.to_owned(), format!("{section}.{}", f.name))));
    }
    let like = names.iter().filter_map(|(last, key)| Some((distance(unknown, last)?, last.len(), key)));
    like.min().map(|(_, _, key)| key.clone())
}

/// The name that is most similar to `unknown`.
pub(super) fn nearest<'a>(unknown: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names.filter_map(|name| Some((distance(unknown, name)?, name))).min().map(|(_, name)| name)
}

/// The edit distance of two names, if it is small.
fn distance(unknown: &str, name: &str) -> Option<usize> {
    // Names whose lengths differ by more than the tolerance are too far apart in any case, so long
    // ones are never compared.
    let length = unknown.chars().count();
    let most = name.len().max(length);
    if name.len().abs_diff(length) * 3 > most {
        return None;
    }
    Some(strsim::damerau_levenshtein(unknown, name)).filter(|distance| distance * 3 <= most)
}

/// The declaration behind a dotted key; indices of lists are ignored.
pub fn field(key: &str) -> Option<Field> {
    let (section, name) = key.rsplit_once('.')?;
    let section: String = section.split('[').next().unwrap_or(section).to_owned();
    let fields = Config::sections().into_iter().find(|(s, _)| *s == section)?.1;
    fields.into_iter().find(|f| f.name == name)
}
