//! Reads a configuration file and says, where it cannot be used, which line is wrong, what was meant and what is
//! allowed.

use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use thermocline_core::config::schema::Field;
use thermocline_core::config::{Config, ConfigError};
use thermocline_linux::regular;
use thermocline_linux::scope::{ScopeError, Scopes};
use toml::de::{DeTable, DeValue};

/// Longest configuration that is read, in bytes.
pub const SIZE_BYTES_MAX: u64 = 256 << 10;

/// Errors that are shown of one file; each takes a look at the whole text, and the number tells of the others.
const SHOWN_MAX: usize = 20;

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error(
        "cannot read {path}: {source}; give the path of a TOML file, or leave --config out to use the defaults"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a configuration.
    #[error(
        "{path} is longer than {} KiB and cannot be a configuration; `thermocline config` prints one with all defaults",
        SIZE_BYTES_MAX >> 10
    )]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file is not text.
    #[error(
        "{path} line {line}: not UTF-8 text; `thermocline config` prints a configuration with all defaults"
    )]
    NotText {
        /// The file.
        path: PathBuf,
        /// The line of the first bad byte.
        line: usize,
    },
    /// The text is wrong; the message shows where, and what is allowed.
    #[error("{0}")]
    Invalid(String),
}

/// Reads and checks a configuration file.
///
/// # Errors
/// [`FileError`]; nothing is used of a file that has any error.
pub fn load(path: &Path) -> Result<Config, FileError> {
    let read = |e| FileError::Read { path: path.to_owned(), source: e };
    let bytes = regular::read_at_most(path, SIZE_BYTES_MAX).map_err(read)?;
    if bytes.len() as u64 > SIZE_BYTES_MAX {
        return Err(FileError::TooLong { path: path.to_owned() });
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let good = e.utf8_error().valid_up_to();
        let line = 1 + e.as_bytes()[..good].iter().filter(|b| **b == b'\n').count();
        FileError::NotText { path: path.to_owned(), line }
    })?;
    parse(&text, &path.display().to_string()).map_err(FileError::Invalid)
}

/// Parses and checks the text of a configuration; `name` stands for the file in messages.
///
/// # Errors
/// A message that shows the line, what is wrong and what is allowed.
pub fn parse(text: &str, name: &str) -> Result<Config, String> {
    let config: Config = toml::from_str(text).map_err(|e| {
        let span = e.span().unwrap_or(0..0);
        render(text, name, &[(span.clone(), message_of(&e))], &help_for(text, &span, e.message()))
    })?;
    match config.check() {
        Ok(()) => match Scopes::new(&config.scope) {
            Ok(_) => Ok(config),
            Err(error) => {
                let key = scope_key(&error);
                let span = key.and_then(|key| span_of(text, &key)).unwrap_or(0..0);
                let message: Vec<String> =
                    error.to_string().lines().map(|line| line.trim().to_owned()).collect();
                Err(render(text, name, &[(span, message.join(" "))], "correct the scope, or delete it"))
            }
        },
        Err(ConfigError(violations)) => {
            let marks: Vec<(Range<usize>, String)> = violations
                .iter()
                .take(SHOWN_MAX)
                .map(|v| (span_of(text, &v.key).unwrap_or(0..0), v.message.clone()))
                .collect();
            let shown =
                render(text, name, &marks, "correct the value, or delete the line to use the default");
            Err(match violations.len() - marks.len() {
                0 => shown,
                more => format!("{shown}\nand {more} more"),
            })
        }
    }
}

/// The dotted key that a scope cannot be used for.
fn scope_key(error: &ScopeError) -> Option<String> {
    match error {
        ScopeError::Empty { index } => Some(format!("scope[{index}]")),
        ScopeError::Command { index, .. } => Some(format!("scope[{index}].command")),
        ScopeError::NameTwice { index, .. } => Some(format!("scope[{index}].name")),
        _ => None,
    }
}

/// The parser's message in one line.
fn message_of(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join("; ")
}

fn render(text: &str, name: &str, marks: &[(Range<usize>, String)], help: &str) -> String {
    let groups: Vec<Group<'_>> = marks
        .iter()
        .map(|(span, message)| {
            let span = clamp(text, span);
            Level::ERROR
                .primary_title(message.as_str())
                .element(
                    Snippet::source(text)
                        .path(name)
                        .line_start(1)
                        .annotation(AnnotationKind::Primary.span(span)),
                )
                .element(Level::HELP.message(help))
        })
        .collect();
    Renderer::plain().render(&groups)
}

/// Keeps a span inside the text and on character borders, whatever the parser said.
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

/// What to do about a parser's error: the nearest key for an unknown one, the range for a bad value.
fn help_for(text: &str, span: &Range<usize>, message: &str) -> String {
    if let Some(unknown) = message.strip_prefix("unknown field `").and_then(|m| m.split('`').next()) {
        return match nearest_key(unknown) {
            Some(key) => format!("did you mean `{key}`? `thermocline config` lists every key"),
            None => "`thermocline config` lists every key".to_owned(),
        };
    }
    match key_at(text, span).and_then(|key| field(&key).map(|f| (key, f))) {
        Some((key, f)) => {
            let unit = if f.unit.is_empty() { String::new() } else { format!(" {}", f.unit) };
            format!("`{key}` is {}{unit}; the default is {}", f.range, f.default)
        }
        None => "the file is TOML; `thermocline config` prints one with all defaults".to_owned(),
    }
}

/// The dotted key among all sections whose last part is most like `unknown`.
fn nearest_key(unknown: &str) -> Option<String> {
    let mut names: Vec<(String, String)> = Vec::new();
    for (section, fields) in Config::sections() {
        names.push((section.rsplit('.').next().unwrap_or(section).to_owned(), section.to_owned()));
        names.extend(fields.iter().map(|f| (f.name.to_owned(), format!("{section}.{}", f.name))));
    }
    names
        .into_iter()
        .map(|(last, key)| (strsim::damerau_levenshtein(unknown, &last), last.len(), key))
        .filter(|(distance, length, _)| *distance * 3 <= (*length).max(unknown.chars().count()))
        .min()
        .map(|(_, _, key)| key)
}

/// The declaration behind a dotted key; indices of lists are ignored.
fn field(key: &str) -> Option<Field> {
    let (section, name) = key.rsplit_once('.')?;
    let section: String = section.split('[').next().unwrap_or(section).to_owned();
    let fields = Config::sections().into_iter().find(|(s, _)| *s == section)?.1;
    fields.into_iter().find(|f| f.name == name)
}

/// Where the value of a dotted key stands in the text.
fn span_of(text: &str, key: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    let mut at: Option<(&DeValue<'_>, Range<usize>)> = None;
    let mut here: &DeTable<'_> = table.get_ref();
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
fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        parse(text, "t.toml").unwrap_err()
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(parse("", "t.toml").unwrap(), Config::default());
    }

    #[test]
    fn an_unknown_key_is_shown_with_the_one_that_was_meant() {
        let e = error("[admission]\nrate_limt_mbps = 3\n");
        assert!(e.contains("t.toml:2:1"), "{e}");
        assert!(e.contains("rate_limt_mbps = 3"), "{e}");
        assert!(e.contains("did you mean `admission.rate_limit_mbps`?"), "{e}");
    }

    #[test]
    fn a_value_out_of_range_is_shown_with_its_range() {
        let e = error("[engine]\ntick_ms = 100\n\n[admission]\nbatch_pages = 4096\n");
        assert!(e.contains("t.toml:5:15"), "{e}");
        assert!(e.contains("batch_pages is 1 to 512 pages"), "{e}");
    }

    #[test]
    fn a_value_of_another_type_is_shown_with_its_range() {
        let e = error("[admission]\nrate_limit_mbps = \"fast\"\n");
        assert!(e.contains("t.toml:2:19"), "{e}");
        assert!(e.contains("`admission.rate_limit_mbps` is 1 to 65536 MB/s"), "{e}");
    }

    #[test]
    fn a_violation_in_a_list_of_scopes_is_found() {
        let e = error("[[scope]]\nname = \"a\"\n[[scope]]\nname = \"b\"\nrate_share_percent = 0\n");
        assert!(e.contains("t.toml:5:22"), "{e}");
    }

    #[test]
    fn scopes_that_run_refuses_are_no_configuration() {
        let named = "[[scope]]\nname = \"a\"\npids = [1]\n";
        for (text, place, said) in [
            ("[[scope]]\nname = \"a\"\n".to_owned(), "t.toml:1:1", "scope[0] names no process"),
            ("[[scope]]\ncommand = \"(\"\n".to_owned(), "t.toml:2:11", "regex parse error"),
            (named.repeat(2), "t.toml:5:8", "is the name of an earlier scope"),
        ] {
            let e = error(&text);
            assert!(e.contains(place) && e.contains(said), "{e}");
        }
    }

    #[test]
    fn of_thousands_of_errors_some_are_shown_and_the_others_counted() {
        let e = error(&"[[scope]]\nrate_share_percent = 0\n".repeat(5000));
        assert_eq!(e.matches("rate_share_percent is 1 to 100").count(), SHOWN_MAX);
        assert!(e.ends_with("\nand 4980 more"), "{e}");
    }

    #[test]
    fn what_is_no_file_of_text_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        assert!(matches!(load(&path), Err(FileError::Read { .. })));
        let device = load(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(device.contains("it is a device, not a file"), "{device}");
        std::fs::write(&path, b"# fine\n\xff\xfe").unwrap();
        assert!(matches!(load(&path), Err(FileError::NotText { line: 2, .. })));
        std::fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
        assert!(matches!(load(&path), Err(FileError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text, "t.toml");
        }

        #[test]
        fn a_truncated_configuration_is_an_error_or_a_configuration(cut in 0usize..400) {
            let whole = toml::to_string(&Config::default()).unwrap();
            let _ = parse(&whole[..cut.min(whole.len())], "t.toml");
        }
    }
}
