//! A request on the control socket: one line of JSON.

use serde::de::Error;
use serde::{Deserialize, Serialize};
use thermocline_core::config::ManagerName;
use thermocline_core::units::{Pid, VirtPage};

/// Maximum length of a request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 4096;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verb")]
pub enum Request {
    /// The newest snapshot, and the residency.
    Status {
        /// As text, not as figures.
        #[serde(default)]
        as_text: bool,
    },
    /// Why a page did or did not move.
    Explain {
        /// The page's process.
        pid: u32,
        /// An address in the page.
        address: u64,
        /// As text, not as figures.
        #[serde(default)]
        as_text: bool,
    },
    /// Pages of a process that are worth asking about.
    Pages {
        /// The process.
        pid: u32,
        /// As text, not as figures.
        #[serde(default)]
        as_text: bool,
    },
    /// Why a scope has what it has.
    Scope {
        /// Its name, or its cgroup if it has none.
        name: String,
        /// As text, not as figures.
        #[serde(default)]
        as_text: bool,
    },
    /// The latest decisions.
    Decisions {
        /// Those from this number on; the run's first has number 0.
        since: u64,
    },
    /// The daemon's current configuration.
    Config,
    /// Reads the configuration again.
    Reload,
    /// Switches to another manager.
    Switch {
        /// The manager.
        manager: ManagerName,
    },
}

impl Request {
    /// Parses the line of a client.
    ///
    /// # Errors
    /// It is not the JSON of a request.
    pub fn parse(line: &[u8]) -> serde_json::Result<Request> {
        // A list would do for serde.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return Err(serde_json::Error::custom("a request is a JSON object"));
        }
        serde_json::from_slice(line)
    }

    /// The page that the request is about.
    pub fn page(&self) -> Option<VirtPage> {
        match self {
            Request::Explain { pid, address, .. } => Some(VirtPage::of_address(Pid(*pid), *address)),
            Request::Status { .. }
            | Request::Pages { .. }
            | Request::Scope { .. }
            | Request::Decisions { .. }
            | Request::Config
            | Request::Reload
            | Request::Switch { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_object_and_nothing_after_it() {
        let explain = br#"{"verb":"explain","pid":7,"address":4097}"#;
        let parsed = Request::parse(explain).expect("a request");
        assert_eq!(parsed, Request::Explain { pid: 7, address: 4097, as_text: false });
        assert_eq!(parsed.page(), Some(VirtPage { pid: Pid(7), vpn: 1 }));
        assert_eq!(Request::parse(b"{\"verb\":\"reload\"}\n").expect("a line"), Request::Reload);
        for wrong in [
            &b""[..],
            b"{}",
            br#"["reload"]"#,
            b"{\"verb\":\"reload\"}{\"verb\":\"reload\"}",
            br#"{"verb":"explain","pid":-1,"address":0}"#,
            br#"{"verb":"explain","pid":4294967296,"address":0}"#,
            br#"{"verb":"switch","manager":"me"}"#,
            b"\xff\xfe",
        ] {
            assert!(Request::parse(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn nested_lists_end_in_an_error() {
        assert!(Request::parse(&[b'['; REQUEST_BYTES_MAX]).is_err());
    }
}
