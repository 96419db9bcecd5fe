//! The configuration, from files, the environment and the command line. Each overrides those before
//! it. If a configuration cannot be used, the message says which line is wrong, what was probably
//! meant and what is allowed.

mod environment;
mod files;
mod layer;
mod merge;
mod message;
mod place;
mod structure;

use std::path::{Path, PathBuf};

use thermocline_core::config::{Config, ConfigError};
use thermocline_linux::configuration;

pub use environment::name_of as environment_name;
pub use files::{DEFAULT_FILE, FileError, text};
use layer::Layer;
use merge::Merged;
use message::{Mark, render};
pub use message::{field, nearest_key};

/// Maximum number of errors that are shown, because each parses a whole text. The message counts
/// the others.
const SHOWN_MAX: usize = 20;

/// What a configuration is read from, apart from the environment.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The file; the folder `conf.d` beside it is read too. If none is given, the files of the
    /// installed service are read if they exist.
    pub file: Option<PathBuf>,
    /// Values from the command line: `section.key=value`.
    pub changes: Vec<String>,
}

impl Asked {
    /// Only this file, without changes from the command line.
    pub fn file(path: &Path) -> Asked {
        Asked { file: Some(path.to_owned()), changes: Vec::new() }
    }
}

/// A configuration, and where its values come from.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration, checked as it will be used.
    pub config: Config,
    merged: Merged,
}

impl Loaded {
    /// Where the value of a dotted key comes from: file and line, variable, or option. `default` if
    /// nothing sets it.
    pub fn origin(&self, key: &str) -> String {
        self.merged.place(key).map_or_else(|| "default".to_owned(), |(layer, span)| layer.told(span.start))
    }
}

/// Reads what `asked` names, applies `adapt`, and checks the result.
///
/// # Errors
/// [`FileError`]. A configuration with any error is not used at all.
pub fn load(asked: &Asked, adapt: impl FnOnce(&mut Config)) -> Result<Loaded, FileError> {
    let mut layers = files::read(asked.file.as_deref())?;
    layers.extend(environment::layers(std::env::vars_os()).map_err(FileError::Invalid)?);
    for change in &asked.changes {
        layers.push(layer::of_option(change).map_err(FileError::Invalid)?);
    }
    of_layers(layers, adapt).map_err(FileError::Invalid)
}

/// Parses a text, which messages call `name`, and the values of `changes` over it; the environment
/// counts for nothing. Applies `adapt`, and checks the result.
///
/// # Errors
/// As [`load`].
pub fn over(
    name: &str,
    text: &str,
    changes: &[String],
    adapt: impl FnOnce(&mut Config),
) -> Result<Config, FileError> {
    let mut layers = vec![Layer::file(name, text)];
    for change in changes {
        layers.push(layer::of_option(change).map_err(FileError::Invalid)?);
    }
    of_layers(layers, adapt).map(|loaded| loaded.config).map_err(FileError::Invalid)
}

/// Parses the text of a configuration, applies `adapt`, and checks the result. Messages call the
/// text `name`.
///
/// # Errors
/// A message that shows the line, what is wrong and what is allowed.
pub fn parse(text: &str, name: &str, adapt: impl FnOnce(&mut Config)) -> Result<Config, String> {
    of_layers(vec![Layer::file(name, text)], adapt).map(|loaded| loaded.config)
}

fn of_layers(layers: Vec<Layer>, adapt: impl FnOnce(&mut Config)) -> Result<Loaded, String> {
    for layer in &layers {
        structure::check(layer)?;
    }
    let (mut config, merged) = merge::merge(layers)?;
    adapt(&mut config);
    let Err(ConfigError(violations)) = configuration::check(&config) else {
        return Ok(Loaded { config, merged });
    };
    let marks: Vec<Mark<'_>> = violations
        .iter()
        .take(SHOWN_MAX)
        .map(|v| {
            let place = merged.place(&v.key);
            let message = match place {
                Some(_) => v.message.clone(),
                None => format!("{}: {}", v.key, v.message),
            };
            let help = "correct the value, or delete the line to use the default".to_owned();
            Mark { place, message, help }
        })
        .collect();
    Err(message::with_more(render(&marks), violations.len() - marks.len()))
}

#[cfg(test)]
mod tests;
