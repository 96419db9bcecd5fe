//! The book's tables of the live machine's statistics and of findings are those of the code.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use thermocline_core::label::Label;
use thermocline_linux::finding::{Kind, SeenBy};
use thermocline_linux::statistics::all;

const DOCTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/doctor.md");
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

fn findings() -> String {
    let mut out = "| name | severity | found by | meaning |\n|---|---|---|---|\n".to_owned();
    for kind in Kind::ALL {
        let severities: Vec<&str> = kind.severities().iter().map(|severity| severity.name()).collect();
        let seen_by = match kind.seen_by() {
            SeenBy::Doctor => "doctor",
            SeenBy::Daemon => "daemon",
            SeenBy::Both => "both",
        };
        let (name, meaning) = (kind.name(), kind.meaning());
        let _ = writeln!(out, "| `{name}` | {} | {seen_by} | {meaning} |", severities.join(", "));
    }
    out
}

#[test]
fn the_book_shows_every_finding() {
    let chapter = std::fs::read_to_string(DOCTOR).unwrap();
    let (before, rest) = chapter.split_once("<!-- findings -->\n").expect("the chapter has the marker");
    let (_, after) = rest.split_once("<!-- end -->").expect("the marker has an end");
    let fresh = format!("{before}<!-- findings -->\n{}<!-- end -->{after}", findings());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(DOCTOR, &fresh).unwrap();
    }
    let stale = fresh.lines().zip(chapter.lines()).find(|(a, b)| a != b);
    assert!(fresh == chapter, "docs/src/doctor.md is stale at {stale:?}; refresh it with: {BLESS}");
}
