//! Files of pictures.

use std::path::Path;

use anyhow::Context;
use thermocline_sim::spec::{SpecError, require};

/// Checks that a picture can be written there: now, rather than after a quarter of an hour.
///
/// # Errors
/// There is no such folder, or the name is that of another format.
pub fn check(path: &Path) -> Result<(), SpecError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = path.display().to_string();
    require(folder.is_dir(), &place, "there is no such folder", "make it, or give another file")?;
    let other = path.extension().is_some_and(|e| !e.eq_ignore_ascii_case("svg"));
    let remedy = "give a file ending in .svg; rsvg-convert makes it a PNG";
    require(!other, &place, "the picture is SVG", remedy)
}

/// Writes a picture.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, svg: &str) -> anyhow::Result<()> {
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}
