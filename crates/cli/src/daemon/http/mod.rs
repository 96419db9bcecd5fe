//! `/metrics` over HTTP/1.1, answered from the newest snapshot. Connections persist.
//!
//! A client harms at most itself. One thread serves all clients, at a lower priority than the
//! daemon and with a quarter of a processor at most. Connections, requests and the time that either
//! may take are limited, and the text is rendered once per snapshot.

mod answers;
mod budget;
mod client;
mod server;

pub use server::{CLIENTS_MAX, MetricsServer};

#[cfg(test)]
mod attack;
#[cfg(test)]
mod tests;
