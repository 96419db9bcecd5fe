//! The live machine: one module a kernel interface, each rooted at a path.

pub mod actuator;
pub mod damon;
pub mod demoter;
pub mod doctor;
pub mod kernel_moves;
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
pub mod regular;
pub mod residency;
pub mod reverse;
pub mod root;
pub mod scope;
pub mod source;
pub mod sys;
pub mod topology;
pub mod vmstat;
pub mod zoneinfo;
