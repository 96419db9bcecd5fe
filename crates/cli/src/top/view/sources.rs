//! The pane of sources: what each gives and loses, from its declared statistics.

use thermocline_core::counters::Statistic;
use thermocline_core::label::Label;
use thermocline_core::statistics::Kind;
use thermocline_linux::source::{ROWS, Row as Source};

use super::body::Body;
use super::numbers::rate;
use super::table::{Column, Row};
use crate::top::reading::{COUNTERS, Key, Origin, Reading};
use crate::top::state::State;

const COLUMNS: &[Column] = &[
    Column::words("source", 10, 0),
    Column::words("figure", 22, 0),
    Column::number("a second", 10, 0),
    Column::number("total", 14, 0),
    Column::words("unit", 12, 1),
    Column::words("trouble", 7, 0),
    Column::words("meaning", 10, 3).growing(),
];

pub(super) fn body(state: &State, reading: &Reading) -> Body {
    let rows: Vec<Row> = ROWS.iter().flat_map(|source| of_source(state, reading, source)).collect();
    let troubles = rows.iter().filter(|row| row.bad).count();
    let passes = |row: &Row| state.passes(&[&row.cells[0], &row.cells[1]]);
    Body {
        note: match (reading.origin, troubles) {
            (Origin::Replay | Origin::Rows, _) => "losses unknown: they are not recorded".to_owned(),
            (Origin::Daemon, 0) => "no losses".to_owned(),
            (Origin::Daemon, _) => format!("{troubles} kinds of loss or trouble"),
        },
        columns: COLUMNS,
        rows: rows.into_iter().filter(passes).collect(),
        none: "no source is open, or none has the filter's text in its figures".to_owned(),
        ..Body::default()
    }
}

/// The evidence of a source, then what went wrong, then its other figures that are not 0.
fn of_source(state: &State, reading: &Reading, source: &Source) -> Vec<Row> {
    let name = source.source.key();
    let lists = (source.statistics)();
    let known = |place: &str, statistic: &Statistic| {
        reading.figures.keys().any(|k| k.0 == place && k.1 == statistic.name)
    };
    let label = Some(source.source.name().to_owned());
    // A recording has evidence, and nothing of the sources themselves.
    let gave = reading.figures.get(&(COUNTERS, "evidence", label.clone())).is_some_and(|given| *given > 0);
    let recorded = gave && reading.origin != Origin::Daemon;
    if !recorded && !lists.iter().any(|(place, list)| list.iter().any(|statistic| known(place, statistic))) {
        return Vec::new();
    }
    let mut out: Vec<Row> = Vec::new();
    for statistic in thermocline_core::counters::Counters::statistics() {
        let key: Key = (COUNTERS, statistic.name, label.clone());
        if statistic.name == "evidence" {
            out.extend(row(state, reading, name, &statistic, &key));
        }
    }
    let mut rest = Vec::new();
    for (place, list) in lists {
        for statistic in list {
            let key: Key = (place, statistic.name, None);
            if reading.figures.get(&key).is_none_or(|value| *value == 0) {
                continue;
            }
            let found = row(state, reading, name, &statistic, &key);
            if statistic.trouble { &mut out } else { &mut rest }.extend(found);
        }
    }
    out.extend(rest);
    out
}

fn row(state: &State, reading: &Reading, source: &str, statistic: &Statistic, key: &Key) -> Option<Row> {
    let value = reading.figures.get(key)?;
    let a_second = match statistic.kind {
        Kind::Counter => rate(state.shown().rates.of(key)),
        Kind::Gauge => String::new(),
    };
    let bad = statistic.trouble && *value > 0;
    let cells = vec![
        source.to_owned(),
        statistic.name.to_owned(),
        a_second,
        value.to_string(),
        statistic.unit.to_owned(),
        if bad { "trouble" } else { "" }.to_owned(),
        statistic.description.clone(),
    ];
    Some(Row { cells, bad })
}
