//! One moment, shown by `status`, the metrics, `top --once` and `explain`: names and values are the
//! same.

use serde_json::{Value, json};
use thermocline_core::counters::Counters;
use thermocline_core::engine::ScopeLedger;
use thermocline_core::label::{By, Label};
use thermocline_core::statistics::{Declared, Statistic, divisor};

use super::driven;
use super::machine;
use super::serve::listen;
use crate::args::Pane;
use crate::daemon::socket::{Request, ask, ask_for_text};
use crate::metrics::{self, Family};
use crate::snapshot::{ExplainedScope, Latest, Snapshot};
use crate::text;
use crate::top::reading::{COUNTERS, Reading};
use crate::top::state::State;
use crate::top::{Follower, poll};

/// What each verb shows of a snapshot.
struct Shown {
    json: Value,
    text: String,
    reading: Reading,
    frames: Vec<(Pane, String)>,
    families: Vec<Family>,
}

impl Shown {
    /// Asks over a socket, as the verbs do.
    fn of(snapshot: &Snapshot) -> Shown {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s/t.sock");
        let latest = Latest::default();
        let _server = listen(&path, latest.clone());
        latest.publish(snapshot.clone());
        let json = ask(&path, &Request::Status { as_text: false }).unwrap();
        let frame = |pane| {
            let mut state = State::new(pane);
            let mut follower = Follower::new(&path);
            for _ in 0..2 {
                poll::take(&mut state, follower.look().unwrap());
            }
            (pane, crate::top::text(&state, (150, 300)).unwrap())
        };
        Shown {
            text: ask_for_text(&path, &Request::Status { as_text: true }).unwrap(),
            reading: Reading::of(&json).unwrap().unwrap(),
            frames: Pane::ALL.map(frame).into(),
            families: metrics::families(snapshot),
            json,
        }
    }

    /// A metric, in the statistic's own unit.
    fn metric(&self, statistic: &Statistic, label: Option<&str>) -> Option<u64> {
        let family = self.families.iter().find(|family| family.name == statistic.metric)?;
        let of = |(labels, _): &&(Vec<(&str, String)>, f64)| labels.first().map(|l| l.1.as_str()) == label;
        let value = family.values.iter().find(of)?.1;
        Some((value * divisor(statistic.unit) as f64).round() as u64)
    }

    /// Whether a line of a pane has these words, in their order.
    fn has_row(&self, pane: Pane, words: &[&str]) -> bool {
        let frame = self.frames.iter().find(|(of, _)| *of == pane).map_or("", |(_, frame)| frame);
        frame.lines().any(|line| {
            let mut found = line.split_whitespace();
            words.iter().all(|word| found.any(|it| it == *word))
        })
    }
}

/// A counter by a label, each value of its own.
fn each<L: Label>(from: u64) -> By<L> {
    let mut out = By::default();
    L::ALL.iter().for_each(|label| out.add(*label, from + label.index() as u64));
    out
}

/// Every counter, each with a value of its own. A new one is missing here until it is shown.
fn counters() -> Counters {
    Counters {
        evidence: each(1_100_000),
        evidence_invalid: 1_000_001,
        region_pages: 1_000_002,
        numa_hint_faults: 1_000_003,
        proposed: 1_000_004,
        dropped: 1_000_005,
        merged: 1_000_006,
        refused: each(1_200_000),
        held: each(1_300_000),
        expired: each(1_400_000),
        queue_evicted: 1_000_007,
        exited: 1_000_008,
        returned: 1_000_009,
        issued: 1_000_010,
        batches: 1_000_011,
        moved: 1_000_012,
        failed: each(1_500_000),
        lost: 1_000_013,
        outcomes_unknown: 1_000_014,
        outcomes_malformed: 1_000_015,
        pgpromote_candidate: 1_000_016,
        pgpromote_success: 1_000_017,
        pgdemote: 1_000_018,
        pgbalance: 1_000_019,
        pgmigrate_success: 1_000_020,
        pgmigrate_fail: 1_000_021,
        demotion_asked: 1_000_022,
        demotion_done: 1_000_023,
        demotion_short: 1_000_024,
        demotion_over: 1_000_025,
        demotion_lost: 1_000_026,
        promoted_again: 1_000_027,
        came_back: 1_000_028,
        recent_forgotten: 1_000_029,
        ticks: 1_000_030,
    }
}

#[test]
fn every_counter_has_the_same_name_and_value_in_status_metrics_and_top() {
    let counters = counters();
    let snapshot = machine::snapshot(10).with_engine(|engine| engine.counters = counters.clone());
    let shown = Shown::of(&snapshot);
    let statistics = Counters::statistics();
    let (mut compared, mut on_screen) = (0, 0);
    for sample in counters.samples() {
        let statistic = statistics.iter().find(|statistic| statistic.name == sample.name).unwrap();
        let (name, label, value) = (sample.name, sample.label, sample.value);
        let at = &shown.json["counters"][name];
        let json = label.map_or(at, |label| &at[label]);
        assert_eq!(json.as_u64(), Some(value), "status --json: {name} {label:?}");
        let row = format!("{name:<24} {:<20} {value:>12}", label.unwrap_or_default());
        assert!(shown.text.lines().any(|line| line == row), "status: {row}\n{}", shown.text);
        assert_eq!(shown.metric(statistic, label), Some(value), "metrics: {name} {label:?}");
        let read = shown.reading.figures.get(&(COUNTERS, name, label.map(str::to_owned)));
        assert_eq!(read, Some(&value), "top: {name} {label:?}");
        if let (Some("reason" | "outcome"), Some(label)) = (statistic.label, label) {
            let words = [label, name, &value.to_string()];
            assert!(shown.has_row(Pane::Refusals, &words), "top --once: {words:?}");
            on_screen += 1;
        }
        compared += 1;
    }
    assert!(compared > 100 && on_screen > 60, "{compared} compared, {on_screen} on the screen");
    let faults = counters.evidence.iter().next().unwrap();
    assert!(shown.has_row(Pane::Sources, &["hintfault", "evidence", &faults.1.to_string()]));
    // What the panes show in MiB.
    let mib = |pages: u64| format!("{:.1}", pages as f64 / 256.0 / 1024.0);
    let moved = &shown.json["moved"];
    assert_eq!(moved["promoted"]["thermocline"], counters.pgpromote_success);
    assert_eq!(moved["demoted"]["thermocline"], counters.pgdemote + counters.demotion_done);
    for (way, pages) in
        [("promoted", counters.pgpromote_success), ("demoted", counters.pgdemote + counters.demotion_done)]
    {
        assert!(shown.has_row(Pane::Tiers, &[way, &mib(pages), "GiB"]), "{way} {}", mib(pages));
    }
}

#[test]
fn other_figures_of_status_are_those_of_top_and_the_metrics() {
    let snapshot = machine::snapshot(10);
    let shown = Shown::of(&snapshot);
    let mut compared = 0;
    for (place, statistic) in crate::top::reading::declared() {
        let figures = shown.reading.figures.iter();
        for ((_, _, label), value) in figures.filter(|(key, _)| key.0 == place && key.1 == statistic.name) {
            // Sources that are not open have no metrics.
            if shown.families.iter().all(|family| family.name != statistic.metric) {
                assert!(place.starts_with("source"), "{place} {}", statistic.name);
                continue;
            }
            let metric = shown.metric(&statistic, label.as_deref());
            assert_eq!(metric, Some(*value), "{place} {} {label:?}", statistic.name);
            compared += 1;
        }
    }
    assert!(compared > 80, "{compared}");
}

#[test]
fn what_explain_says_of_a_scope_is_what_status_metrics_and_top_say() {
    let (engine, fixed) = driven::engine();
    let deciding = crate::snapshot::Deciding::of_engine(&fixed, &engine);
    let snapshot = Snapshot { fixed: fixed.clone(), ..machine::snapshot(10) };
    let snapshot = snapshot.with_engine(|figures| *figures = deciding);
    let shown = Shown::of(&snapshot);
    let scope_in = |list: &str, name: &str| -> Value {
        let all = shown.json[list].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("{list}: no {name}"))
    };
    let (mut promoted, mut waiting) = (0, 0);
    for name in driven::SCOPES {
        let found = ExplainedScope::new(name, &engine, &fixed).unwrap();
        let explained = json!(found);
        let ledger = &explained["ledger"];
        for statistic in ScopeLedger::statistics() {
            let value = &ledger[statistic.name];
            assert!(value.is_u64(), "explain: {name} {}", statistic.name);
            assert_eq!(
                &scope_in("ledgers", name)[statistic.name],
                value,
                "status: {name} {}",
                statistic.name
            );
            let metric = shown.metric(&statistic, Some(name));
            assert_eq!(metric, value.as_u64(), "metrics: {name} {}", statistic.name);
        }
        promoted += ledger["promoted"].as_u64().unwrap();
        waiting += explained["waiting_pages"].as_u64().unwrap();
        // The rows of `explain` below its sentence are rows of `status`.
        let told = text::explained_scope(&found);
        let rows: Vec<&str> = told.lines().skip(1).collect();
        assert!(!rows.is_empty());
        for row in rows {
            assert!(shown.text.lines().any(|line| line == row), "{row}\n{}", shown.text);
        }
        let standing = &explained["standing"];
        if standing.is_null() {
            continue;
        }
        for (key, value) in standing.as_object().unwrap() {
            assert_eq!(&scope_in("scopes", name)[key], value, "{name} {key}");
        }
        let mib = |key: &str| format!("{:.1}", standing[key].as_u64().unwrap() as f64 / 256.0);
        let words = [name, &mib("top_tier_pages"), "MiB", &mib("cap_pages"), "MiB"];
        assert!(shown.has_row(Pane::Scopes, &words), "top --once: {words:?}");
        for (metric, key) in
            [("top_tier", "top_tier_pages"), ("cap", "cap_pages"), ("claimed", "claimed_pages")]
        {
            let family = format!("thermocline_scope_{metric}_bytes");
            let family = shown.families.iter().find(|found| found.name == family).unwrap();
            let bytes = family.values.iter().find(|(labels, _)| labels[0].1 == name).unwrap().1;
            assert_eq!((bytes / 4096.0) as u64, standing[key].as_u64().unwrap(), "{name} {metric}");
        }
    }
    // All scopes together are what the engine counts.
    assert_eq!((promoted, waiting), (driven::PROMOTED, driven::WAITING));
    assert_eq!(shown.json["counters"]["pgpromote_success"], promoted);
    assert_eq!(shown.json["moved"]["promoted"]["thermocline"], promoted);
    assert_eq!(shown.reading.gauge("queue_length", None), Some(waiting));
    assert!(shown.has_row(Pane::Tiers, &["queue_length", &waiting.to_string()]));
    let row = format!("{:<24} {:<20} {waiting:>12}", "queue_length", "");
    assert!(shown.text.lines().any(|line| line == row), "{}", shown.text);
}
