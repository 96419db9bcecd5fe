//! The pane of the latest decisions, newest first.

use super::body::Body;
use super::table::{Column, Row};
use crate::escape;
use crate::top::reading::{Entry, Origin};
use crate::top::state::State;

const COLUMNS: &[Column] = &[
    Column::number("before", 9, 2),
    Column::words("page", 22, 0),
    Column::words("event", 8, 0),
    Column::words("reason", 15, 1),
    Column::number("pages", 5, 3),
    Column::words("nodes", 6, 1),
    Column::number("score", 5, 4),
    Column::words("proposed for", 14, 5).growing(),
];

pub(super) fn body(state: &State) -> Body {
    let shown = state.shown();
    let found = state.decisions();
    let is_of_rows = shown.reading.as_ref().is_some_and(|reading| reading.origin == Origin::Rows);
    let newest = shown.decisions.back().map_or(0, |entry| entry.time.0);
    let row = |entry: &&Entry| {
        let before = newest.saturating_sub(entry.time.0) as f64 / 1e9;
        let to = entry.to.map_or("?".to_owned(), |node| node.0.to_string());
        let cells = vec![
            format!("{before:.3}s"),
            format!("{}:{:#x}", entry.page.pid.0, entry.address()),
            escape::name(&entry.what).into_owned(),
            escape::name(entry.cause()).into_owned(),
            entry.pages.to_string(),
            format!("{}>{to}", entry.from.0),
            entry.score.to_string(),
            escape::name(&entry.why).into_owned(),
        ];
        Row { cells, bad: matches!(entry.what.as_str(), "failed" | "lost") }
    };
    Body {
        note: format!("{} of the last {}, newest first", found.len(), shown.decisions.len()),
        columns: COLUMNS,
        rows: found.iter().map(row).collect(),
        none: match &shown.undecided {
            Some(why) => escape::name(why).into_owned(),
            None if shown.decisions.is_empty() && is_of_rows => {
                "no decision is recorded until here".to_owned()
            }
            None if shown.decisions.is_empty() => "nothing was decided yet".to_owned(),
            None => "no decision has the filter's text".to_owned(),
        },
        ..Body::default()
    }
}
