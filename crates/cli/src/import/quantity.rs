//! Quantities in other programs' notation: `100 ms`, `2 s`, `5 %`, `50 GiB`, `max`, or a bare
//! number whose unit follows from its key.

/// Splits a text into number and unit.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(text.len());
    let number: f64 = text[..end].replace(',', "").parse().ok()?;
    Some((number, text[end..].trim().to_owned())).filter(|(number, _)| number.is_finite())
}

fn whole(number: f64, text: &str, unit: &str) -> Result<u64, String> {
    if !(0.0..9e15).contains(&number) || (number - number.round()).abs() > 1e-9 {
        return Err(format!("{text} is no whole number of {unit}"));
    }
    Ok(number.round() as u64)
}

/// A time in ms. The unit of a bare number is `bare_us` microseconds.
pub(super) fn ms(text: &str, bare_us: f64) -> Result<u64, String> {
    let (number, unit) = split(text).ok_or_else(|| format!("{text} is no time"))?;
    let us = match unit.as_str() {
        "" => bare_us,
        "ns" | "nsec" => 1e-3,
        "us" | "usec" => 1.0,
        "ms" | "msec" => 1e3,
        "s" | "sec" => 1e6,
        "m" | "min" => 60e6,
        "h" | "hour" => 3600e6,
        _ => return Err(format!("{text} is no time")),
    };
    whole(number * us / 1e3, text, "ms")
}

/// Memory in MiB. A bare number is in bytes.
pub(super) fn mib(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text).ok_or_else(|| format!("{text} is no size"))?;
    let bytes = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 1.0,
        "K" | "k" => 1024.0,
        "M" => 1048576.0,
        "G" => 1073741824.0,
        "T" => 1099511627776.0,
        _ => return Err(format!("{text} is no size")),
    };
    whole(number * bytes / 1048576.0, text, "MiB")
}

/// A share of a whole, in units of 1/`parts`. A bare number is in that unit already.
pub(super) fn share(text: &str, parts: f64) -> Result<u64, String> {
    let (number, unit) = split(text).ok_or_else(|| format!("{text} is no share"))?;
    match unit.as_str() {
        "" | "bp" => whole(number, text, "parts"),
        "%" => whole(number * parts / 100.0, text, "parts"),
        _ => Err(format!("{text} is no share")),
    }
}

/// A number without a unit.
pub(super) fn number(text: &str) -> Result<u64, String> {
    text.trim().replace(',', "").parse().map_err(|_| format!("{text} is no whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_taken_as_they_are_written() {
        assert_eq!(ms("100 ms", 1.0), Ok(100));
        assert_eq!(ms("5000", 1.0), Ok(5));
        assert_eq!(ms("2 s", 1.0), Ok(2000));
        assert_eq!(ms("20000", 1000.0), Ok(20_000));
        assert!(ms("500 us", 1.0).is_err() && ms("soon", 1.0).is_err());
        assert_eq!(mib("50 GiB"), Ok(51_200));
        assert_eq!(mib("53687091200"), Ok(51_200));
        assert_eq!(mib("50.000 GiB"), Ok(51_200));
        assert_eq!(share("5 %", 100.0), Ok(5));
        assert_eq!(share("0.5 %", 10_000.0), Ok(50));
        assert_eq!(number("10,000"), Ok(10_000));
        assert!(number("-1").is_err());
    }
}
