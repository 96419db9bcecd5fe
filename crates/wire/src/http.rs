//! The head of an HTTP/1.x request, as its bytes arrive, and the head of the response.

/// Longest head of a request, in bytes. Proxies and scrapers send a few hundred.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Maximum number of headers in a request.
const HEADERS_MAX: usize = 64;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The page.
    pub page: Page,
    /// Only the head is wanted.
    pub head: bool,
    /// Further requests may follow on the connection.
    pub persists: bool,
}

/// The pages that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/metrics`.
    Metrics {
        /// The client takes OpenMetrics.
        open_metrics: bool,
    },
    /// `/-/healthy`: whether the loop runs.
    Health,
    /// `/`: a list of the other pages.
    Index,
}

/// The status of a response and its reason.
pub type Status = (u16, &'static str);

/// Not a request.
pub const BAD_REQUEST: Status = (400, "Bad Request");
/// A page that is not served.
pub const NOT_FOUND: Status = (404, "Not Found");
/// Neither `GET` nor `HEAD`.
pub const METHOD_NOT_ALLOWED: Status = (405, "Method Not Allowed");
/// Too many headers, or more than [`REQUEST_BYTES_MAX`].
pub const TOO_LARGE: Status = (431, "Request Header Fields Too Large");

/// A request, or the status with which it is refused.
pub type Asked = Result<Request, Status>;

/// Requests whose bytes arrive in pieces. How they are divided makes no difference.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    /// Bytes at the beginning in which no head ends.
    looked_at: usize,
}

impl Incoming {
    /// Takes the next piece; the next request, once its head is complete. At most a piece more than
    /// [`REQUEST_BYTES_MAX`] is kept.
    pub fn take(&mut self, piece: &[u8]) -> Option<Asked> {
        self.bytes.extend_from_slice(piece);
        self.again()
    }

    /// The next request, if its head has arrived already.
    pub fn again(&mut self) -> Option<Asked> {
        // The end may be divided between pieces. What was looked at before is not looked at again,
        // so that single bytes cost no more than a whole request.
        let from = self.looked_at.saturating_sub(2);
        let end = head_length(&self.bytes[from..]).map(|length| from + length);
        match end.filter(|end| *end <= REQUEST_BYTES_MAX) {
            Some(end) => {
                let asked = parse(&self.bytes[..end]);
                self.bytes.drain(..end);
                self.looked_at = 0;
                Some(asked)
            }
            None if self.bytes.len() >= REQUEST_BYTES_MAX => Some(Err(TOO_LARGE)),
            None => {
                self.looked_at = self.bytes.len();
                None
            }
        }
    }

    /// Whether nothing has arrived since the last request.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The length of a head, which an empty line ends.
fn head_length(bytes: &[u8]) -> Option<usize> {
    (0..bytes.len()).filter(|at| bytes[*at] == b'\n').find_map(|at| match bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Parses a whole head.
fn parse(bytes: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
        Ok(httparse::Status::Partial) | Err(_) => return Err(BAD_REQUEST),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(METHOD_NOT_ALLOWED),
    };
    let path = request.path.unwrap_or_default();
    let page = match path.split('?').next().unwrap_or_default() {
        "/metrics" => {
            let accept = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("accept"));
            let accept = accept.and_then(|header| std::str::from_utf8(header.value).ok());
            let open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
            Page::Metrics { open_metrics: open }
        }
        "/-/healthy" => Page::Health,
        "/" => Page::Index,
        _ => return Err(NOT_FOUND),
    };
    Ok(Request { page, head, persists: persists(&request) })
}

/// Whether the connection stays open. It does not if a body follows, which nobody reads.
fn persists(request: &httparse::Request<'_, '_>) -> bool {
    let is = |header: &httparse::Header<'_>, name: &str| header.name.eq_ignore_ascii_case(name);
    let mut headers = request.headers.iter();
    let ends = headers.any(|header| {
        is(header, "content-length")
            || is(header, "transfer-encoding")
            || is(header, "connection") && !header.value.eq_ignore_ascii_case(b"keep-alive")
    });
    request.version == Some(1) && !ends
}

/// The head of a response with a body of `length` bytes; further requests may follow on the
/// connection if it `persists`.
pub fn head(status: Status, content_type: &str, length: usize, persists: bool) -> String {
    let connection = if persists { "" } else { "Connection: close\r\n" };
    let allow = if status == METHOD_NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
    let (status, reason) = status;
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {allow}{connection}\r\n"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(bytes: &[u8]) -> Option<Asked> {
        Incoming::default().take(bytes)
    }

    fn page(page: Page) -> Option<Asked> {
        Some(Ok(Request { page, head: false, persists: true }))
    }

    #[test]
    fn pages_are_told_apart_by_path_and_format_by_accept() {
        assert_eq!(asked(b"GET / HTTP/1.1\n\n"), page(Page::Index));
        assert_eq!(asked(b"GET /-/healthy HTTP/1.1\r\n\n"), page(Page::Health));
        let plain = Page::Metrics { open_metrics: false };
        assert_eq!(asked(b"GET /metrics?x=y HTTP/1.1\nHost: x\r\n\r\n"), page(plain));
        let open =
            "GET /metrics HTTP/1.1\r\naCCept: application/openmetrics-text;version=1.0.0,*/*;q=0.5\r\n\r\n";
        assert_eq!(asked(open.as_bytes()), page(Page::Metrics { open_metrics: true }));
        let head = Request { page: plain, head: true, persists: true };
        assert_eq!(asked(b"HEAD /metrics HTTP/1.1\r\n\r\n"), Some(Ok(head)));
    }

    #[test]
    fn connections_persist_unless_the_client_says_otherwise_or_sends_a_body() {
        for (head, persists) in [
            ("GET / HTTP/1.1\r\nHost: x", true),
            ("GET / HTTP/1.1\r\nConnection: Keep-Alive", true),
            ("GET / HTTP/1.1\r\nconnection: close", false),
            ("GET / HTTP/1.1\r\nConnection: close, x", false),
            ("GET / HTTP/1.1\r\nContent-Length: 3", false),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked", false),
            ("GET / HTTP/1.0", false),
        ] {
            let found = asked(format!("{head}\r\n\r\n").as_bytes());
            assert_eq!(found, Some(Ok(Request { page: Page::Index, head: false, persists })), "{head}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_reason() {
        for (bytes, status) in [
            (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], METHOD_NOT_ALLOWED),
            (b"GET /metrics/ HTTP/1.1\r\n\r\n", NOT_FOUND),
            (b"GET http://x/metrics HTTP/1.1\r\n\r\n", NOT_FOUND),
            (b"GET /metrics HTTP/2.0\r\n\r\n", BAD_REQUEST),
            (b"\r\n\r\n", BAD_REQUEST),
            (b"\x16\x03\x01\x00\n\n", BAD_REQUEST),
        ] {
            assert_eq!(asked(bytes), Some(Err(status)), "{}", String::from_utf8_lossy(bytes));
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(asked(many.as_bytes()), Some(Err(TOO_LARGE)));
        assert_eq!(asked(&[b'x'; REQUEST_BYTES_MAX]), Some(Err(TOO_LARGE)));
        assert_eq!(asked(&[b'x'; REQUEST_BYTES_MAX - 1]), None);
    }

    #[test]
    fn a_head_is_a_response_that_a_parser_takes() {
        let text = head(METHOD_NOT_ALLOWED, "text/plain", 7, false);
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut response = httparse::Response::new(&mut headers);
        assert_eq!(response.parse(text.as_bytes()), Ok(httparse::Status::Complete(text.len())));
        assert_eq!((response.code, response.reason), (Some(405), Some("Method Not Allowed")));
        let value = |name| response.headers.iter().find(|header| header.name == name).map(|h| h.value);
        assert_eq!(value("Content-Length"), Some(&b"7"[..]));
        assert_eq!(value("Allow"), Some(&b"GET, HEAD"[..]));
        assert_eq!(value("Connection"), Some(&b"close"[..]));
        assert!(!head((200, "OK"), "text/plain", 7, true).contains("Connection"));
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_divided_makes_no_difference(
            words in prop::collection::vec(
                prop::sample::select(vec!["GET ", "/metrics", " HTTP/1.1", "\r", "\n", "\r\n", "Accept: ", "x"]),
                0..40,
            ),
            pieces in prop::collection::vec(1..9_usize, 1..8),
        ) {
            let bytes = words.concat().into_bytes();
            let all = |lengths: &[usize]| {
                let (mut incoming, mut rest, mut found) = (Incoming::default(), &bytes[..], Vec::new());
                for length in lengths.iter().cycle() {
                    let (piece, after) = rest.split_at((*length).min(rest.len()));
                    rest = after;
                    found.extend(incoming.take(piece));
                    found.extend(std::iter::from_fn(|| incoming.again()));
                    if rest.is_empty() {
                        break;
                    }
                }
                (found, incoming.bytes)
            };
            prop_assert_eq!(all(&pieces), all(&[usize::MAX]));
        }
    }
}
