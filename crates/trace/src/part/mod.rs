//! A part of a recording: a file for each table that has rows, and a manifest.
//!
//! Files are written under a temporary name. When all are finished they get their own names, and
//! then the manifest is written the same way: a part is there if its manifest is.

mod file;
mod manifest;
mod read;
mod write;

pub use manifest::{FileEntry, Manifest};
pub use read::{Damage, ReadPart};
pub use write::{PartWriter, Written, message, prepare};

/// What the names of unfinished files end with.
pub const UNFINISHED: &str = ".unfinished";

/// The name of a table's file in a part.
pub fn file_name(table: &str, part: u32) -> String {
    format!("{table}-{part:06}.parquet")
}

/// The name of a part's manifest.
pub fn manifest_name(part: u32) -> String {
    format!("part-{part:06}.json")
}

/// The part that the name of a table's file belongs to.
pub fn part_of_table(name: &str) -> Option<u32> {
    name.strip_suffix(".parquet")?.rsplit_once('-')?.1.parse().ok()
}

/// The part that a manifest's name belongs to.
pub fn part_of(name: &str) -> Option<u32> {
    name.strip_prefix("part-")?.strip_suffix(".json")?.parse().ok()
}
