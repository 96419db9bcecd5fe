//! Escapes text from outside for a terminal: the name of a process or a file must not control the
//! terminal on which it is shown.

use std::borrow::Cow;

/// Whether a character controls a terminal, or changes the order in which the text around it is
/// shown.
fn commands_terminals(c: char) -> bool {
    // Directional marks, embeddings, overrides and isolates, and the line and paragraph separators.
    let reorders =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders
}

fn escaped(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let acts = |c: char| commands_terminals(c) && !kept(c);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            // The same escapes as in JSON, so that JSON stays unchanged. All of these have four
            // digits.
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Text of several lines, without characters that control the terminal.
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || c == '\t')
}

/// A name, such as a process's, additionally without line breaks.
pub fn name(name: &str) -> Cow<'_, str> {
    escaped(name, |_| false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_commands_a_terminal(given in any::<String>()) {
            prop_assert!(!name(&given).contains(commands_terminals));
            let several = text(&given);
            prop_assert!(!several.contains(|c| commands_terminals(c) && c != '\n' && c != '\t'));
            prop_assert_eq!(several.matches('\n').count(), given.matches('\n').count());
        }

        #[test]
        fn json_stays_what_it_is(given in any::<String>()) {
            let json = serde_json::to_string(&given).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&text(&json)).unwrap(), given);
        }
    }

    #[test]
    fn an_escape_sequence_is_shown_and_not_obeyed() {
        assert_eq!(name("\x1b[2Jx\ny\u{9b}1m\u{202e}"), "\\u001b[2Jx\\u000ay\\u009b1m\\u202e");
        assert_eq!(text("redis-server é\n"), "redis-server é\n");
    }
}
