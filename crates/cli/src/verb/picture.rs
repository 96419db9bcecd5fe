//! Files of pictures and pages.

use std::path::Path;
use std::process::Command;

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

/// Draws an SVG file as PNG, into a file beside it.
///
/// # Errors
/// There is no rsvg-convert, or it fails.
pub fn png(svg: &Path) -> anyhow::Result<()> {
    let png = svg.with_extension("png");
    let done = Command::new("rsvg-convert").arg("-o").arg(&png).arg(svg).output().with_context(|| {
        "cannot run rsvg-convert, which draws the PNG; install it (Debian: librsvg2-bin), or leave --png out"
    })?;
    let said = String::from_utf8_lossy(&done.stderr);
    let place = svg.display();
    anyhow::ensure!(done.status.success(), "rsvg-convert cannot draw {place}: {}", said.trim());
    Ok(())
}

/// Writes a file. One that is there is replaced.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
