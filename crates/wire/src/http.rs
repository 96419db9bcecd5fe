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

/// A request whose bytes arrive in pieces. How they are divided makes no difference. What follows
/// the head is ignored.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    /// Takes the next piece; the request, once its head is complete.
    pub fn take(&mut self, piece: &[u8]) -> Option<Asked> {
        let room = REQUEST_BYTES_MAX - self.bytes.len();
        // The end may be divided between pieces. What was looked at before is not looked at again,
        // so that single bytes cost no more than a whole request.
        let from = self.bytes.len().saturating_sub(2);
        self.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        if let Some(length) = head_length(&self.bytes[from..]) {
            return Some(parse(&self.bytes[..from + length]));
        }
        (self.bytes.len() == REQUEST_BYTES_MAX).then_some(Err(TOO_LARGE))
    }

    /// Whether nothing has arrived.
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
    Ok(Request { page, head })
}

/// The head of a response with a body of `length` bytes, after which the connection is closed.
pub fn head(status: Status, content_type: &str, length: usize) -> String {
    let allow = if status == METHOD_NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
    let (status, reason) = status;
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {allow}Connection: close\r\n\r\n"
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
        Some(Ok(Request { page, head: false }))
    }

    #[test]
    fn pages_are_told_apart_by_path_and_format_by_accept() {
        assert_eq!(asked(b"GET / HTTP/1.0\n\n"), page(Page::Index));
        assert_eq!(asked(b"GET /-/healthy HTTP/1.1\r\n\n"), page(Page::Health));
        let plain = Page::Metrics { open_metrics: false };
        assert_eq!(asked(b"GET /metrics?x=y HTTP/1.1\nHost: x\r\n\r\n"), page(plain));
        let open =
            "GET /metrics HTTP/1.1\r\naCCept: application/openmetrics-text;version=1.0.0,*/*;q=0.5\r\n\r\n";
        assert_eq!(asked(open.as_bytes()), page(Page::Metrics { open_metrics: true }));
        let head = Request { page: plain, head: true };
        assert_eq!(asked(b"HEAD /metrics HTTP/1.1\r\n\r\n"), Some(Ok(head)));
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
        let text = head(METHOD_NOT_ALLOWED, "text/plain", 7);
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut response = httparse::Response::new(&mut headers);
        assert_eq!(response.parse(text.as_bytes()), Ok(httparse::Status::Complete(text.len())));
        assert_eq!((response.code, response.reason), (Some(405), Some("Method Not Allowed")));
        let value = |name| response.headers.iter().find(|header| header.name == name).map(|h| h.value);
        assert_eq!(value("Content-Length"), Some(&b"7"[..]));
        assert_eq!(value("Allow"), Some(&b"GET, HEAD"[..]));
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
            // Bytes after the head are ignored wherever they arrive.
            let whole = (0..=bytes.len()).find_map(|end| asked(&bytes[..end]));
            let (mut incoming, mut rest, mut found) = (Incoming::default(), &bytes[..], None);
            for length in pieces.iter().cycle() {
                let (piece, after) = rest.split_at((*length).min(rest.len()));
                rest = after;
                found = incoming.take(piece);
                if found.is_some() || rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, whole);
        }
    }
}
