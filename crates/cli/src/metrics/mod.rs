//! Figures for Prometheus: a snapshot as families of metrics, in two formats.

mod exposition;
mod families;

pub use exposition::Format;
pub use families::{Family, families, loop_late};

#[cfg(test)]
pub mod tests;
