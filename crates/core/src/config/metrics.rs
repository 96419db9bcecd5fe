//! The section of the metrics that the daemon serves.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::config::names::SocketPath;
use crate::config::schema::{Allowed, Any, Violation};
use crate::section;

/// An address and port, the absolute path of a Unix socket, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct ListenAddress;

impl Allowed<Option<String>> for ListenAddress {
    fn allows(&self, value: &Option<String>) -> bool {
        let address = |text: &String| text.parse::<SocketAddr>().is_ok_and(|address| address.port() > 0);
        value.as_ref().is_none_or(|text| SocketPath.allows(text) || address(text))
    }

    fn words(&self) -> String {
        "an IP address and a port, the absolute path of a Unix socket, or unset".to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^(/[^\\x00]*[^/\\x00]|.+:[0-9]{1,5})$" })
    }
}

section! {
    /// `[metrics]`: figures for Prometheus.
    Metrics {
        /// Where `/metrics` is served, as 127.0.0.1:9469 or /run/thermocline/metrics.sock; unset:
        /// nowhere. A Unix socket is open to the group of `daemon.socket_group`.
        listen: Option<String> = None, "address", ListenAddress, "ours", restart;
        /// Let `listen` be an address that other machines reach. Nobody is asked who he is, and the
        /// names of scopes are shown.
        remote: bool = false, "", Any("true or false"), "ours", restart;
    }
}

impl Metrics {
    /// What single ranges do not tell: keys that must fit together.
    pub(super) fn check_together(&self, path: &str, out: &mut Vec<Violation>) {
        let address = self.listen.as_deref().and_then(|text| text.parse::<SocketAddr>().ok());
        if let Some(address) = address.filter(|address| !address.ip().is_loopback() && !self.remote) {
            let message = format!(
                "{address} is reached from other machines; use 127.0.0.1, or set {path}.remote = true"
            );
            out.push(Violation { key: format!("{path}.listen"), message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn loopback_and_sockets_are_taken_and_other_addresses_where_that_is_wanted() {
        let taken = |listen: &str, remote| {
            let metrics = Metrics { listen: Some(listen.to_owned()), remote };
            Config { metrics, ..Config::default() }.check().is_ok()
        };
        for listen in ["127.0.0.1:9469", "[::1]:1", "/run/thermocline/metrics.sock"] {
            assert!(taken(listen, false), "{listen}");
        }
        for listen in ["0.0.0.0:9469", "10.1.2.3:9469", "[::]:9469"] {
            assert!(!taken(listen, false) && taken(listen, true), "{listen}");
        }
        for listen in ["", "localhost:9469", "127.0.0.1", "127.0.0.1:0", "metrics.sock", "/run/", ":9469"] {
            assert!(!taken(listen, true), "{listen}");
        }
    }
}
