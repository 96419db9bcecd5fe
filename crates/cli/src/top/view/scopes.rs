//! The pane of scopes: what each holds of the top tier, its share and limits, what was
//! done with its memory, and its brake.

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
use crate::top::reading::{Ledger, Origin, Reading};
use crate::top::state::State;

const COLUMNS: &[Column] = &[
    Column::words("scope", 13, 0).growing(),
    Column::number("DRAM", 9, 0),
    Column::number("share", 9, 0),
    Column::number("wants", 9, 0),
    Column::number("floor", 9, 1),
    Column::number("cap", 9, 1),
    Column::number("share %", 7, 7),
    Column::number("cap %", 5, 8),
    Column::number("promoted", 9, 2),
    Column::number("demoted", 9, 3),
    Column::number("came back", 9, 5),
    Column::number("for others", 10, 4),
    Column::number("going up", 9, 9),
    Column::number("going down", 10, 10),
    Column::words("brake", 13, 0),
];

/// A scope with what is known of it.
#[derive(Default)]
struct Scope<'a> {
    name: &'a str,
    standing: Option<&'a Standing>,
    ledger: Option<&'a Ledger>,
    brake: Option<&'a Braking>,
}

impl Scope<'_> {
    fn dram(&self) -> Option<u64> {
        self.standing?.top_tier_pages
    }

    /// Part of the cap that is used, in percent.
    fn filled(&self) -> Option<u64> {
        self.dram()?.saturating_mul(100).checked_div(self.standing?.cap_pages?)
    }

    /// Its share, if it has one.
    fn share(&self) -> Option<u64> {
        Some(self.standing?.share_pages).filter(|pages| *pages > 0)
    }

    /// Part of the share that it holds, in percent.
    fn shared(&self) -> Option<u64> {
        self.dram()?.saturating_mul(100).checked_div(self.share()?)
    }

    /// What it wants of its share and does not hold.
    fn wants(&self) -> u64 {
        self.standing.map_or(0, |standing| standing.claimed_pages)
    }

    fn moved(&self) -> u64 {
        self.ledger.map_or(0, |ledger| ledger.promoted.saturating_add(ledger.demoted))
    }
}

pub(super) fn body(state: &State, reading: &Reading) -> Body {
    let all = joined(reading);
    let count = all.len();
    let mut found: Vec<Scope<'_>> = all.into_iter().filter(|scope| state.passes(&[scope.name])).collect();
    match state.order(Pane::Scopes) {
        "name" => found.sort_by(|a, b| a.name.cmp(b.name)),
        "cap used" => found.sort_by_key(|scope| Reverse(scope.filled())),
        "share used" => found.sort_by_key(|scope| Reverse(scope.shared())),
        "wanted" => found.sort_by_key(|scope| Reverse(scope.wants())),
        "moved" => found.sort_by_key(|scope| Reverse(scope.moved())),
        "brake" => found.sort_by_key(|scope| scope.brake.map_or(u64::MAX, |brake| brake.rate_bp)),
        _ => found.sort_by_key(|scope| Reverse(scope.dram())),
    }
    let braked = found.iter().filter(|scope| scope.brake.is_some_and(|brake| brake.by.is_some())).count();
    let braked = match reading.origin {
        Origin::Rows => "brakes unknown".to_owned(),
        Origin::Daemon | Origin::Replay => format!("{braked} braked"),
    };
    Body {
        note: format!("{} of {count}, {braked}", found.len()),
        columns: COLUMNS,
        rows: found.iter().map(|scope| row(scope, reading.origin)).collect(),
        none: match (count, reading.origin) {
            (0, Origin::Rows) => "scopes are unknown: none has limits, and none was read".to_owned(),
            (0, _) => "no scope has a floor, a cap, a share or a brake".to_owned(),
            _ => "no scope has the filter's text in its name".to_owned(),
        },
        ..Body::default()
    }
}

/// The scopes with limits, those with brakes, and the ledgers of either, by number.
fn joined(reading: &Reading) -> Vec<Scope<'_>> {
    let mut found: BTreeMap<ScopeId, Scope<'_>> = BTreeMap::new();
    for named in &reading.scopes {
        let scope = Scope { name: &named.name, standing: Some(&named.standing), ..Scope::default() };
        found.insert(named.standing.scope, scope);
    }
    for named in &reading.brakes {
        let scope = Scope { name: &named.name, ..Scope::default() };
        found.entry(named.standing.scope).or_insert(scope).brake = Some(&named.standing);
    }
    for named in &reading.ledgers {
        if let Some(scope) = found.get_mut(&named.standing.scope) {
            scope.ledger = Some(&named.standing);
        }
    }
    found.into_values().collect()
}

fn row(scope: &Scope<'_>, origin: Origin) -> Row {
    // Only an engine knows what rows do not say.
    let absent = if origin == Origin::Rows { "unknown" } else { "-" };
    let pages = |pages: Option<u64>| pages.map_or("-".to_owned(), size);
    let engine =
        |pages: Option<u64>| pages.filter(|_| origin != Origin::Rows).map_or_else(|| absent.to_owned(), size);
    let percent = |share: Option<u64>| share.map_or("-".to_owned(), |share| share.to_string());
    let standing = scope.standing;
    let floor = match standing {
        Some(standing) if standing.never_slow => "all".to_owned(),
        _ => pages(standing.map(|standing| standing.floor_pages).filter(|pages| *pages > 0)),
    };
    // Where there is no share, nothing of one can be wanted.
    let wants = scope.share().map_or("-".to_owned(), |_| engine(Some(scope.wants())));
    let cells = vec![
        escape::name(scope.name).into_owned(),
        scope.dram().map_or("unknown".to_owned(), size),
        pages(scope.share()),
        wants,
        floor,
        pages(standing.and_then(|standing| standing.cap_pages)),
        percent(scope.shared()),
        percent(scope.filled()),
        engine(scope.ledger.map(|ledger| ledger.promoted)),
        engine(scope.ledger.map(|ledger| ledger.demoted)),
        engine(scope.ledger.map(|ledger| ledger.came_back)),
        engine(scope.ledger.map(|ledger| ledger.evicted)),
        engine(standing.map(|standing| standing.up_pages)),
        engine(standing.map(|standing| standing.down_pages)),
        scope.brake.map_or_else(|| absent.to_owned(), brake),
    ];
    Row { cells, bad: scope.brake.is_some_and(|brake| brake.by.is_some()) }
}

/// The brake in a few words.
fn brake(brake: &Braking) -> String {
    let part = rate(brake.rate_bp).replace("braked to ", "").replace(" of its rate", "");
    match brake.by {
        None => part,
        Some(Cause::Pressure) => format!("{part} pressure"),
        Some(Cause::PingPong) => format!("{part} ping-pong"),
    }
}
