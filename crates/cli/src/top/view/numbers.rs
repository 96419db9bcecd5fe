//! Numbers as text.

use crate::text::mib;

/// An amount of memory, of base pages.
pub fn size(pages: u64) -> String {
    memory(mib(pages))
}

/// Base pages a second; `-` if not known.
pub fn flow(pages: Option<f64>) -> String {
    pages.map_or("-".to_owned(), |pages| memory(pages / 256.0) + "/s")
}

fn memory(mib: f64) -> String {
    match mib.abs() {
        below if below < 1000.0 => format!("{mib:.1} MiB"),
        below if below < 1000.0 * 1024.0 => format!("{:.1} GiB", mib / 1024.0),
        _ => format!("{:.1} TiB", mib / 1024.0 / 1024.0),
    }
}

/// A rate; `-` if not known.
pub fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

/// A span of time, of seconds.
pub fn span(s: u64) -> String {
    match (s / 86_400, s / 3600 % 24, s / 60 % 60) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, m) => format!("{m}m{:02}s", s % 60),
        (0, h, m) => format!("{h}h{m:02}m"),
        (d, h, _) => format!("{d}d{h:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_unit_and_what_is_unknown_is_no_zero() {
        assert_eq!(size(256 * 3 / 2), "1.5 MiB");
        assert_eq!(size(256 * 1024 * 64), "64.0 GiB");
        assert_eq!(flow(Some(-512.0)), "-2.0 MiB/s");
        assert_eq!((flow(None), rate(None), rate(Some(0.0))), ("-".into(), "-".into(), "0".into()));
        assert_eq!((rate(Some(0.26)), rate(Some(1234.4))), ("0.3".into(), "1234".into()));
        assert_eq!([59, 61, 3700, 90_000].map(span), ["59s", "1m01s", "1h01m", "1d01h"]);
    }
}
