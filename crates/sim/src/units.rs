//! Sizes and spans of time as written in TOML: `"192GiB"`, `"100us"`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thermocline_core::units::{Nanos, PAGE_SHIFT};

/// A number of bytes; written with B, KiB, MiB, GiB or TiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A span of time; written with ns, us, ms, s, min or h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Nanos);

impl Bytes {
    /// `n` GiB.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// Whole base pages, rounded down.
    pub const fn pages(self) -> u64 {
        self.0 >> PAGE_SHIFT
    }
}

const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const SPANS: [(&str, u64); 6] = [
    ("min", 60_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("s", 1_000_000_000),
    ("h", 3_600_000_000_000),
];

/// `text` as a number with one of the units, in the smallest unit.
fn parse(text: &str, units: &[(&str, u64)], example: &str) -> Result<u64, String> {
    let text = text.trim();
    let (unit, factor) = units
        .iter()
        .find(|(unit, _)| text.ends_with(unit))
        .ok_or_else(|| format!("\"{text}\" has no unit; write it as in \"{example}\""))?;
    let number = text[..text.len() - unit.len()].trim();
    if number.starts_with('-') {
        return Err(format!("\"{text}\" is negative; sizes and spans are not"));
    }
    let value: f64 =
        number.parse().map_err(|_| format!("\"{text}\" is not a number and a unit, as in \"{example}\""))?;
    let value = value * *factor as f64;
    // Beyond 2^53 a float cannot represent every integer, and nothing simulated is that large.
    if value.is_finite() && value <= (1u64 << 53) as f64 {
        Ok(value.round() as u64)
    } else {
        Err(format!("\"{text}\" is too large to be simulated"))
    }
}

fn show(value: u64, units: &[(&str, u64)]) -> String {
    let mut units: Vec<_> = units.to_vec();
    units.sort_by_key(|(_, factor)| std::cmp::Reverse(*factor));
    let found = units.iter().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    let (unit, factor) = found.or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{unit}", value / factor)
}

macro_rules! text_with_unit {
    ($type:ident, $units:expr, $example:literal, $get:expr, $make:expr) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&show($get(self), &$units))
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                parse(text, &$units, $example).map($make)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, concat!("text with a unit, as in \"", $example, "\""))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}
text_with_unit!(Bytes, SIZES, "192GiB", |b: &Bytes| b.0, Bytes);
text_with_unit!(Span, SPANS, "100us", |s: &Span| s.0.0, |ns| Span(Nanos(ns)));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for (text, bytes) in [("192GiB", 192 << 30), ("4KiB", 4096), ("1.5 MiB", 3 << 19), ("7B", 7)] {
            let parsed: Bytes = text.parse().unwrap();
            assert_eq!(parsed, Bytes(bytes));
            assert_eq!(parsed.to_string().parse::<Bytes>().unwrap(), parsed);
        }
        for (text, ns) in [("100us", 100_000), ("2min", 120_000_000_000), ("0.5s", 500_000_000), ("3ns", 3)] {
            assert_eq!(text.parse::<Span>().unwrap(), Span(Nanos(ns)));
        }
        assert_eq!(Span(Nanos(1_500_000)).to_string(), "1500us");
        assert_eq!(Bytes(0).to_string(), "0B");
    }

    #[test]
    fn nonsense_is_named_with_an_example() {
        for (text, said) in [
            ("192", "has no unit"),
            ("-1GiB", "is negative"),
            ("manyGiB", "is not a number"),
            ("1e300TiB", "too large"),
            ("nanGiB", "too large"),
        ] {
            let error = text.parse::<Bytes>().unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
