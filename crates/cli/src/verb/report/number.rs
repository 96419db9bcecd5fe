//! Numbers, times and sizes for people.

/// A number with its thousands apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of two or three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        below if below < 1e-9 => "0".to_owned(),
        below if below < 0.01 => format!("{value:.1e}"),
        below if below < 0.1 => format!("{value:.3}"),
        below if below < 10.0 => format!("{value:.2}"),
        below if below < 100.0 => format!("{value:.1}"),
        below if below < 1e15 => {
            let whole = count(value.abs().round() as u64);
            if value < 0.0 { format!("-{whole}") } else { whole }
        }
        _ => format!("{value:.1e}"),
    }
}

/// A span of time, of seconds.
pub fn span(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min {:.0} s", (s / 60.0).floor(), s % 60.0),
        s if s < 172_800.0 => format!("{:.0} h {:.0} min", (s / 3600.0).floor(), s % 3600.0 / 60.0),
        s => format!("{:.0} d {:.0} h", (s / 86_400.0).floor(), s % 86_400.0 / 3600.0),
    }
}

/// The unit in which amounts up to `most` bytes are shown, and its bytes.
pub fn memory_unit(most: f64) -> (&'static str, f64) {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let found = units.into_iter().map(|(name, shift)| (name, (1u64 << shift) as f64));
    found.into_iter().find(|(_, bytes)| most >= *bytes).unwrap_or(("KiB", 1024.0))
}

/// The unit in which times up to `most` seconds are shown, and its seconds.
pub fn time_unit(most: f64) -> (&'static str, f64) {
    match most {
        most if most <= 0.5 => ("ms", 1e-3),
        most if most <= 300.0 => ("s", 1.0),
        most if most <= 10_800.0 => ("min", 60.0),
        most if most <= 259_200.0 => ("h", 3600.0),
        _ => ("days", 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 0.004, 0.05, 1.234, 12.34, -1234.4].map(short),
            ["0", "4.0e-3", "0.050", "1.23", "12.3", "-1,234"]
        );
        assert_eq!(
            [5e-5, 0.25, 12.34, 125.0, 7260.0, 180_000.0].map(span),
            ["50 us", "250 ms", "12.3 s", "2 min 5 s", "2 h 1 min", "2 d 2 h"]
        );
        assert_eq!((memory_unit(3e9).0, memory_unit(0.0).0, time_unit(0.2).0), ("GiB", "KiB", "ms"));
    }
}
