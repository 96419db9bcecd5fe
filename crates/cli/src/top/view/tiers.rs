//! The pane of nodes, and of what flows between them.

use thermocline_core::topology::NodeState;

use super::body::Body;
use super::numbers::{flow, rate, size};
use super::table::{Column, Row};
use crate::top::reading::{COUNTERS, Origin, Reading};
use crate::top::state::State;

const COLUMNS: &[Column] = &[
    Column::number("node", 4, 0),
    Column::number("tier", 4, 1),
    Column::number("used", 9, 0),
    Column::number("of", 9, 0),
    Column::number("used %", 6, 3),
    Column::number("free", 9, 0),
    Column::number("free change", 12, 2),
    Column::number("high mark", 9, 1),
    Column::number("coming in", 9, 4),
    Column::words("state", 14, 0).growing(),
];

/// Gauges of the engine that say what waits.
const WAITING: [&str; 4] = ["queue_length", "queue_parked", "moves_in_flight", "demotion_pending"];
/// Counters that say how candidates fare.
const FATE: [&str; 5] = ["proposed", "issued", "moved", "promoted_again", "came_back"];

pub(super) fn body(state: &State, reading: &Reading) -> Body {
    let rates = &state.shown().rates;
    let mut intro = moves(state, reading);
    let gauge = |name: &str| Some(format!("{name} {}", reading.gauge(name, None)?));
    let waiting: Vec<String> = WAITING.into_iter().filter_map(gauge).collect();
    if !waiting.is_empty() {
        intro.push((waiting.join("  "), false));
        let fate = |name| format!("{name} {}/s", rate(rates.of(&(COUNTERS, name, None))));
        intro.push((FATE.map(fate).join("  "), false));
    }
    if let Some(why) = &reading.kswapd.why {
        intro.push((format!("kswapd has not come back: {why}"), true));
    }
    let row = |(i, node): (usize, &NodeState)| {
        let used = node.managed_pages.saturating_sub(node.free_pages);
        let (word, bad) = condition(reading, node);
        let cells = vec![
            node.node.0.to_string(),
            reading.tier(node.node).map_or("-".to_owned(), |tier| tier.0.to_string()),
            size(used),
            size(node.managed_pages),
            (used * 100).checked_div(node.managed_pages).map_or("-".to_owned(), |share| share.to_string()),
            size(node.free_pages),
            flow(rates.free.get(i).copied().flatten()),
            size(node.watermarks.high_pages),
            reading.gauge("pages_in_flight", Some(node.node)).map_or("-".to_owned(), size),
            word.to_owned(),
        ];
        Row { cells, bad }
    };
    let rows = reading.nodes.iter().enumerate().map(row).collect();
    let none = match reading.origin {
        Origin::Daemon => "no node has memory",
        Origin::Replay | Origin::Rows => "what each node holds is unknown: it is not recorded until here",
    };
    Body { intro, columns: COLUMNS, rows, none: none.to_owned(), ..Body::default() }
}

/// What was promoted and demoted, by what moved it.
fn moves(state: &State, reading: &Reading) -> Vec<(String, bool)> {
    let mut out = vec![(
        format!("{:<9}{:<23}{:<23}{}", "", "  thermocline", "  the kernel itself", "  DAMON")
            .trim_end()
            .to_owned(),
        false,
    )];
    for (way, word) in ["promoted", "demoted"].into_iter().enumerate() {
        let by = |who: usize| {
            let Some(total) = reading.moved[way][who] else { return format!("{:>11} {:>9}", "", "unknown") };
            format!("{:>11} {:>9}", flow(state.shown().rates.flows[way][who]), size(total))
        };
        out.push((format!("{word:<9}{}  {}  {}", by(0), by(1), by(2)), false));
    }
    let waited = reading.kernel_moves.map(|moves| (moves.pgdemote_direct, moves.allocstall));
    if let Some((direct, stalls)) = waited.filter(|(direct, stalls)| direct + stalls > 0) {
        out.push((
            format!("programs waited: {} demoted by them, {stalls} waits for reclaim", size(direct)),
            true,
        ));
    }
    out
}

/// How a node is, in words, and whether that is bad.
fn condition(reading: &Reading, node: &NodeState) -> (&'static str, bool) {
    let marks = &node.watermarks;
    match node.free_pages {
        _ if reading.kswapd.given_up.contains(&node.node) => ("kswapd gave up", true),
        free if free < marks.min_pages => ("below min", true),
        free if free < marks.low_pages => ("below low", true),
        free if free < marks.high_pages => ("below high", false),
        _ => ("has room", false),
    }
}
