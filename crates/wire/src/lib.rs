//! What others may send to the daemon: HTTP requests for metrics, requests on the control socket,
//! and the pods of a node. Nothing here reads or writes, so tests and fuzzers reach all of it.

pub mod control;
pub mod http;
pub mod pods;
