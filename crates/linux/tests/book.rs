//! The book's tables of the live machine's statistics are those of the code.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use thermocline_linux::statistics::all;

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/statistics.md");
const BLESS: &str = "BLESS=1 cargo test --release -p thermocline-linux --test book";
/// Where the generated part begins.
const START: &str = "<!-- statistics -->\n";

fn tables() -> String {
    let mut out = String::new();
    for (place, list) in all() {
        let _ = write!(out, "\n## `{place}`\n\n| name | unit | kind | meaning |\n|---|---|---|---|\n");
        for s in list {
            let kind =
                if s.trouble { format!("{}, trouble", s.kind.word()) } else { s.kind.word().to_owned() };
            let _ = writeln!(out, "| `{}` | {} | {kind} | {} |", s.name, s.unit, s.description);
        }
    }
    out
}

#[test]
fn the_book_shows_what_the_code_declares() {
    let chapter = std::fs::read_to_string(CHAPTER).unwrap();
    let (before, _) = chapter.split_once(START).expect("the chapter has the marker");
    let fresh = format!("{before}{START}{}", tables());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(CHAPTER, &fresh).unwrap();
    }
    let stale = fresh.lines().zip(chapter.lines()).find(|(a, b)| a != b);
    assert!(fresh == chapter, "docs/src/statistics.md is stale at {stale:?}; refresh it with: {BLESS}");
}
