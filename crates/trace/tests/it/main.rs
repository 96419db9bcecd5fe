//! Recordings: written, damaged, read and replayed.

mod damage;
mod endings;
#[path = "../../../core/tests/it/faulty.rs"]
#[allow(dead_code)]
mod faulty;
mod machines;
mod private;
mod replayed;
mod roundtrip;
