//! Addresses against time: how hot, and what moved there.

use thermocline_core::units::PAGE_SIZE;
use thermocline_trace::digest::map::{Cell, Row};
use thermocline_trace::digest::{Area, BINS, Kind};

use super::axis::{BELOW, LEFT, Legend, TOP, Time};
use super::svg::{Anchor, Figure, Svg, bar};
use crate::recorded::bytes;
use crate::verb::report::number::{count, short};

/// Rows of a figure, at most.
pub const ROWS_MAX: usize = 48;
/// Height of a row.
const HEIGHT: f64 = 5.6;
/// Steps of heat that are told apart.
const STEPS: usize = 5;
/// Intervals that say their values together.
const TOGETHER: usize = 8;
/// Rows that share the mark of an address.
const MARK_EVERY: usize = 6;
/// Space where addresses without evidence are left out.
const GAP: f64 = 3.0;

/// What is drawn.
#[derive(Debug)]
pub struct Heat<'a> {
    /// Its name among the figures.
    pub name: String,
    /// What is known.
    pub area: &'a Area,
    /// What its heat is.
    pub kind: Kind,
    /// Whose addresses these are.
    pub title: String,
    /// Whether they are addresses of a process, and not frames.
    pub is_virtual: bool,
}

/// The figure.
pub fn heat(drawn: &Heat<'_>, time: Time) -> Figure {
    let mut svg = Svg::default();
    let area = drawn.area.with_rows(ROWS_MAX);
    let rows: Vec<(u64, &Row)> = area.rows().collect();
    let limits = limits(&rows, drawn.kind);
    let mut legend = Legend::new();
    let unit = match drawn.kind {
        Kind::Accesses => "accesses seen",
        Kind::Checks => "% of checks found an access",
        Kind::Counts => "accesses as counted",
    };
    for (step, class) in ["h1", "h2", "h3", "h4", "h5"].into_iter().enumerate() {
        let Some(from) = limits.get(step) else { break };
        let words = match (step, drawn.kind) {
            (0, Kind::Checks) => "0".to_owned(),
            (0, _) => format!("> 0 {unit}"),
            (_, Kind::Checks) if step + 1 == limits.len() => format!("> {} {unit}", short(*from)),
            _ => format!("> {}", short(*from)),
        };
        legend.add(&mut svg, &words, |svg, (x, y)| svg.path(class, &bar((x, y - 5.0), 22.0, 10.0)));
    }
    let any = |is: &dyn Fn(&Cell) -> bool| rows.iter().any(|(_, row)| row.iter().any(is));
    if any(&|cell| cell.up > 0) {
        legend.add(&mut svg, "promoted", |svg, (x, y)| svg.path("rise", &rise((x + 8.0, y), 8.0)));
    }
    if any(&|cell| cell.down > 0) {
        legend.add(&mut svg, "demoted", |svg, (x, y)| svg.path("fall", &fall((x + 8.0, y), 8.0)));
    }
    if any(&|cell| cell.top > 0.0) {
        legend
            .add(&mut svg, "seen in DRAM", |svg, (x, y)| svg.path("top", &bar((x + 8.0, y - 1.0), 8.0, 2.0)));
    }
    let mut y = TOP + legend.more() + 6.0;
    let label = if drawn.is_virtual { "address" } else { "frame" };
    svg.text((LEFT - 3.0, y - 4.0), Anchor::End, "dim", label);
    let mut before = None;
    let mut paths: Vec<String> = vec![String::new(); STEPS];
    let [mut rises, mut falls, mut tops] = [const { String::new() }; 3];
    let mut places = Vec::new();
    for (number, (page, row)) in rows.iter().enumerate() {
        let follows = before.is_some_and(|before: u64| before.checked_add(area.row_pages()) == Some(*page));
        if number > 0 && !follows {
            y += GAP;
        }
        before = Some(*page);
        if number % MARK_EVERY == 0 || !follows && number + 1 < rows.len() && number % 2 == 0 {
            svg.text((LEFT - 3.0, y + HEIGHT), Anchor::End, "mono", &address(drawn, area.row_pages(), *page));
        }
        runs(row, drawn.kind, &limits, |step, from, until| {
            let width = Time::width() * (until - from) as f64;
            paths[step] += &bar((Time::at(from), y), width, HEIGHT);
        });
        for (bin, cell) in row.iter().enumerate() {
            let middle = (Time::at(bin) + Time::width() / 2.0, y + HEIGHT / 2.0);
            match (cell.up, cell.down) {
                (0, 0) => {}
                (up, down) if up >= down => rises += &rise(middle, 4.6),
                _ => falls += &fall(middle, 4.6),
            }
            if cell.top * 2.0 > cell.heat {
                tops += &bar((Time::at(bin), y + HEIGHT / 2.0 - 0.6), Time::width(), 1.2);
            }
        }
        places.push(y);
        y += HEIGHT;
    }
    for (step, path) in paths.iter().enumerate() {
        svg.path(&format!("h{}", step + 1), path);
    }
    svg.path("top", &tops);
    svg.path("rise", &rises);
    svg.path("fall", &falls);
    for ((page, row), y) in rows.iter().zip(&places) {
        for from in (0..BINS).step_by(TOGETHER) {
            let cells = &row[from..from + TOGETHER];
            if cells.iter().any(|cell| *cell != Cell::default()) {
                let words = words(drawn, &area, *page, cells, &time.words(from, from + TOGETHER));
                let width = Time::width() * TOGETHER as f64;
                svg.says((Time::at(from), *y), (width, HEIGHT), &words);
            }
        }
    }
    time.draw(&mut svg, y + 2.0);
    svg.finish(&drawn.name, &drawn.title, y + 2.0 + BELOW)
}

/// The heat of a cell, in the unit of the figure; `None` where nothing is known.
fn hot(cell: &Cell, kind: Kind) -> Option<f64> {
    match kind {
        Kind::Accesses | Kind::Counts => (cell.heat > 0.0).then(|| f64::from(cell.heat)),
        Kind::Checks => (cell.checked > 0.0).then(|| f64::from(cell.heat / cell.checked) * 100.0),
    }
}

/// Where steps of heat begin: 0, and then each twice as hot as the one before. A tenth of the cells
/// is in the hottest.
fn limits(rows: &[(u64, &Row)], kind: Kind) -> Vec<f64> {
    let mut all: Vec<f64> =
        rows.iter().flat_map(|(_, row)| row.iter()).filter_map(|c| hot(c, kind)).collect();
    all.retain(|heat| *heat > 0.0 && heat.is_finite());
    all.sort_by(f64::total_cmp);
    let mut out = vec![0.0];
    let (Some(hottest), Some(most)) = (all.get(all.len() * 9 / 10), all.last()) else { return out };
    let digits = 10f64.powf(hottest.log10().floor() - 1.0);
    let hottest = (hottest / digits).floor() * digits;
    let least = if kind == Kind::Checks { 0.0 } else { 1.0 };
    let steps = (0..STEPS as i32 - 1).rev().map(|halved| hottest / 2f64.powi(halved));
    out.extend(steps.filter(|limit| *limit >= least && limit < most));
    out
}

/// Passes each stretch of a row that has the same step of heat.
fn runs(row: &Row, kind: Kind, limits: &[f64], mut each: impl FnMut(usize, usize, usize)) {
    let step = |cell: &Cell| {
        let heat = hot(cell, kind)?;
        Some(limits.iter().rposition(|limit| heat > *limit).unwrap_or(0).min(STEPS - 1))
    };
    let mut from = 0;
    while from < row.len() {
        let here = step(&row[from]);
        let until = (from + 1..row.len()).find(|bin| step(&row[*bin]) != here).unwrap_or(row.len());
        if let Some(step) = here {
            each(step, from, until);
        }
        from = until;
    }
}

/// An address, or a frame, as short as its place: dots stand for digits that are 0 in all rows, and
/// for the first ones of what is too long.
fn address(drawn: &Heat<'_>, row_pages: u64, page: u64) -> String {
    let unit = if drawn.is_virtual { PAGE_SIZE } else { 1 };
    let zeros = row_pages.saturating_mul(unit).trailing_zeros() / 4;
    let text = format!("{:x}", page.saturating_mul(unit) >> (4 * zeros.min(15)));
    let after = if zeros > 0 { ".." } else { "" };
    match text.len() {
        0..=5 => format!("{text}{after}"),
        long => format!("..{}{after}", &text[long - 3..]),
    }
}

fn words(drawn: &Heat<'_>, area: &Area, page: u64, cells: &[Cell], when: &str) -> String {
    let mut sum = [0.0f64; 3];
    let [mut up, mut down] = [0u64; 2];
    for cell in cells {
        sum[0] += f64::from(cell.heat);
        sum[1] += f64::from(cell.checked);
        sum[2] += f64::from(cell.top);
        up += u64::from(cell.up);
        down += u64::from(cell.down);
    }
    let heat = match drawn.kind {
        Kind::Checks if sum[1] > 0.0 => {
            format!("{} % of checks found an access", short(100.0 * sum[0] / sum[1]))
        }
        Kind::Checks => "not checked".to_owned(),
        Kind::Accesses if sum[2] > 0.0 => {
            format!("{} accesses seen, {} of them in DRAM", short(sum[0]), short(sum[2]))
        }
        Kind::Accesses | Kind::Counts => format!("{} accesses", short(sum[0])),
    };
    let size = bytes(area.row_pages().saturating_mul(PAGE_SIZE));
    let place = match drawn.is_virtual {
        true => format!("{size} at 0x{:x}", page.saturating_mul(PAGE_SIZE)),
        false => format!("{size} at frame 0x{page:x}"),
    };
    let moves = match (up, down) {
        (0, 0) => String::new(),
        (up, 0) => format!("; {} pages promoted", count(up)),
        (0, down) => format!("; {} pages demoted", count(down)),
        (up, down) => format!("; {} pages promoted, {} demoted", count(up), count(down)),
    };
    format!("{place}, {when}: {heat}{moves}")
}

/// A triangle that points up, around a middle.
fn rise((x, y): (f64, f64), size: f64) -> String {
    let half = size / 2.0;
    format!("M{:.1} {:.1}h{size:.1}l-{half:.1} -{size:.1}z", x - half, y + half)
}

/// A triangle that points down.
fn fall((x, y): (f64, f64), size: f64) -> String {
    let half = size / 2.0;
    format!("M{:.1} {:.1}h{size:.1}l-{half:.1} {size:.1}z", x - half, y - half)
}

#[cfg(test)]
mod tests {
    use thermocline_core::access::RegionSpace;
    use thermocline_core::units::Pid;
    use thermocline_trace::digest::Map;

    use super::*;

    #[test]
    fn runs_are_whole_and_hotter_cells_have_higher_steps() {
        let mut map = Map::default();
        for n in 1..=50u64 {
            for _ in 0..n {
                map.access(RegionSpace::Virtual(Pid(1)), 7, n as usize, 1.0, false);
            }
        }
        let (_, kind, area) = map.areas()[0];
        let rows: Vec<(u64, &Row)> = area.rows().collect();
        let limits = limits(&rows, kind);
        assert!(limits == [0.0, 5.75, 11.5, 23.0, 46.0], "{limits:?}");
        let mut found = Vec::new();
        runs(rows[0].1, kind, &limits, |step, from, until| found.push((step, from, until)));
        assert!(found.is_sorted() && found[0].1 == 1, "{found:?}");
        assert_eq!(found.iter().map(|(_, from, until)| until - from).sum::<usize>(), 50);
    }

    #[test]
    fn of_equal_heat_there_is_one_step() {
        let mut map = Map::default();
        (0..20).for_each(|bin| map.access(RegionSpace::Virtual(Pid(1)), 7, bin, 1.0, false));
        let (_, kind, area) = map.areas()[0];
        assert_eq!(limits(&area.rows().collect::<Vec<_>>(), kind), [0.0]);
    }
}
