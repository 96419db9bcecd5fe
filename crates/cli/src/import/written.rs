//! Writes the result of an import: a configuration of ours, and what became of each line.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::{Became, Format, Import, Told};

/// Approximate width of comment lines.
const WIDTH: usize = 100;

impl Import {
    /// A configuration that begins with what became of each line of the file `name`.
    pub fn toml(&self, name: &str, format: Format) -> String {
        let (translated, refused) = self.counts();
        let name = name.escape_debug();
        let mut out =
            format!("# From {name}, {}: {translated} translated, {refused} refused.\n#\n", format.what());
        for (line, words) in self.lines() {
            for (n, part) in wrapped(&words).iter().enumerate() {
                let _ = match n {
                    0 => writeln!(out, "# {line}: {part}"),
                    _ => writeln!(out, "#     {part}"),
                };
            }
        }
        let mut sections: BTreeMap<&str, Vec<(&str, &toml::Value)>> = BTreeMap::new();
        for (key, (_, value)) in &self.set {
            if let Some((section, name)) = key.rsplit_once('.') {
                sections.entry(section).or_default().push((name, value));
            }
        }
        for (section, keys) in sections {
            let _ = writeln!(out, "\n[{section}]");
            for (key, value) in keys {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
        for scope in &self.scopes {
            out.push_str("\n[[scope]]\n");
            for (key, value) in scope {
                let _ = writeln!(out, "{key} = {value}");
            }
        }
        out
    }

    /// The configuration and what became of each line, as JSON.
    pub fn json(&self, name: &str, format: Format) -> Value {
        let told = self.told.iter().map(|told| {
            let (key, value, why) = match &told.became {
                Became::Key(key, value) => (Some(key), Some(value), None),
                Became::Anyway(why) | Became::Refused(why) => (None, None, Some(why)),
            };
            let refused = matches!(told.became, Became::Refused(_));
            json!({ "line": told.line, "theirs": told.theirs, "refused": refused, "key": key, "value": value, "why": why })
        });
        json!({ "lines": told.collect::<Vec<_>>(), "toml": self.toml(name, format) })
    }

    /// What became of each line, in order. If many lines are refused for the same reason, they are
    /// reported together.
    fn lines(&self) -> Vec<(String, String)> {
        let mut by_reason: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
        for told in &self.told {
            if let Became::Refused(why) = &told.became {
                by_reason.entry(why).or_default().push(told);
            }
        }
        let mut out = Vec::new();
        for told in &self.told {
            let theirs = &told.theirs;
            let words = match &told.became {
                Became::Key(key, value) => format!("{theirs} -> {key} = {value}"),
                Became::Anyway(why) => format!("{theirs}: {why}"),
                Became::Refused(why) => {
                    let same = &by_reason[why.as_str()];
                    if same.len() < MANY {
                        format!("{theirs}: refused: {why}")
                    } else if same[0].line == told.line && same[0].theirs == *theirs {
                        let all: Vec<String> =
                            same.iter().map(|t| format!("{} (line {})", t.theirs, t.line)).collect();
                        out.push((
                            format!("{} lines", same.len()),
                            format!("refused: {why}: {}", all.join(", ")),
                        ));
                        continue;
                    } else {
                        continue;
                    }
                }
            };
            out.push((format!("line {}", told.line), words));
        }
        out
    }
}

/// From this number on, lines refused for the same reason are reported together.
const MANY: usize = 8;

/// Wraps a text. Control characters, which might end a comment, become spaces.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    for word in clean.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + 1 + word.len() > WIDTH {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}
