//! Counts: the screen's are those of the engine that was recorded, of `report` and of `replay`.

use std::collections::BTreeMap;

use serde_json::Value;
use thermocline_core::counters::Counters;
use thermocline_core::label::Label;
use thermocline_core::units::Nanos;
use thermocline_trace::digest::Span;
use thermocline_trace::reader::Recording;
use thermocline_trace::replay::watched;

use super::*;

/// Refused, held, expired and failed, by what and reason.
type Reasons = BTreeMap<(String, String), u64>;

/// The rows of the pane of refusals.
fn refusals(folder: &Path, at: &[&str]) -> Reasons {
    let text = frame(folder, &[&["--pane", "refusals", "--size", "120x40"][..], at].concat());
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.trim_start_matches(['>', '!', ' ']).split_whitespace().collect();
        let total = words.get(3)?.parse().ok()?;
        Some(((words[1].to_owned(), words[0].to_owned()), total))
    });
    rows.collect()
}

/// What thermocline has promoted and demoted, as the pane of tiers prints it.
fn moved(folder: &Path, at: &[&str]) -> [String; 2] {
    let text = frame(folder, &[&["--pane", "tiers"][..], at].concat());
    ["promoted", "demoted"].map(|way| {
        let row = text.lines().find(|line| line.trim_start().starts_with(way)).expect("a row");
        // A rate with its unit or none, then the total with its unit.
        let words: Vec<&str> = row.split_whitespace().collect();
        let total = if words[1] == "-" { &words[2..4] } else { &words[3..5] };
        total.join(" ")
    })
}

fn mib(pages: u64) -> String {
    format!("{:.1} MiB", pages as f64 / 256.0)
}

/// The engine's counters after the last step that is not later than so long after the start.
fn counters(folder: &Path, at: Option<u64>) -> Counters {
    let recording = Recording::open(folder).expect("it is a recording");
    let start = Span::of(&recording).start;
    let config = recording.config().expect("it has one");
    let mut found = Counters::default();
    let mut watch = |time: Nanos, engine: &thermocline_core::engine::Engine| {
        if at.is_none_or(|ns| time.since(start).0 <= ns) {
            found = engine.counters().clone();
        }
    };
    watched(&recording, &config, &Ok, &mut |_, _| {}, &mut watch).expect("it can be replayed");
    found
}

fn reasons(counters: &Counters) -> Reasons {
    let mut out = Reasons::new();
    let by = [("refused", &counters.refused), ("held", &counters.held), ("expired", &counters.expired)];
    for (what, by) in by {
        out.extend(by.iter().map(|(reason, n)| ((what.to_owned(), reason.name().to_owned()), n)));
    }
    out.extend(counters.failed.iter().map(|(o, n)| (("failed".to_owned(), o.name().to_owned()), n)));
    out.retain(|_, n| *n > 0);
    out
}

/// The cells of a table of the report.
fn table(page: &str, id: &str) -> Vec<Vec<String>> {
    let start = page.find(&format!("<table id=\"{id}\">")).expect("the table");
    let body = &page[start..];
    let body = &body[..body.find("</table>").expect("its end")];
    let cell = |cell: &str| {
        let text = cell.split_once('>').expect("a cell").1;
        text[..text.find("</td>").expect("its end")]
            .replace("<code>", "")
            .replace("</code>", "")
            .replace("&#39;", "'")
    };
    body.split("<tr>").skip(1).map(|row| row.split("<td").skip(1).map(cell).collect()).collect()
}

/// What the report prints: reasons, and base pages promoted and demoted.
fn report(folder: &Path) -> (Reasons, [u64; 2]) {
    let file = folder.with_extension("html");
    let output = run(&["report", plain(folder), "-o", plain(&file)]);
    assert!(output.status.success(), "{}", errors(&output));
    let page = fs::read_to_string(&file).expect("it is written");
    let number = |cell: &str| cell.replace(',', "").parse::<u64>().expect("a number");
    let rows = table(&page, "refusals-table").into_iter().filter(|row| row.len() > 2);
    let reasons = rows.map(|row| ((row[0].clone(), row[1].clone()), number(&row[2]))).collect();
    let moves = table(&page, "moved");
    let of = |name: &str| {
        moves.iter().find(|row| row.first().is_some_and(|cell| cell == name)).map(|row| number(&row[1]))
    };
    let demoted = ["demoted, page by page", "demoted by the kernel's reclaim, on demand"].map(of);
    let demoted = demoted.into_iter().map(|pages| pages.expect("a row")).sum();
    (reasons, [of("promoted").expect("a row"), demoted])
}

/// Decisions that `replay` writes until a time, by what and reason; what it holds is written once
/// where the engine counts each look.
fn journal(folder: &Path, until: Option<u64>) -> (Reasons, u64) {
    let file = folder.with_extension("jsonl");
    let output = run(&["replay", plain(folder), "--journal", plain(&file)]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && told.contains("to the byte"), "{told}");
    let (mut reasons, mut promoted) = (Reasons::new(), 0);
    for line in fs::read_to_string(&file).expect("it is written").lines() {
        let decision: Value = serde_json::from_str(line).expect("a decision");
        let time = decision["time"].as_u64().expect("its time");
        let what = decision["what"].as_str().expect("a word");
        if until.is_some_and(|until| time > until) {
            continue;
        }
        match what {
            "moved" if decision["direction"] == "promote" => {
                promoted += decision["pages"].as_u64().expect("a number");
            }
            "expired" => {
                let reason = decision["held"].as_str().unwrap_or("expired");
                *reasons.entry((what.to_owned(), reason.to_owned())).or_default() += 1;
            }
            _ => {}
        }
    }
    (reasons, promoted)
}

fn expired(reasons: &Reasons) -> Reasons {
    reasons.iter().filter(|((what, _), _)| what == "expired").map(|(key, n)| (key.clone(), *n)).collect()
}

#[test]
fn top_report_and_replay_show_the_same_counts() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("shared");
    record(&folder);

    let counted = counters(&folder, None);
    let (of_report, pages) = report(&folder);
    assert!(pages[0] > 1000 && pages[1] > 1000, "{pages:?} were moved");
    assert_eq!(pages, [counted.pgpromote_success, counted.pgdemote + counted.demotion_done]);
    let shown = refusals(&folder, &[]);
    assert!(shown.len() >= 2, "{shown:?}");
    assert_eq!(shown, of_report);
    assert_eq!(shown, reasons(&counted));
    assert_eq!(moved(&folder, &[]), pages.map(mib));
    let (of_replay, promoted) = journal(&folder, None);
    assert_eq!((expired(&shown), pages[0]), (of_replay, promoted));

    // The same at moments between, where the report has none: it is of a whole recording.
    let recording = Recording::open(&folder).expect("it is a recording");
    let span = Span::of(&recording);
    for part in [3, 5, 8] {
        let ns = span.end.since(span.start).0 * part / 10;
        let at = format!("{ns}ns");
        let counted = counters(&folder, Some(ns));
        let shown = refusals(&folder, &["--at", &at]);
        assert_eq!(shown, reasons(&counted), "at {at}");
        let pages = [counted.pgpromote_success, counted.pgdemote + counted.demotion_done];
        assert_eq!(moved(&folder, &["--at", &at]), pages.map(mib), "at {at}");
        let (of_replay, promoted) = journal(&folder, Some(span.start.0 + ns));
        assert_eq!((expired(&shown), pages[0]), (of_replay, promoted), "at {at}");
    }
}

#[test]
fn scopes_have_their_shares_and_their_ledgers() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("shared");
    record(&folder);
    let narrow = frame(&folder, &["--pane", "scopes"]);
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    let service = narrow.lines().find(|line| line.contains("/a-servic")).expect("its row");
    assert!(service.contains("24.0 MiB"), "its share: {service}");
    let hog = narrow.lines().find(|line| line.contains("/hog")).expect("its row");
    assert!(hog.contains("40.0 MiB"), "{hog}");
    let wide = frame(&folder, &["--pane", "scopes", "--size", "159x39"]);
    for column in ["share", "wants", "promoted", "demoted", "came back", "for others"] {
        assert!(wide.contains(column), "{column}: {wide}");
    }
}
