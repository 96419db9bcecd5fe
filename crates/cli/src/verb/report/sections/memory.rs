//! What DRAM held, and where memory was hot.

use thermocline_core::access::RegionSpace;
use thermocline_core::units::{NodeId, PAGE_SIZE};
use thermocline_trace::digest::map::AREAS_MAX;
use thermocline_trace::digest::{Area, Kind, Level};

use super::Section;
use crate::recorded::bytes;
use crate::verb::report::facts::Facts;
use crate::verb::report::figures::Figure;
use crate::verb::report::figures::axis::Time;
use crate::verb::report::figures::heat::{Heat, ROWS_MAX, heat as drawn_heat};
use crate::verb::report::figures::held::{LINES_MAX, Line, held as drawn_held};
use crate::verb::report::html::{Set, Table};
use crate::verb::report::number::count;

/// Address spaces that are drawn.
const AREAS_DRAWN: usize = 6;

/// What each node, and each scope with a floor or a cap, held of memory.
pub fn held(facts: &Facts) -> Section {
    let mut out = Section::new("held", "What DRAM held");
    let digest = &facts.digest;
    let time = Time::new(digest.span, facts.untimed.is_none());
    let lines = |top: bool| -> Vec<Line<'_>> {
        let nodes = digest.nodes.iter().filter(|(node, _)| facts.topology.is_lower(*node) != top);
        let line = |(node, level): (NodeId, _)| Line {
            name: format!("node {}", node.0),
            level,
            limit: digest.managed.get(&node).copied(),
        };
        nodes.map(line).collect()
    };
    let (top, lower) = (lines(true), lines(false));
    let scope = |(scope, level)| Line { name: format!("scope {}", facts.scope(scope)), level, limit: None };
    let scopes: Vec<Line<'_>> = digest.scopes.iter().map(scope).collect();
    let mut figures = Vec::new();
    let mut table = Table::new(&[
        ("", Set::Words),
        ("at first", Set::Number),
        ("in the end", Set::Number),
        ("of", Set::Number),
    ]);
    let kinds = [
        ("dram", "DRAM in use, by node", &top),
        ("lower", "Lower tiers in use, by node", &lower),
        ("scopes", "DRAM held by scopes", &scopes),
    ];
    for (name, title, lines) in kinds {
        if !lines.is_empty() {
            figures.push(drawn_held((name, title), lines, facts.page_bytes(), time));
        }
        for line in lines {
            let size = |pages: Option<u64>| {
                pages.map_or("unknown".to_owned(), |pages| bytes(pages.saturating_mul(facts.page_bytes())))
            };
            let limit = line.limit.map_or(String::new(), |pages| size(Some(pages)));
            table.row([line.name.clone(), size(line.level.first()), size(Level::last(line.level)), limit]);
        }
        if lines.len() > LINES_MAX {
            out.notes(&format!("Of {} lines of the figure {name}, {LINES_MAX} are drawn.", lines.len()));
        }
    }
    if figures.is_empty() {
        out.says("Unknown: no state of a node is recorded.");
        return out;
    }
    out.draws(figures);
    out.table("held-table", &table);
    if scopes.is_empty() {
        out.notes("What scopes held is unknown: it is read only for scopes with a floor or a cap.");
    }
    out.notes("What is in use includes memory that is not managed, such as the kernel's and the page cache.");
    out
}

/// Where memory was accessed when, and what of it moved.
pub fn heat(facts: &Facts) -> Section {
    let mut out = Section::new("heat", "Where memory was hot");
    let time = Time::new(facts.digest.span, facts.untimed.is_none());
    let areas = facts.digest.map.areas();
    if areas.is_empty() {
        out.says("Unknown: no evidence names an address.");
        return out;
    }
    let figure = |(number, (space, kind, area)): (usize, &(RegionSpace, Kind, &Area))| -> Figure {
        let whose = match space {
            RegionSpace::Virtual(pid) => format!("Process {}", pid.0),
            RegionSpace::Physical(node) => format!("Frames of node {}", node.0),
            RegionSpace::Target(target) => format!("Target {target}"),
        };
        let row = bytes(area.with_rows(ROWS_MAX).row_pages().saturating_mul(PAGE_SIZE));
        drawn_heat(
            &Heat {
                name: format!("heat-{}", number + 1),
                area,
                kind: *kind,
                title: format!("{whose}: heat by address and time, {row} a row"),
                is_virtual: !matches!(space, RegionSpace::Physical(_)),
            },
            time,
        )
    };
    out.draws(areas.iter().take(AREAS_DRAWN).enumerate().map(figure).collect());
    let faults = areas.iter().any(|(_, kind, _)| *kind == Kind::Accesses);
    if faults {
        out.notes(
            "Hint faults see lower tiers only: where a page was promoted, it grows silent, however hot it is. \
             Darker is hotter in light, brighter in dark; blank is unknown.",
        );
    }
    let more = areas.len().saturating_sub(AREAS_DRAWN) + facts.digest.map.left_out();
    if more > 0 {
        let least = if facts.digest.map.left_out() > 0 { " or more" } else { "" };
        out.notes(&format!(
            "Not drawn: {}{least} processes with less evidence, of which at most {AREAS_MAX} are kept apart.",
            count(more as u64)
        ));
    }
    out
}
