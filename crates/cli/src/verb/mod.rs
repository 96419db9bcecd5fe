//! One file a verb.

pub mod config;
pub mod generate;
