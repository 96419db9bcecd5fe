//! Reads user-written TOML: known keys only, and errors that name the place and the remedy.

use serde::de::DeserializeOwned;

/// A specification longer than this is a mistake: the largest preset has a few kilobytes.
pub const SPEC_BYTES_MAX: usize = 1 << 20;

/// A machine, workload or scenario that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}; {remedy}")]
pub struct SpecError {
    /// The file and line, or the dotted key.
    pub place: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl SpecError {
    /// An error at a place.
    pub fn new(place: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> SpecError {
        SpecError { place: place.into(), message: message.into(), remedy: remedy.into() }
    }
}

/// Parses `text`; errors call it `name`.
///
/// # Errors
/// The text is too long, is not TOML, has an unknown key, or a value of the wrong type.
pub fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, SpecError> {
    if text.len() > SPEC_BYTES_MAX {
        let message = format!("{} bytes are too long for a specification", text.len());
        return Err(SpecError::new(name, message, format!("stay below {SPEC_BYTES_MAX} bytes")));
    }
    toml::from_str(text).map_err(|error| {
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = if line > 0 { format!("{name}:{line}") } else { name.to_owned() };
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        let remedy = if message.contains("unknown field") {
            "remove the key, or use one of those listed"
        } else if message.contains("missing field") {
            "add the key"
        } else {
            "correct the value"
        };
        SpecError::new(place, message, remedy)
    })
}

/// `Ok` where `holds`, else the error.
///
/// # Errors
/// When it does not hold.
pub fn require(holds: bool, place: &str, message: &str, remedy: &str) -> Result<(), SpecError> {
    if holds { Ok(()) } else { Err(SpecError::new(place, message, remedy)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Small {
        #[allow(dead_code)]
        size: crate::units::Bytes,
    }

    #[test]
    fn errors_name_place_and_remedy() {
        let error = |text: &str| parse::<Small>("x.toml", text).unwrap_err().to_string();
        let unknown = error("size = \"1GiB\"\nsise = 3\n");
        assert!(unknown.starts_with("x.toml:2: unknown field `sise`"), "{unknown}");
        assert!(unknown.ends_with("remove the key, or use one of those listed"), "{unknown}");
        let negative = error("size = \"-1GiB\"\n");
        assert!(negative.starts_with("x.toml:1: ") && negative.contains("negative"), "{negative}");
        assert!(error("").contains("missing field `size`"));
        assert!(error(&"#".repeat(100 << 20)).contains("too long"));
    }
}
