//! The live machine: one module a kernel interface, each rooted at a path.

pub mod actuator;
pub mod lists;
pub mod mover;
pub mod node_state;
pub mod pagemap;
pub mod root;
pub mod source;
pub mod sys;
pub mod topology;
pub mod zoneinfo;
