//! Sources of evidence, one module each.

pub mod hintfault;
