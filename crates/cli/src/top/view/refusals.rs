//! The pane of refusals: what keeps pages from moving, by reason.

use thermocline_core::counters::Counters;
use thermocline_core::label::Label;
use thermocline_core::refusal::RefusalReason;

use super::body::Body;
use super::numbers::rate;
use super::table::{Column, Row};
use crate::args::Pane;
use crate::top::reading::{COUNTERS, Origin, Reading};
use crate::top::state::State;

const COLUMNS: &[Column] = &[
    Column::words("reason", 18, 0),
    Column::words("counted as", 10, 0),
    Column::number("a second", 10, 0),
    Column::number("total", 14, 0),
    Column::words("unit", 10, 1),
    Column::words("meaning", 20, 2).growing(),
];

struct Found {
    row: Row,
    rate: f64,
    total: u64,
}

/// A row for each reason and outcome that has occurred, of every counter that is split so.
pub(super) fn body(state: &State, reading: &Reading) -> Body {
    let mut found: Vec<Found> = Vec::new();
    for statistic in Counters::statistics() {
        if !matches!(statistic.label, Some("reason" | "outcome")) {
            continue;
        }
        let values = reading.figures.range((COUNTERS, statistic.name, None)..);
        let values = values.take_while(|(key, _)| key.0 == COUNTERS && key.1 == statistic.name);
        for (key, total) in values.filter(|(_, total)| **total > 0) {
            let label = key.2.as_deref().unwrap_or_default();
            if !state.passes(&[label, statistic.name]) {
                continue;
            }
            let of = state.shown().rates.of(key);
            let meaning = RefusalReason::named(label).filter(|_| statistic.label == Some("reason"));
            let cells = vec![
                label.to_owned(),
                statistic.name.to_owned(),
                rate(of),
                total.to_string(),
                statistic.unit.to_owned(),
                meaning.map_or(statistic.description.clone(), RefusalReason::meaning),
            ];
            found.push(Found { row: Row { cells, bad: false }, rate: of.unwrap_or(0.0), total: *total });
        }
    }
    match state.order(Pane::Refusals) {
        "reason" => found.sort_by(|a, b| a.row.cells.cmp(&b.row.cells)),
        "total" => found.sort_by_key(|found| std::cmp::Reverse(found.total)),
        _ => found.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.total.cmp(&a.total))),
    }
    Body {
        columns: COLUMNS,
        rows: found.into_iter().map(|found| found.row).collect(),
        // Recorded rows repeat no refusal, which the engine counts each time.
        note: if reading.origin == Origin::Rows { "at least" } else { "" }.to_owned(),
        none: match reading.figures.keys().any(|key| key.0 == COUNTERS && key.1 != "evidence") {
            true if state.filter.is_empty() => "nothing was refused, held or expired".to_owned(),
            true => "no reason has the filter's text".to_owned(),
            false if reading.origin == Origin::Rows => "unknown: it is not recorded".to_owned(),
            false => "the kernel decides, and gives no reasons".to_owned(),
        },
        ..Body::default()
    }
}
