//! Requests for metrics from anywhere, in pieces of the lengths that the first bytes
//! give.
//!
//! Whatever arrives: no panic, no more bytes kept than are allowed, the same request or refusal
//! however it is divided, and a response that a parser takes.

use thermocline_wire::http::{
    Asked, BAD_REQUEST, Incoming, METHOD_NOT_ALLOWED, NOT_FOUND, Page, REQUEST_BYTES_MAX, TOO_LARGE, head,
};

/// Bytes that choose the pieces.
const LENGTHS: usize = 4;
const OPEN_METRICS: &[u8] = b"application/openmetrics-text";

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    let Some((lengths, bytes)) = bytes.split_first_chunk::<LENGTHS>() else { return };
    let (asked, taken) = in_pieces(bytes, lengths);
    assert!(taken <= bytes.len().min(REQUEST_BYTES_MAX + usize::from(u8::MAX)));
    assert_eq!(asked, in_pieces(bytes, &[0; LENGTHS]).0);
    assert_eq!(asked, Incoming::default().take(bytes));
    let Some(asked) = asked else {
        assert!(bytes.len() < REQUEST_BYTES_MAX && !bytes.windows(2).any(|two| two == b"\n\n"));
        return;
    };
    let status = match asked {
        Ok(request) => {
            assert!(bytes.windows(4).any(|four| matches!(four, b"GET " | b"HEAD")));
            if matches!(request.page, Page::Metrics { open_metrics: true }) {
                assert!(bytes.windows(OPEN_METRICS.len()).any(|some| some == OPEN_METRICS));
            }
            (200, "OK")
        }
        Err(status) => {
            assert!([BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED, TOO_LARGE].contains(&status));
            status
        }
    };
    let persists = asked.is_ok_and(|request| request.persists);
    let text = head(status, "text/plain", bytes.len(), persists);
    let mut headers = [httparse::EMPTY_HEADER; 8];
    let mut response = httparse::Response::new(&mut headers);
    assert_eq!(response.parse(text.as_bytes()), Ok(httparse::Status::Complete(text.len())));
    assert_eq!(response.code, Some(status.0));
}

/// What comes of the bytes, and how many of them it took. A length of 0 stands for one byte.
fn in_pieces(bytes: &[u8], lengths: &[u8; LENGTHS]) -> (Option<Asked>, usize) {
    let (mut incoming, mut taken) = (Incoming::default(), 0);
    for length in lengths.iter().cycle() {
        let piece = &bytes[taken..(taken + usize::from(*length).max(1)).min(bytes.len())];
        taken += piece.len();
        let asked = incoming.take(piece);
        if asked.is_some() || taken == bytes.len() {
            return (asked, taken);
        }
    }
    unreachable!("lengths come round and round")
}
