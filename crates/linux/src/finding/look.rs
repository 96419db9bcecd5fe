//! Reads files for the findings, which continue after files that cannot be read, and reports them.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::actuator::{lru_gen, node_reclaim};
use crate::root::{KernelFileError, Root, exists, list_optional, read_optional};
use crate::topology::Discovered;

/// Reads a machine: absent files are `None`; unreadable ones are `None` and recorded.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    pub(crate) root: &'a Root,
    /// What could not be read, and why.
    pub(crate) failures: Vec<String>,
}

impl<'a> Look<'a> {
    pub(crate) fn new(root: &'a Root) -> Look<'a> {
        Look { root, failures: Vec::new() }
    }

    /// Whether a word stands on the boot command line.
    pub(crate) fn booted(&mut self, word: &str) -> bool {
        let line = self.text(&self.root.proc.join("cmdline")).unwrap_or_default();
        line.split_ascii_whitespace().any(|w| w == word)
    }

    /// Checks for the files that offer demotion, which are tried elsewhere, so that a copy of the
    /// machine includes them.
    pub(crate) fn demotion(&self, found: Option<&Discovered>) {
        let nodes = found.into_iter().flat_map(|found| &found.topology.nodes);
        let files = nodes.map(|node| node_reclaim(self.root, node.id)).chain([lru_gen(self.root)]);
        files.for_each(|file| {
            exists(&file);
        });
    }

    /// The text of a file.
    pub(crate) fn text(&mut self, path: &Path) -> Option<String> {
        let read = read_optional(path);
        self.keep(read).flatten()
    }

    /// The text of a file without the space around it.
    pub(crate) fn word(&mut self, path: &Path) -> Option<String> {
        self.text(path).map(|text| text.trim().to_owned())
    }

    /// The number in a file.
    pub(crate) fn number<T: FromStr>(&mut self, path: &Path) -> Option<T> {
        let text = self.word(path)?;
        match text.parse() {
            Ok(number) => Some(number),
            Err(_) => {
                self.fail(format!("{}: {text:?} is no number", path.display()));
                None
            }
        }
    }

    /// The paths in a folder whose names begin with `prefix`, by name.
    pub(crate) fn list(&mut self, folder: &Path, prefix: &str) -> Vec<PathBuf> {
        let listed = list_optional(folder);
        let mut names = self.keep(listed).flatten().unwrap_or_default();
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        names.into_iter().map(|name| folder.join(name)).collect()
    }

    /// Records a failure once.
    pub(crate) fn fail(&mut self, why: String) {
        if !self.failures.contains(&why) {
            self.failures.push(why);
        }
    }

    /// The value, or `None` with its error recorded.
    pub(crate) fn keep<T>(&mut self, result: Result<T, KernelFileError>) -> Option<T> {
        result.map_err(|error| self.fail(error.to_string())).ok()
    }
}
