//! Translates configurations of other programs into ours. Each line is translated, or refused with
//! the reason.
//!
//! | file | what is read |
//! |---|---|
//! | memtierd | YAML or JSON; policy, pidwatcher, tracker, mover, routines |
//! | damo, HMSDK | JSON or YAML of kdamonds |
//! | sysctl | lines `key = value`, as `sysctl -a` prints them and sysctl.d holds them |

mod damo;
mod document;
mod memtierd;
mod quantity;
mod sysctl;
#[cfg(test)]
mod tests;
mod written;

use std::collections::BTreeMap;

use thermocline_core::config::schema::Field;
use toml::Value;

use thermocline_front::config::field;

/// The program that a file configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// memtierd's YAML.
    Memtierd,
    /// JSON of damo, or of HMSDK's gen_migpol.py.
    Damo,
    /// The kernel's settings, as of `sysctl -a`.
    Sysctl,
}

impl Format {
    /// Guesses the format of a text.
    pub fn of(text: &str) -> Option<Format> {
        match thermocline_front::foreign::named(text) {
            Some(what) if what.contains("memtierd") => Some(Format::Memtierd),
            Some(what) if what.contains("DAMON") => Some(Format::Damo),
            Some(_) => None,
            None if sysctl::is_one(text) => Some(Format::Sysctl),
            None => None,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Format::Memtierd => "a configuration of memtierd",
            Format::Damo => "a setup of DAMON, as damo takes it",
            Format::Sysctl => "settings of the kernel",
        }
    }
}

/// What became of a statement in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Became {
    /// Our key gets this value.
    Key(String, String),
    /// It is so without a key, for this reason.
    Anyway(String),
    /// It is left out, for this reason.
    Refused(String),
}

/// A statement in a file.
#[derive(Clone, Debug)]
struct Told {
    line: usize,
    theirs: String,
    became: Became,
}

/// The result of an import.
#[derive(Debug, Default)]
pub struct Import {
    told: Vec<Told>,
    /// Our keys, each with the line that sets it.
    set: BTreeMap<String, (usize, Value)>,
    /// Our scopes, each as a map of keys.
    scopes: Vec<BTreeMap<&'static str, Value>>,
}

/// Translates a text.
///
/// # Errors
/// It is not such a file; the message names the line and what is wrong there.
pub fn import(text: &str, format: Format) -> Result<Import, String> {
    let mut import = Import::default();
    match format {
        Format::Sysctl => sysctl::read(text, &mut import),
        Format::Memtierd => memtierd::read(&document::parse(text, 1)?, &mut import),
        Format::Damo => damo::read(&document::parse(text, 1)?, &mut import),
    }
    import.told.sort_by_key(|told| told.line);
    Ok(import)
}

impl Import {
    /// The numbers of statements translated and refused.
    pub fn counts(&self) -> (usize, usize) {
        let refused = self.told.iter().filter(|t| matches!(t.became, Became::Refused(_))).count();
        (self.told.len() - refused, refused)
    }

    fn note(&mut self, line: usize, theirs: impl Into<String>, became: Became) {
        self.told.push(Told { line, theirs: theirs.into(), became });
    }

    fn refuse(&mut self, line: usize, theirs: impl Into<String>, why: impl Into<String>) {
        self.note(line, theirs, Became::Refused(why.into()));
    }

    fn anyway(&mut self, line: usize, theirs: impl Into<String>, why: impl Into<String>) {
        self.note(line, theirs, Became::Anyway(why.into()));
    }

    /// Sets one of our keys, unless the value is out of range or another line has set a different
    /// one.
    fn set(&mut self, line: usize, theirs: &str, key: &str, value: impl Into<Value>) {
        let value = value.into();
        let Some(field) = field(key) else {
            return self.refuse(line, theirs, format!("there is no key {key}"));
        };
        if let Err(why) = within(key, &field, &value) {
            return self.refuse(line, theirs, why);
        }
        match self.set.get(key) {
            Some((earlier, other)) if *other != value => {
                let why = format!("line {earlier} has set {key} = {other}, and there is one for all");
                self.refuse(line, theirs, why);
            }
            _ => {
                self.note(line, theirs, Became::Key(key.to_owned(), value.to_string()));
                self.set.insert(key.to_owned(), (line, value));
            }
        }
    }

    /// Sets a key to a number that was parsed from a foreign quantity.
    fn set_number(&mut self, line: usize, theirs: &str, key: &str, number: Result<u64, String>) {
        match number {
            Ok(number) => match i64::try_from(number) {
                Ok(number) => self.set(line, theirs, key, number),
                Err(_) => self.refuse(line, theirs, "it is beyond all ranges"),
            },
            Err(why) => self.refuse(line, theirs, why),
        }
    }

    /// Adds a scope with one key, unless an identical one exists.
    fn scope(&mut self, line: usize, theirs: &str, key: &'static str, value: impl Into<Value>) {
        let value = value.into();
        self.note(line, theirs, Became::Key(format!("scope.{key}"), value.to_string()));
        let scope = BTreeMap::from([(key, value)]);
        if !self.scopes.contains(&scope) {
            self.scopes.push(scope);
        }
    }
}

/// Checks that a value is in the range of its key.
fn within(key: &str, field: &Field, value: &Value) -> Result<(), String> {
    let Some(number) = value.as_integer() else { return Ok(()) };
    let bound = |name: &str| field.schema[name].as_i64();
    let inside = bound("minimum").is_none_or(|least| number >= least)
        && bound("maximum").is_none_or(|most| number <= most);
    if inside {
        return Ok(());
    }
    let unit = if field.unit.is_empty() { String::new() } else { format!(" {}", field.unit) };
    let default = &field.default;
    Err(format!("{number} is out of range: {key} is {}{unit}; the default stays, {default}", field.range))
}
