//! `/metrics` over HTTP/1.1: one request a connection, answered from the newest snapshot.
//!
//! Whatever a client does costs itself: requests are small and have to come in time, the text is
//! rendered once a snapshot, and all of it runs at a lower priority than the daemon.

mod request;
mod server;

pub use server::MetricsServer;

#[cfg(test)]
mod tests;
