//! Reads a configuration file and says, where it cannot be used, which line is wrong, what was
//! meant and what is allowed.

use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use thermocline_core::config::schema::Field;
use thermocline_core::config::{Config, ConfigError};
use thermocline_linux::{configuration, regular};
use toml::de::{DeTable, DeValue};

use crate::foreign;

/// Longest configuration that is read, in bytes.
pub const SIZE_BYTES_MAX: u64 = 256 << 10;

/// Errors that are shown of one file; each takes a look at the whole text, and the number tells of
/// the others.
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
    load_with(Some(path), |_| {})
}

/// The configuration of a file, or the defaults, with what the command line says instead; checked
/// as it will be used.
///
/// # Errors
/// [`FileError`]; nothing is used of a file that has any error.
pub fn load_with(path: Option<&Path>, adapt: impl FnOnce(&mut Config)) -> Result<Config, FileError> {
    let Some(path) = path else {
        return parse("", "the command line", adapt).map_err(FileError::Invalid);
    };
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
    parse(&text, &path.display().to_string(), adapt).map_err(FileError::Invalid)
}

/// Parses the text of a configuration, has it adapted, and checks it; `name` stands for the file in
/// messages.
///
/// # Errors
/// A message that shows the line, what is wrong and what is allowed.
pub fn parse(text: &str, name: &str, adapt: impl FnOnce(&mut Config)) -> Result<Config, String> {
    let mut config: Config = toml::from_str(text).map_err(|e| {
        if let Some(told) = foreign::told(text) {
            return format!(
                "{name} {told}\nnothing of it is used; `thermocline config` prints a configuration with all defaults"
            );
        }
        let span = e.span().unwrap_or(0..0);
        let help = help_for(text, &span, e.message());
        render(text, name, &[(Some(span), message_of(&e))], &help)
    })?;
    adapt(&mut config);
    let Err(ConfigError(violations)) = configuration::check(&config) else { return Ok(config) };
    let table = DeTable::parse(text).ok();
    let marks: Vec<(Option<Range<usize>>, String)> = violations
        .iter()
        .take(SHOWN_MAX)
        .map(|v| {
            let span = table.as_ref().and_then(|table| span_of(table.get_ref(), &v.key));
            let message = match span {
                Some(_) => v.message.clone(),
                None => format!("{}: {}", v.key, v.message),
            };
            (span, message)
        })
        .collect();
    let shown = render(text, name, &marks, "correct the value, or delete the line to use the default");
    Err(match violations.len() - marks.len() {
        0 => shown,
        more => format!("{shown}\nand {more} more"),
    })
}

/// The parser's message in one line.
fn message_of(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join("; ")
}

/// What is wrong and where; what has no place in the text is told without one.
fn render(text: &str, name: &str, marks: &[(Option<Range<usize>>, String)], help: &str) -> String {
    let groups: Vec<Group<'_>> = marks
        .iter()
        .map(|(span, message)| {
            let title = Level::ERROR.primary_title(message.as_str());
            let help = Level::HELP.message(help);
            let Some(span) = span else { return title.element(help) };
            let place = AnnotationKind::Primary.span(clamp(text, span));
            title.element(Snippet::source(text).path(name).line_start(1).annotation(place)).element(help)
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

/// What to do about a parser's error: the nearest key for an unknown one, the range for a bad
/// value.
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
        names.push((section.rsplit('.').next().unwrap_or(&section).to_owned(), section.clone()));
        names.extend(fields.iter().map(|f| (f.name.to_owned(), format!("{section}.{}", f.name))));
    }
    // What differs in length by more than is tolerated need not be compared, however long it is.
    let length = unknown.chars().count();
    names
        .into_iter()
        .filter(|(last, _)| last.len().abs_diff(length) * 3 <= last.len().max(length))
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
fn span_of(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let mut at: Option<(&DeValue<'_>, Range<usize>)> = None;
    let mut here = table;
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
    use thermocline_core::config::{ManagerName, Scope};

    fn error(text: &str) -> String {
        parse(text, "t.toml", |_| {}).unwrap_err()
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(parse("", "t.toml", |_| {}).unwrap(), Config::default());
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
        // One more than scopes: the first is also one that names no process.
        assert!(e.ends_with("\nand 4981 more"), "{e}");
    }

    #[test]
    fn long_names_and_many_scopes_are_answered_in_little_time() {
        let start = std::time::Instant::now();
        let long = "k".repeat(200 << 10);
        assert!(error(&format!("{long} = 1\n")).contains("lists every key"));
        assert!(error(&format!("[rule]\nname = \"{long}\"\n")).contains("unknown variant"));
        assert!(error(&"[[scope]]\n".repeat(26_000)).contains("names no process"));
        let limited = |n| format!("[[scope]]\ncgroup='/{n}'\ntop_tier_cap_mib=1\n");
        let limited: String = (0..5500).map(limited).collect();
        assert!(error(&limited).contains("at most 16 cgroups"));
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    }

    #[test]
    fn what_the_command_line_says_is_checked_and_has_no_line() {
        let by_pid = |config: &mut Config| {
            config.scope = vec![Scope { pids: vec![1], ..Scope::default() }];
            config.manager.name = ManagerName::Numab2;
        };
        let told = parse("[engine]\ntick_ms = 50\n", "t.toml", by_pid).unwrap_err();
        assert!(told.starts_with("error: manager.name: numab2") && !told.contains("tick_ms"), "{told}");
        assert!(load_with(None, by_pid).is_err() && load_with(None, |_| {}).is_ok());
        // What is wrong for the manager of the file is right for the one that is asked for instead.
        let blind = "[source.hintfault]\nenabled = false\n";
        assert!(error(blind).contains("no source is switched on"));
        assert!(parse(blind, "t.toml", |c| c.manager.name = ManagerName::Damon).is_ok());
    }

    #[test]
    fn a_configuration_of_another_program_is_named() {
        let told = error("policy:\n  name: age\n  config: |\n    intervalms: 1000\n");
        assert!(told.starts_with("t.toml is a configuration of memtierd"), "{told}");
        assert!(told.contains("engine.tick_ms") && told.contains("`thermocline config`"), "{told}");
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
            let _ = parse(&text, "t.toml", |_| {});
        }

        #[test]
        fn a_truncated_configuration_is_an_error_or_a_configuration(cut in 0usize..400) {
            let whole = toml::to_string(&Config::default()).unwrap();
            let _ = parse(&whole[..cut.min(whole.len())], "t.toml", |_| {});
        }
    }
}
