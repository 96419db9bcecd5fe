//! What a client asks, and the head of an answer.

use crate::metrics::Format;

/// Longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Headers of a request, at most.
const HEADERS_MAX: usize = 64;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub page: Page,
    /// The head alone.
    pub head: bool,
}

/// The pages that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/metrics`.
    Metrics(Format),
    /// `/-/healthy`: whether the loop turns.
    Health,
    /// `/`: what else there is.
    Index,
}

/// Why there is no answer: a status and its reason.
pub type Refusal = (u16, &'static str);

/// Whether all of a request's head is there: what follows is not read.
pub fn is_whole(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|four| four == b"\r\n\r\n") || bytes.windows(2).any(|two| two == b"\n\n")
}

/// The request that `bytes` hold.
///
/// # Errors
/// They hold none, or one that is not served.
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

/// The head of an answer with `length` bytes.
pub fn head((status, reason): Refusal, content_type: &str, length: usize) -> String {
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {allow}Connection: close\r\n\r\n"
    )
}
