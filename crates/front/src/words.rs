//! Words that are the same wherever they are said: sizes, errors, and what a recording says of the
//! program.

use thermocline_core::config::Config;

/// The version of the program that records.
pub const PROGRAM: &str = concat!("thermocline ", env!("CARGO_PKG_VERSION"));

/// Settings that every recording has.
///
/// # Errors
/// The configuration cannot be written down.
pub fn settings(config: &Config, verb: &str) -> anyhow::Result<Vec<(String, String)>> {
    Ok(vec![
        ("config".to_owned(), serde_json::to_string(config)?),
        ("program".to_owned(), PROGRAM.to_owned()),
        ("verb".to_owned(), verb.to_owned()),
    ])
}

/// A number of bytes for people.
pub fn bytes(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// The error and its causes, without causes whose text it already contains.
pub fn whole(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |told, cause| {
        let cause = cause.to_string();
        if told.contains(&cause) { told } else { format!("{told}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FileError;

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [0, 1023, 1024, 5 << 19, 3 << 30].map(bytes),
            ["0 bytes", "1023 bytes", "1.0 KiB", "2.5 MiB", "3.0 GiB"]
        );
    }

    #[test]
    fn no_cause_of_an_error_is_told_twice() {
        let cause = std::io::Error::other("it is a FIFO");
        let error = FileError::Read { path: "x".into(), source: cause };
        let told = whole(&anyhow::Error::from(error).context("no configuration"));
        assert_eq!(told.matches("it is a FIFO").count(), 1, "{told}");
        assert!(told.starts_with("no configuration: cannot read x: it is a FIFO"), "{told}");
    }
}
