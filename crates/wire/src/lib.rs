//! What clients may send to the daemon: HTTP requests for metrics, and requests on the control
//! socket. Nothing here reads or writes, so tests and fuzzers reach all of it.

pub mod control;
pub mod http;
