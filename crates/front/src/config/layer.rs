//! A layer of the configuration: a file, an environment variable, or an option. Each is a TOML
//! text; a variable or an option has a single line.

use toml::Value;

/// Where a layer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Variable,
    Option,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Layer {
    kind: Kind,
    /// The file's path, or the variable's or option's name.
    pub(super) name: String,
    pub(super) text: String,
}

impl Layer {
    pub(super) fn file(name: &str, text: &str) -> Layer {
        Layer { kind: Kind::File, name: name.to_owned(), text: text.to_owned() }
    }

    /// A variable that sets `key`.
    pub(super) fn variable(name: &str, key: &str, value: &str) -> Layer {
        let text = format!("{key} = {}", as_toml(value));
        Layer { kind: Kind::Variable, name: format!("environment {name}"), text }
    }

    /// Whether it is a whole file rather than a single value.
    pub(super) fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// How a message names the place at this byte offset.
    pub(super) fn told(&self, at: usize) -> String {
        if !self.is_file() {
            return self.name.clone();
        }
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        format!("{}:{}", self.name, 1 + before.iter().filter(|byte| **byte == b'\n').count())
    }
}

/// Parses an option `--set key=value`.
///
/// # Errors
/// It has another form.
pub(super) fn of_option(change: &str) -> Result<Layer, String> {
    let is_key = |key: &str| {
        let letter = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        !key.is_empty() && key.chars().all(letter)
    };
    match change.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, value)) if is_key(key) => {
            let text = format!("{key} = {}", as_toml(value));
            Ok(Layer { kind: Kind::Option, name: format!("--set {key}"), text })
        }
        _ => {
            Err(format!("--set {change}: write it as section.key=value, as in admission.rate_limit_mbps=64"))
        }
    }
}

/// A value as TOML. A value that is not TOML is taken as a string, because a shell easily strips
/// quotes.
fn as_toml(value: &str) -> String {
    let alone = format!("v = {value}").parse::<toml::Table>().is_ok_and(|table| table.len() == 1);
    if alone { value.to_owned() } else { Value::String(value.to_owned()).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_value_is_text() {
        for (value, text) in [
            ("64", "64"),
            ("latency", "\"latency\""),
            ("\"a\"", "\"a\""),
            ("1\nb = 2", "\"\"\"\n1\nb = 2\"\"\""),
        ] {
            assert_eq!(as_toml(value), text);
        }
        assert!(of_option("a.b = 1").is_ok());
        for wrong in ["a", "=1", "a b=1", "a\nb=1", "a=1\"]="] {
            assert!(of_option(wrong).is_err() == (wrong != "a=1\"]="), "{wrong}");
        }
    }

    #[test]
    fn a_place_is_a_line_of_a_file_or_a_name() {
        assert_eq!(Layer::file("f.toml", "\n\na = 1").told(2), "f.toml:3");
        assert_eq!(of_option("a.b=1").unwrap().told(6), "--set a.b");
        assert_eq!(Layer::variable("THERMOCLINE_A_B", "a.b", "x").text, "a.b = \"x\"");
    }
}
