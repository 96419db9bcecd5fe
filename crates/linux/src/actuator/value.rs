//! Whether two texts of a kernel file mean the same value.

/// The kernel echoes a value in its own form: a switch written as `1` reads back as `Y`, `true` or
/// `enabled`, a choice among several as `always [madvise] never`. Texts that mean the same are
/// equal here.
pub fn same_value(a: &str, b: &str) -> bool {
    let (a, b) = (chosen(a), chosen(b));
    if a == b {
        return true;
    }
    if let (Ok(a), Ok(b)) = (a.parse::<u64>(), b.parse::<u64>()) {
        return a == b;
    }
    match (switch(a), switch(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// The text in brackets if the kernel lists all choices and marks the current one, else the whole
/// text.
pub fn chosen(text: &str) -> &str {
    let text = text.trim();
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((choice, _)) => choice,
        None => text,
    }
}

/// The words that the kernel takes or prints for a switch (Linux lib/kstrtox.c, kstrtobool).
fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "t" | "true" | "on" | "enabled" => Some(true),
        "0" | "n" | "no" | "f" | "false" | "off" | "disabled" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_compared_by_meaning() {
        for (a, b) in [
            ("2\n", "2"),
            ("Y\n", "1"),
            ("true", "1\n"),
            ("N", "false"),
            ("always [madvise] never\n", "madvise"),
            ("007", "7"),
        ] {
            assert!(same_value(a, b) && same_value(b, a), "{a:?} and {b:?}");
        }
        for (a, b) in [("2", "1"), ("Y", "2"), ("true", "false"), ("", "0"), ("on", "always"), ("10", "1")] {
            assert!(!same_value(a, b) && !same_value(b, a), "{a:?} and {b:?}");
        }
    }

    proptest! {
        #[test]
        fn every_text_means_the_same_as_itself(text in ".{0,30}") {
            prop_assert!(same_value(&text, &text));
        }
    }
}
