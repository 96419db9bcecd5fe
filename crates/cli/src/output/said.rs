//! Something that is told on standard error, or in the journal with fields.

use std::fmt::Display;

/// How much an entry of the journal matters, by syslog's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Something cannot work.
    Error = 3,
    /// Something works less well than it could.
    Warning = 4,
    /// Worth knowing.
    Notice = 5,
    /// All else.
    Info = 6,
}

/// A text, and fields that only the journal shows.
#[derive(Clone, Debug)]
pub struct Said {
    /// The text.
    pub text: String,
    /// How much it matters.
    pub priority: Priority,
    /// The fields.
    pub fields: Vec<(&'static str, String)>,
}

impl Said {
    /// A text without fields.
    pub fn new(text: String) -> Said {
        Said { text, priority: Priority::Info, fields: Vec::new() }
    }

    /// With another field. A field may have several values.
    pub fn with(mut self, name: &'static str, value: impl Display) -> Said {
        self.fields.push((name, value.to_string()));
        self
    }
}
