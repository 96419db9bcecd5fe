//! What input from outside may do to each parser: one law a module, held for any bytes.
//!
//! The everyday test (`tests/hostile.rs`) tries inputs that fuzzing found and variations of them on
//! the stable toolchain. The targets in `fuzz/` search for new ones, with sanitizers.

pub mod control;
pub mod faults;
pub mod hotlist;
pub mod http;
pub mod imports;
mod machine;
pub mod pods;
pub mod regions;
pub mod rings;
pub mod samples;

/// A law for any bytes; it panics where they break it.
pub type Check = fn(&[u8]);

/// Each law with its name, which is that of its fuzz target and of its archive in `fuzz/seeds`, and
/// the bytes of an input at most.
pub const ALL: [(&str, Check, usize); 9] = [
    ("control", control::check, 4096),
    ("faults", faults::check, 4096),
    ("hotlist", hotlist::check, 2048),
    ("http", http::check, 10_240),
    ("imports", imports::check, 4096),
    ("pods", pods::check, 4096),
    ("regions", regions::check, 4096),
    ("rings", rings::check, 2048),
    ("samples", samples::check, 4096),
];
