//! Recordings: written, damaged, read and replayed.

mod damage;
mod endings;
mod exports;
#[path = "../../../core/tests/it/faulty.rs"]
#[allow(dead_code, reason = "these tests do not use all of it")]
mod faulty;
mod heat;
mod imports;
mod machines;
mod private;
mod replayed;
mod roundtrip;
