//! Amounts of memory as Kubernetes writes them.

/// Bytes in a MiB.
const MIB: u128 = 1 << 20;
/// Suffixes and what they multiply by. Those of fractions (n, u, m) mean nothing of bytes.
const SUFFIXES: [(&str, u128); 13] = [
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
];
/// Longest text that is looked at, in bytes.
const LENGTH_MAX: usize = 32;
/// Digits after the point that are looked at.
const FRACTION_MAX: usize = 9;

/// The bytes of a quantity such as `2Gi`, `1500M`, `1.5Gi`, `2e9` or `1048576`, rounded up; `None`
/// if it is none, negative, or more than fits.
pub(super) fn bytes(text: &str) -> Option<u128> {
    if text.len() > LENGTH_MAX || !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > FRACTION_MAX || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let bytes = digits.checked_mul(factor(suffix)?)?.div_ceil(10u128.pow(fraction.len() as u32));
    Some(bytes)
}

fn factor(suffix: &str) -> Option<u128> {
    if let Some(exponent) =
        suffix.strip_prefix(['e', 'E']).filter(|digits| !digits.is_empty() && *digits != "i")
    {
        let exponent: u32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
        return 10u128.checked_pow(exponent).filter(|_| exponent <= 18);
    }
    SUFFIXES.iter().find(|(name, _)| *name == suffix).map(|(_, factor)| *factor)
}

/// Whole MiB that hold a quantity.
pub(super) fn mib_up(text: &str) -> Option<u64> {
    u64::try_from(bytes(text)?.div_ceil(MIB)).ok()
}

/// Whole MiB within a quantity.
pub(super) fn mib_down(text: &str) -> Option<u64> {
    u64::try_from(bytes(text)? / MIB).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, expected) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("2Gi", 2 << 30),
            ("1500M", 1_500_000_000),
            ("1.5Gi", 3 << 29),
            ("128974848.0", 128_974_848),
            ("129e6", 129_000_000),
            ("1E3", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("1Ei", 1 << 60),
            ("123k", 123_000),
            ("0.1Ki", 103),
            ("3.", 3),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for text in [
            "", "Gi", "-1", "+1", ".5Gi", "1 Gi", "1gi", "1GiB", "1.2.3", "100m", "1u", "1e", "1e99", "0x10",
            "1e-3",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(bytes(&"9".repeat(33)), None);
    }

    #[test]
    fn a_floor_is_rounded_up_and_a_cap_down() {
        assert_eq!((mib_up("1G"), mib_down("1G")), (Some(954), Some(953)));
        assert_eq!((mib_up("1Gi"), mib_down("1Gi")), (Some(1024), Some(1024)));
        assert_eq!((mib_up("1"), mib_down("1")), (Some(1), Some(0)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = bytes(&text);
        }

        #[test]
        fn what_looks_like_a_quantity_does_not_panic(text in "[0-9.]{0,20}[kKMGTPEie+0-9]{0,6}") {
            let _ = bytes(&text);
        }

        #[test]
        fn whole_numbers_are_themselves(number: u64, suffix in 0..SUFFIXES.len()) {
            let (name, factor) = SUFFIXES[suffix];
            prop_assert_eq!(bytes(&format!("{number}{name}")), Some(u128::from(number) * factor));
        }
    }
}
