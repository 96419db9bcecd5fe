//! The book's tables of a recording's tables and figures are those of the code.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use thermocline_core::statistics::Declared;
use thermocline_trace::schema::{Kind, TABLES, VERSION};
use thermocline_trace::stats::RecordingStats;

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/recordings.md");
const BLESS: &str = "BLESS=1 cargo test --release -p thermocline-trace --test book";

/// A column's type, as DuckDB and others show it.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Near | Kind::Wide => "uint64",
        Kind::NearSigned | Kind::WideSigned => "int64",
        Kind::Number => "uint32",
        Kind::Flag => "bool",
        Kind::Text => "text",
    }
}

/// Prose in lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 100 => {
                *line += &format!(" {word}");
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

fn tables() -> String {
    let mut out = format!("\nThis is version {VERSION} of the schema.\n");
    for table in TABLES {
        let _ = write!(out, "\n### `{}`\n\n{}\n\n", table.name, wrapped(table.meaning));
        out += "| column | type | unit | meaning |\n|---|---|---|---|\n";
        for column in table.columns {
            let null = if column.nullable { ", or null" } else { "" };
            let (name, unit, meaning) = (column.name, column.unit, column.meaning);
            let _ = writeln!(out, "| `{name}` | {}{null} | {unit} | {meaning} |", kind(column.kind));
        }
    }
    out + "\n"
}

fn statistics() -> String {
    let mut out = "| name | unit | kind | meaning |\n|---|---|---|---|\n".to_owned();
    for s in RecordingStats::statistics() {
        let trouble = if s.trouble { ", trouble" } else { "" };
        let _ =
            writeln!(out, "| `{}` | {} | {}{trouble} | {} |", s.name, s.unit, s.kind.word(), s.description);
    }
    out
}

/// The chapter with this text between the markers of a name.
fn with(chapter: &str, name: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = chapter.split_once(&start).expect("the chapter has the marker");
    let (_, after) = rest.split_once(&end).expect("the marker has an end");
    format!("{before}{start}{text}{end}{after}")
}

#[test]
fn the_book_shows_what_a_recording_holds() {
    let chapter = std::fs::read_to_string(CHAPTER).unwrap();
    let fresh = with(&chapter, "tables", &tables());
    let fresh = with(&fresh, "statistics", &statistics());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(CHAPTER, &fresh).unwrap();
    }
    let stale = fresh.lines().zip(chapter.lines()).find(|(a, b)| a != b);
    assert!(fresh == chapter, "docs/src/recordings.md is stale at {stale:?}; refresh it with: {BLESS}");
}
