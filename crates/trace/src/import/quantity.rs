//! Numbers as perf and damo write them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use thermocline_core::units::Nanos;

/// Seconds with a fraction, as in `82877.315633`.
pub fn seconds(text: &str) -> Option<Nanos> {
    let (whole, fraction) = text.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    let whole: u64 = whole.parse().ok()?;
    let ns = whole.checked_mul(1_000_000_000)?;
    ns.checked_add(fraction.parse::<u64>().ok()? * scale).map(Nanos)
}

/// Time with units, as in `100 ms` or `1 m 3 s`, or a number of `unit` ns.
pub fn time(text: &str, unit: u64) -> Option<Nanos> {
    if let Some(number) = number(text) {
        return number.checked_mul(unit).map(Nanos);
    }
    let mut sum = 0u64;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (amount, more) = rest.split_at(end);
        let end = more.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(more.len());
        let (name, more) = more.split_at(end);
        let ns: u64 = match name {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return None,
        };
        let amount: f64 = amount.trim().replace(',', "").parse().ok()?;
        let part = amount * ns as f64;
        if !(0.0..9e18).contains(&part) {
            return None;
        }
        sum = sum.checked_add(part.round() as u64)?;
        rest = more.trim_start();
    }
    (!text.trim().is_empty()).then_some(Nanos(sum))
}

/// A number whose thousands may be separated by commas.
pub fn number(text: &str) -> Option<u64> {
    let digits: String = text.trim().chars().filter(|c| *c != ',').collect();
    let decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| decimal)
}

/// A number that JSON has as a number or as a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// A number that is not negative.
    Number(u64),
    /// A negative number.
    Negative,
    /// A text.
    Text(String),
}

impl Quantity {
    /// As a plain number.
    pub fn number(&self) -> Option<u64> {
        match self {
            Quantity::Number(number) => Some(*number),
            Quantity::Negative => None,
            Quantity::Text(text) => number(text),
        }
    }

    /// As a time, of which a plain number counts units of `unit` ns.
    pub fn time(&self, unit: u64) -> Option<Nanos> {
        match self {
            Quantity::Number(number) => number.checked_mul(unit).map(Nanos),
            Quantity::Negative => None,
            Quantity::Text(text) => time(text, unit),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Quantity, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a text with one")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity::Number(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(u64::try_from(number).map_or(Quantity::Negative, Quantity::Number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
                match number {
                    0.0..9e18 => Ok(Quantity::Number(number as u64)),
                    ..0.0 => Ok(Quantity::Negative),
                    _ => Err(E::custom("a number is too large")),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity::Text(text.to_owned()))
            }
        }
        from.deserialize_any(Visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds("324.919384"), Some(Nanos(324_919_384_000)));
        assert_eq!(seconds("0.000000001"), Some(Nanos(1)));
        assert_eq!(seconds("18446744073.709551615"), Some(Nanos(u64::MAX)));
        for text in ["324", ".5", "5.", "-1.5", "1.5e3", "18446744073.709551616", "1.0000000001", "a.b"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, unit, ns) in [
            ("5000", 1_000, 5_000_000),
            ("5 ms", 1, 5_000_000),
            ("100ms", 1, 100_000_000),
            ("1 m 3 s", 1, 63_000_000_000),
            ("1.500 ms", 1, 1_500_000),
            ("0 ns", 1, 0),
            ("140,726,231,040", 1, 140_726_231_040),
        ] {
            assert_eq!(time(text, unit), Some(Nanos(ns)), "{text}");
        }
        for text in ["", "ms", "5 fortnights", "-5 ms", "1e30 s", "max"] {
            assert_eq!(time(text, 1), None, "{text}");
        }
    }
}
