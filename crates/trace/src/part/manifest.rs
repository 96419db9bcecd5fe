//! What a part consists of, with sums that tell damaged files from whole ones.

use serde::{Deserialize, Serialize};
use thermocline_core::units::Nanos;

use super::file::Sum;

/// A file of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its table.
    pub table: String,
    /// Its rows.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
    /// The sum of its bytes, in hexadecimal.
    pub sum: String,
}

/// The manifest of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the schema.
    pub schema: u32,
    /// The part's number, from 1.
    pub part: u32,
    /// Its first event.
    pub first_event: u64,
    /// The event after its last one.
    pub end_event: u64,
    /// When its first step was, CLOCK_MONOTONIC.
    pub first_ns: Nanos,
    /// When its last step was, CLOCK_MONOTONIC.
    pub last_ns: Nanos,
    /// Pieces of evidence in it.
    pub pieces: u64,
    /// Its files.
    pub files: Vec<FileEntry>,
    /// The sum of the manifest with this field empty, in hexadecimal.
    pub sum: String,
}

impl Manifest {
    /// The bytes of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let sealed = Manifest { sum: self.own_sum(), ..self.clone() };
        // Numbers and texts only, so serialisation cannot fail.
        let mut out = serde_json::to_vec_pretty(&sealed).unwrap_or_default();
        out.push(b'\n');
        out
    }

    /// The manifest in a file's bytes; `None` if they are damaged.
    pub fn of_bytes(bytes: &[u8]) -> Option<Manifest> {
        let manifest: Manifest = serde_json::from_slice(bytes).ok()?;
        (manifest.sum == manifest.own_sum()).then_some(manifest)
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn own_sum(&self) -> String {
        let open = Manifest { sum: String::new(), ..self.clone() };
        let mut sum = Sum::default();
        sum.add(&serde_json::to_vec(&open).unwrap_or_default());
        sum.text()
    }
}
