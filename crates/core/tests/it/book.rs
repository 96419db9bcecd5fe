//! The book's tables of reasons, counters and gauges are those of the code.

use std::fmt::Write;

use thermocline_core::counters::{Counters, Statistic};
use thermocline_core::engine::Engine;
use thermocline_core::label::Label;
use thermocline_core::refusal::{Effect, RefusalReason};

const CHAPTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/engine.md");
const BLESS: &str = "BLESS=1 cargo test -p thermocline-core --test it book";

fn reasons() -> String {
    let mut out = "| reason | effect | meaning |\n|---|---|---|\n".to_owned();
    for reason in RefusalReason::ALL {
        let effect = match reason.effect() {
            Effect::Refused => "refused",
            Effect::Held => "held",
        };
        let _ = writeln!(out, "| `{}` | {effect} | {} |", reason.name(), reason.meaning());
    }
    out
}

fn table(statistics: &[Statistic]) -> String {
    let mut out = "| name | unit | meaning |\n|---|---|---|\n".to_owned();
    for s in statistics {
        let label = s.label.map_or(String::new(), |label| format!("{{{label}}}"));
        let _ = writeln!(out, "| `{}{label}` | {} | {} |", s.name, s.unit, s.description);
    }
    out
}

/// Puts `table` between the marker `name` and the next end marker.
fn put(chapter: &str, name: &str, table: &str) -> String {
    let start = format!("<!-- {name} -->\n");
    let (before, rest) = chapter.split_once(&start).expect("the chapter has the marker");
    let (_, after) = rest.split_once("<!-- end -->").expect("the marker has an end");
    format!("{before}{start}{table}<!-- end -->{after}")
}

#[test]
fn the_book_shows_what_the_code_declares() {
    let chapter = std::fs::read_to_string(CHAPTER).expect("the chapter is there");
    let fresh = put(&chapter, "reasons", &reasons());
    let fresh = put(&fresh, "counters", &table(&Counters::statistics()));
    let fresh = put(&fresh, "gauges", &table(&Engine::gauge_statistics()));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(CHAPTER, &fresh).expect("the chapter can be written");
    }
    let stale = fresh.lines().zip(chapter.lines()).find(|(a, b)| a != b);
    assert!(fresh == chapter, "docs/src/engine.md is stale at {stale:?}; refresh it with: {BLESS}");
}
