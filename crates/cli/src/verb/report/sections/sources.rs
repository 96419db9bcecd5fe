//! What sources gave, and what of the recording is missing.

use thermocline_core::access::Source;

use super::Section;
use crate::verb::report::facts::Facts;
use crate::verb::report::html::{Set, Table};
use crate::verb::report::number::{count, short};

/// Evidence by source, and losses.
pub fn sources(facts: &Facts) -> Section {
    let mut out = Section::new("sources", "Where evidence came from");
    let digest = &facts.digest;
    let mut table = Table::new(&[
        ("source", Set::Words),
        ("pieces", Set::Number),
        ("a second", Set::Number),
        ("a second, at most", Set::Number),
        ("of pages in DRAM", Set::Number),
        ("of pages below", Set::Number),
    ]);
    let a_second = |n: u64, seconds: Option<f64>| match seconds.filter(|seconds| *seconds > 0.0) {
        Some(seconds) => short(n as f64 / seconds),
        None => "unknown".to_owned(),
    };
    let bin_s = facts.seconds().map(|_| digest.span.bin_s());
    for source in Source::all() {
        let Some(given) = digest.given(source).filter(|given| given.pieces.sum() > 0) else { continue };
        let most = given.pieces.counts().iter().copied().max().unwrap_or(0);
        let [top, lower, unknown] = given.seen;
        let says = top + lower > 0 && unknown == 0;
        let place = |n: u64| if says { count(n) } else { "unknown".to_owned() };
        table.row([
            source.key().to_owned(),
            count(given.pieces.sum()),
            a_second(given.pieces.sum(), facts.seconds()),
            a_second(most, bin_s),
            place(top),
            place(lower),
        ]);
    }
    if digest.foreign_regions > 0 {
        table.row([
            "regions counted elsewhere".to_owned(),
            count(digest.foreign_regions),
            a_second(digest.foreign_regions, facts.seconds()),
            "unknown".to_owned(),
            "unknown".to_owned(),
            "unknown".to_owned(),
        ]);
    }
    if table.is_empty() {
        out.says("There is no evidence in it.");
    } else {
        out.table("sources-table", &table);
    }
    let missing = missing(facts);
    match missing.is_empty() {
        true => out.says("Nothing that was to be recorded is missing."),
        false => out.list(&missing),
    }
    if facts.says_moves() {
        out.notes("What a source lost before it reached the engine is not recorded; `status` and the metrics have it.");
    }
    out
}

/// What of the recording is missing, in words.
pub fn missing(facts: &Facts) -> Vec<String> {
    let digest = &facts.digest;
    let mut out = Vec::new();
    let [events, pieces] = digest.lost;
    if events > 0 {
        out.push(format!(
            "{} events with {} pieces of evidence were not recorded because the disk did not keep up",
            count(events),
            count(pieces)
        ));
    }
    if digest.missing > 0 {
        out.push(format!("{} events are missing in all", count(digest.missing)));
    }
    if digest.overwritten {
        out.push("decisions are missing, because the journal ran over".to_owned());
    }
    out.extend(facts.left_out.iter().take(LEFT_OUT_SHOWN).map(|file| format!("left out: {file}")));
    let named = facts.left_out.len().min(LEFT_OUT_SHOWN);
    let more = facts.left_out.len() - named;
    if more > 0 {
        out.push(format!("and {} more files", count(more as u64)));
    }
    out
}

/// Files left out that are named.
const LEFT_OUT_SHOWN: usize = 10;
