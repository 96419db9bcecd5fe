//! `/metrics` over HTTP/1.1: one request per connection, answered from the newest snapshot.
//!
//! A client harms at most itself: requests are small and must arrive in time, the text is
//! rendered once per snapshot, and all of this runs at a lower priority than the daemon.

mod request;
mod server;

pub use server::MetricsServer;

#[cfg(test)]
mod tests;
