//! What a file is held to, each rule a function of its path and text that returns its complaints.

/// Columns of a line of comment or prose.
const COLUMNS: usize = 100;
/// Lines of a file that needs no entry in [`LONG`].
const LINES: usize = 500;
/// Longer files, with the lines that each may have. Numbers only ever become smaller.
const LONG: &[(&str, usize)] = &[
    ("crates/core/src/rule/adaptive/simulation.rs", 581),
    ("crates/linux/src/actuator/tests.rs", 606),
    ("crates/linux/src/scope/members.rs", 694),
    ("crates/linux/tests/doctor.rs", 853),
];
/// Words that a reader has to stop at, and what to write in their place.
const WORDS: &[(&str, &str)] = &[
    ("whosesoever", "any"),
    ("so manyth", "Nth"),
    ("reckon", "compute"),
    ("feeler", "reader"),
    ("befall", "happen to"),
    ("todo!", "the code"),
    ("unimplemented!", "the code"),
    ("dbg!", "nothing"),
];

/// The comment or prose that a line of a file is; nothing of code.
fn prose<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    let text = line.trim_start();
    let starts = |marks: &[&str]| marks.iter().any(|mark| text.starts_with(mark));
    let is_prose = match path.rsplit('.').next() {
        Some("rs") => starts(&["//"]),
        Some("c" | "h") => starts(&["//", "/*", "* "]),
        Some("sh" | "toml") => starts(&["#"]),
        // What is indented by four is code.
        Some("md") => !starts(&["|", "<", "!["]) && !line.starts_with("    "),
        _ => false,
    };
    is_prose.then_some(text)
}

/// Lines of a file that are prose, with their numbers. Blocks of code in Markdown are left out.
fn lines<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let content = line.trim_start().trim_start_matches(['/', '!', ' ']);
        if content.starts_with("```") {
            in_code = !in_code;
            return None;
        }
        let table = content.starts_with('|');
        (!in_code && !table && prose(path, line).is_some()).then_some((index + 1, line))
    })
}

/// Comments and prose beyond [`COLUMNS`]. A line that is one long word, such as a link, cannot be
/// broken.
pub fn width(path: &str, text: &str) -> Vec<String> {
    let wide = |line: &str| {
        line.chars().count() > COLUMNS && line.split_whitespace().filter(|w| w.len() > 3).count() > 1
    };
    lines(path, text)
        .filter(|(_, line)| wide(line))
        .map(|(number, line)| format!("{path}:{number}: {} columns", line.chars().count()))
        .collect()
}

/// Source files beyond [`LINES`], unless [`LONG`] allows it.
pub fn length(path: &str, text: &str) -> Vec<String> {
    length_among(LONG, path, text)
}

/// The same with a list of one's own.
pub fn length_among(long: &[(&str, usize)], path: &str, text: &str) -> Vec<String> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let count = text.lines().count();
    match long.iter().find(|(name, _)| *name == path) {
        Some((_, most)) if count > *most => vec![format!("{path}: {count} lines, it had {most}")],
        Some(_) if count <= LINES => vec![format!("{path}: {count} lines, take it off the list")],
        None if count > LINES => vec![format!("{path}: {count} lines, split it")],
        _ => Vec::new(),
    }
}

/// Entries of [`LONG`] without a file.
pub fn gone(exists: impl Fn(&str) -> bool) -> Vec<String> {
    let gone = LONG.iter().filter(|(path, _)| !exists(path));
    gone.map(|(path, _)| format!("{path} is on the list of long files and does not exist")).collect()
}

/// Words of [`WORDS`].
pub fn words(path: &str, text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for (word, better) in WORDS.iter().filter(|(word, _)| lower.contains(word)) {
            out.push(format!("{path}:{}: `{word}`: write {better}", index + 1));
        }
    }
    out
}

/// A Rust file begins with what it is: a first paragraph that is a sentence.
pub fn head(path: &str, text: &str) -> Vec<String> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let paragraph: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//! ")).collect();
    match paragraph.last() {
        None => vec![format!("{path}: no head: begin with `//! What it is.`")],
        Some(last) if last.ends_with(['.', ':', '?', ')']) => Vec::new(),
        Some(_) => vec![format!("{path}: its head's first paragraph is not a sentence")],
    }
}
