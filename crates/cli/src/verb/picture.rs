//! Files of pictures and pages.

use std::path::Path;

use anyhow::Context;
use thermocline_sim::spec::{SpecError, require};

/// Checks that a picture can be written there: now, rather than after a quarter of an hour.
///
/// # Errors
/// There is no such folder, or the name is that of another format.
pub fn check(path: &Path) -> Result<(), SpecError> {
    check_as(path, "svg", "the picture is SVG", "give a file ending in .svg; rsvg-convert makes it a PNG")
}

/// The same for a file that ends in `.ending`, or in nothing.
///
/// # Errors
/// As [`check`].
pub fn check_as(path: &Path, ending: &str, what: &str, remedy: &str) -> Result<(), SpecError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = path.display().to_string();
    require(folder.is_dir(), &place, "there is no such folder", "make it, or give another file")?;
    let other = path.extension().is_some_and(|e| !e.eq_ignore_ascii_case(ending));
    require(!other, &place, what, remedy)
}

/// Writes a file. One that is there is replaced.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
