//! The live machine: one module per kernel interface, each rooted at a path.

// Output goes through the command's writers, which handle a closed pipe.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod actuator;
pub mod aside;
pub mod away;
pub mod clock;
pub mod configuration;
pub mod damon;
pub mod demoter;
pub mod descriptors;
pub mod doctor;
pub mod finding;
pub mod kernel_moves;
pub mod kswapd;
pub mod lists;
#[cfg(feature = "bpf")]
pub mod machine;
pub mod manager;
pub mod mover;
pub mod node_state;
pub mod numa_maps;
pub mod pace;
pub mod pagemap;
pub mod private;
pub mod process;
pub mod record;
pub mod regular;
pub mod residency;
pub mod reverse;
pub mod root;
pub mod scope;
pub mod source;
pub mod statistics;
pub mod sys;
pub mod topology;
pub mod vmstat;
pub mod zoneinfo;
