//! Rust's tokens as far as imports need them: words and signs, without comments, texts and code for
//! tests.

/// Words, `::` and single signs.
pub fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        at += match rest {
            ['/', '/', ..] => rest.iter().take_while(|c| **c != '\n').count(),
            ['/', '*', ..] => block_comment(rest),
            ['"', ..] => quoted(rest),
            ['\'', ..] => char_or_lifetime(rest),
            [c, ..] if c.is_alphanumeric() || *c == '_' => {
                let word: String = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
                let len = word.chars().count();
                match raw_text(&word, &rest[len..]) {
                    Some(raw) => len + raw,
                    None => {
                        out.push(word);
                        len
                    }
                }
            }
            [':', ':', ..] => {
                out.push("::".to_owned());
                2
            }
            [c, ..] => {
                if !c.is_whitespace() {
                    out.push(c.to_string());
                }
                1
            }
            [] => 0,
        };
    }
    without_tests(&out)
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn char_or_lifetime(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', ..] => 3 + rest.iter().skip(3).take_while(|c| **c != '\'').count() + 1,
        ['\'', _, '\'', ..] => 3,
        _ => 1,
    }
}

/// The length of a raw text's quotes and content after `r` or `br`; none where these are a word.
fn raw_text(word: &str, rest: &[char]) -> Option<usize> {
    if !matches!(word, "r" | "br" | "cr") {
        return None;
    }
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    if rest.get(hashes) != Some(&'"') {
        return None;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let content = &rest[hashes + 1..];
    let len = content.windows(end.len()).position(|w| w == end).unwrap_or(content.len());
    Some(hashes + 1 + len + end.len())
}

/// What is compiled without `cfg(test)`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = attribute_len(&tokens[at..]);
        let of_tests = tokens[at..at + attribute].iter().any(|t| t == "cfg")
            && tokens[at..at + attribute].windows(3).any(|w| w[1] == "test" && w[0] != "not")
            && !tokens[at..at + attribute].iter().any(|t| t == "not" || t == "any");
        if attribute == 0 {
            out.push(tokens[at].clone());
            at += 1;
        } else if of_tests {
            at += attribute;
            at += item_len(&tokens[at..]);
        } else {
            out.extend_from_slice(&tokens[at..at + attribute]);
            at += attribute;
        }
    }
    out
}

/// Tokens of the attribute that begins here, if one does.
fn attribute_len(tokens: &[String]) -> usize {
    match tokens {
        [hash, open, ..] if hash == "#" && open == "[" => 1 + bracketed(&tokens[1..], "[", "]"),
        _ => 0,
    }
}

/// Tokens up to the bracket that closes the first one.
fn bracketed(tokens: &[String], open: &str, close: &str) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        depth += usize::from(token == open);
        depth = depth.saturating_sub(usize::from(token == close));
        if depth == 0 && token == close {
            return at + 1;
        }
    }
    tokens.len()
}

/// Tokens of the item that begins here: up to its semicolon, or its closing brace.
fn item_len(tokens: &[String]) -> usize {
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => return at + 1,
            "}" => return at,
            "(" => at += bracketed(&tokens[at..], "(", ")"),
            "[" => at += bracketed(&tokens[at..], "[", "]"),
            "{" => {
                let end = at + bracketed(&tokens[at..], "{", "}");
                // The braces of `use a::{b};` are followed by a semicolon.
                return end + usize::from(tokens.get(end).is_some_and(|t| t == ";"));
            }
            _ => at += 1,
        }
    }
    at
}
