//! What a replay came to, as text.

use std::fmt::Write;

use thermocline_core::journal::Decision;

use thermocline_front::replay::Outcome;
use thermocline_front::replay::diff::{Counts, Diff};
use thermocline_front::words::PROGRAM;

/// Pairs of fates that are listed.
const PAIRS_MAX: usize = 12;

/// The report.
pub fn text(outcome: &Outcome) -> String {
    let mut out = format!(
        "{}: {} pieces of evidence in {} steps, recorded by {}\n",
        outcome.recording,
        outcome.pieces,
        outcome.steps,
        outcome.program.as_deref().unwrap_or("an unknown program"),
    );
    let [recorded, replayed] = outcome.decisions;
    let _ = match (outcome.unchanged, recorded == 0) {
        (true, _) => writeln!(out, "replayed with the recorded configuration, rule {}", outcome.rules[1]),
        (false, _) => {
            writeln!(out, "recorded with rule {}, replayed with {}", outcome.rules[0], outcome.rules[1])
        }
    };
    if outcome.missing > 0 {
        let _ = writeln!(
            out,
            "{} events are missing in it, the first is number {}: what was decided on them cannot be repeated",
            outcome.missing,
            outcome.missing_from.unwrap_or_default(),
        );
    }
    match &outcome.first_difference {
        None => {
            let _ = writeln!(out, "the same: all {recorded} decisions are those recorded, to the byte");
        }
        Some(first) => {
            let _ = writeln!(
                out,
                "not the same: {recorded} decisions recorded, {replayed} replayed; the first {} are equal, then\n  \
                 recorded: {}\n  replayed: {}",
                first.number,
                json(first.recorded.as_ref()),
                json(first.replayed.as_ref()),
            );
            out.push_str(&meaning(outcome));
        }
    }
    out.push_str(&outcome.diff.as_ref().map(diff).unwrap_or_default());
    out
}

/// What a difference means.
fn meaning(outcome: &Outcome) -> String {
    if outcome.unchanged {
        return match (outcome.is_whole(), outcome.is_of_this_version()) {
            (true, true) => "this is a defect; please report it with the recording\n".to_owned(),
            (true, false) => format!("another version recorded it; this is {}\n", PROGRAM),
            (false, _) => String::new(),
        };
    }
    let followed = &outcome.followed;
    format!(
        "of {} batches {} are as recorded and ended so; the others moved nothing\n",
        followed.batches + followed.batches_apart,
        followed.batches,
    )
}

fn json(decision: Option<&Decision>) -> String {
    decision.map_or_else(|| "nothing more".to_owned(), |d| serde_json::to_string(d).unwrap_or_default())
}

/// Counts, reasons and the first pages.
fn diff(diff: &Diff) -> String {
    let mut out = String::new();
    for (direction, counts) in &diff.counts {
        out.push_str(&table(direction, counts));
    }
    let differ: Vec<_> = diff.pairs.iter().filter(|pair| pair.recorded != pair.replayed).collect();
    if !differ.is_empty() {
        let _ = writeln!(out, "\n{:<9} {:<28} {:<28} {:>10}", "", "recorded", "replayed", "pages");
    }
    for pair in differ.iter().take(PAIRS_MAX) {
        let (direction, pages) = (pair.direction, pair.pages);
        let _ = writeln!(out, "{direction:<9} {:<28} {:<28} {pages:>10}", pair.recorded, pair.replayed);
    }
    let rest: u64 = differ.iter().skip(PAIRS_MAX).map(|pair| pair.pages).sum();
    if rest > 0 {
        let _ = writeln!(out, "{:<67} {rest:>10}", "others");
    }
    if !diff.first.is_empty() {
        let _ = writeln!(out, "\nthe first pages (seconds are the engine's time)");
    }
    for example in &diff.first {
        let at = |at: Option<thermocline_core::units::Nanos>| {
            at.map_or_else(String::new, |at| format!(" at {:.3} s", at.0 as f64 / 1e9))
        };
        let _ = writeln!(
            out,
            "pid {} {:#x} {}: recorded {}{}; replayed {}{}",
            example.page.pid.0,
            example.page.address(),
            example.direction,
            example.recorded,
            at(example.recorded_at),
            example.replayed,
            at(example.replayed_at),
        );
    }
    out
}

fn table(direction: &str, counts: &Counts) -> String {
    let rows = [
        ("moved in both", counts.moved_in_both),
        ("moved only as recorded", counts.moved_only_recorded),
        ("moved only as replayed", counts.moved_only_replayed),
        ("moved in neither, for the same reason", counts.same_reason),
        ("moved in neither, for another reason", counts.another_reason),
        ("moved in neither, proposed only as recorded", counts.only_recorded),
        ("moved in neither, proposed only as replayed", counts.only_replayed),
    ];
    let mut out = format!("\n{:<46} {:>10}\n", format!("to {direction}"), "pages");
    for (name, pages) in rows {
        let _ = writeln!(out, "  {name:<44} {pages:>10}");
    }
    let _ = writeln!(out, "  {:<44} {:>10}", "all", counts.pages);
    out
}
