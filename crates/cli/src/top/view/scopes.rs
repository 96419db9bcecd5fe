//! The pane of scopes: what each holds of the top tier, its limits, and its brake.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use thermocline_core::admission::{Braking, Cause, Standing};
use thermocline_core::units::ScopeId;

use super::body::Body;
use super::numbers::size;
use super::table::{Column, Row};
use crate::args::Pane;
use crate::escape;
use crate::text::rate;
use crate::top::reading::Reading;
use crate::top::state::State;

const COLUMNS: &[Column] = &[
    Column::words("scope", 16, 0).growing(),
    Column::number("DRAM", 10, 0),
    Column::number("floor", 9, 1),
    Column::number("cap", 9, 1),
    Column::number("cap %", 5, 2),
    Column::number("going up", 9, 4),
    Column::number("going down", 10, 5),
    Column::words("brake", 24, 0),
];

/// A scope with what is known of it.
struct Scope<'a> {
    name: &'a str,
    standing: Option<&'a Standing>,
    brake: Option<&'a Braking>,
}

impl Scope<'_> {
    fn dram(&self) -> Option<u64> {
        self.standing?.top_tier_pages
    }

    /// Share of the cap that is used, in percent.
    fn filled(&self) -> Option<u64> {
        (self.dram()? * 100).checked_div(self.standing?.cap_pages?)
    }
}

pub(super) fn body(state: &State, reading: &Reading) -> Body {
    let all = joined(reading);
    let count = all.len();
    let mut found: Vec<Scope<'_>> = all.into_iter().filter(|scope| state.passes(&[scope.name])).collect();
    match state.order(Pane::Scopes) {
        "name" => found.sort_by(|a, b| a.name.cmp(b.name)),
        "cap used" => found.sort_by_key(|scope| Reverse(scope.filled())),
        "brake" => found.sort_by_key(|scope| scope.brake.map_or(u64::MAX, |brake| brake.rate_bp)),
        _ => found.sort_by_key(|scope| Reverse(scope.dram())),
    }
    let braked = found.iter().filter(|scope| scope.brake.is_some_and(|brake| brake.by.is_some())).count();
    Body {
        note: format!("{} of {count}, {braked} braked", found.len()),
        columns: COLUMNS,
        rows: found.iter().map(row).collect(),
        none: match count {
            0 => "no scope has a floor, a cap or a brake".to_owned(),
            _ => "no scope has the filter's text in its name".to_owned(),
        },
        ..Body::default()
    }
}

/// The scopes with limits and those with brakes, by number.
fn joined(reading: &Reading) -> Vec<Scope<'_>> {
    let mut found: BTreeMap<ScopeId, Scope<'_>> = BTreeMap::new();
    for named in &reading.scopes {
        let scope = Scope { name: &named.name, standing: Some(&named.standing), brake: None };
        found.insert(named.standing.scope, scope);
    }
    for named in &reading.brakes {
        let scope = Scope { name: &named.name, standing: None, brake: None };
        found.entry(named.standing.scope).or_insert(scope).brake = Some(&named.standing);
    }
    found.into_values().collect()
}

fn row(scope: &Scope<'_>) -> Row {
    let pages = |pages: Option<u64>| pages.map_or("-".to_owned(), size);
    let limit = |limit: Option<u64>| pages(limit.filter(|pages| *pages > 0));
    let braked = scope.brake.is_some_and(|brake| brake.by.is_some());
    let cells = vec![
        escape::name(scope.name).into_owned(),
        scope.dram().map_or("unknown".to_owned(), size),
        scope
            .standing
            .filter(|of| of.never_slow)
            .map_or_else(|| limit(scope.standing.map(|standing| standing.floor_pages)), |_| "all".to_owned()),
        pages(scope.standing.and_then(|standing| standing.cap_pages)),
        scope.filled().map_or("-".to_owned(), |share| share.to_string()),
        pages(scope.standing.map(|standing| standing.up_pages)),
        pages(scope.standing.map(|standing| standing.down_pages)),
        scope.brake.map_or("-".to_owned(), brake),
    ];
    Row { cells, bad: braked }
}

/// The brake in a few words.
fn brake(brake: &Braking) -> String {
    let share = rate(brake.rate_bp).replace("braked to ", "").replace(" of its rate", "");
    match brake.by {
        None => share,
        Some(Cause::Pressure) => format!("{share}, memory pressure"),
        Some(Cause::PingPong) => format!("{share}, ping-pong"),
    }
}
