//! A client's request, and the head of the response.

use crate::metrics::Format;

/// Longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
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
    Metrics(Format),
    /// `/-/healthy`: whether the loop runs.
    Health,
    /// `/`: a list of the other pages.
    Index,
}

/// Why a request is refused: a status and its reason.
pub type Refusal = (u16, &'static str);

/// Whether the head of the request is complete. What follows it is not read.
pub fn is_whole(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|four| four == b"\r\n\r\n") || bytes.windows(2).any(|two| two == b"\n\n")
}

/// Parses a request.
///
/// # Errors
/// `bytes` are not a request, or not one that is served.
pub fn parse(bytes: &[u8]) -> Result<Request, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err((408, "Request Timeout")),
        Err(httparse::Error::TooManyHeaders) => return Err((431, "Request Header Fields Too Large")),
        Err(_) => return Err((400, "Bad Request")),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err((405, "Method Not Allowed")),
    };
    let path = request.path.unwrap_or_default();
    let page = match path.split('?').next().unwrap_or_default() {
        "/metrics" => {
            let accept = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("accept"));
            let accept = accept.and_then(|header| std::str::from_utf8(header.value).ok());
            Page::Metrics(Format::accepted(accept.unwrap_or_default()))
        }
        "/-/healthy" => Page::Health,
        "/" => Page::Index,
        _ => return Err((404, "Not Found")),
    };
    Ok(Request { page, head })
}

/// The head of a response with a body of `length` bytes.
pub fn head((status, reason): Refusal, content_type: &str, length: usize) -> String {
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {allow}Connection: close\r\n\r\n"
    )
}
