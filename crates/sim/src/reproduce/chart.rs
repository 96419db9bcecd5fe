//! The tables as a picture: the difference of ours from each published figure, one line per row.
//! Readable without colours.

use super::Row;
use crate::picture::svg::{Anchor, Mark, Svg};

const WIDTH: f64 = 1000.0;
const LINE: f64 = 20.0;
/// Where the axis begins and ends.
const AXIS: (f64, f64) = (350.0, 750.0);
/// Right ends of the columns of numbers.
const PUBLISHED: f64 = 855.0;
const OURS: f64 = 940.0;
const HOLDS: f64 = 990.0;
/// The axis reaches as far as this to both sides, in percent of the published figure.
const REACH: f64 = 50.0;

/// An SVG of the rows.
pub fn svg(rows: &[Row]) -> String {
    let mut tables: Vec<&str> = rows.iter().map(|r| r.table.as_str()).collect();
    tables.dedup();
    // A line for the heading, one a table, and for the axis and the legend.
    let height = LINE * (rows.len() + tables.len()) as f64 + 4.0 * LINE + 10.0;
    let bottom = height - 2.0 * LINE - 10.0;
    let mut svg = Svg::new(WIDTH);
    let middle = (AXIS.0 + AXIS.1) / 2.0;
    svg.text((middle, LINE), Anchor::Middle, "difference from the published figure, %");
    for (at, heading) in [(PUBLISHED, "published"), (OURS, "ours"), (HOLDS, "holds")] {
        svg.text((at, LINE), Anchor::End, heading);
    }
    for percent in [-50.0, -25.0, 0.0, 25.0, 50.0] {
        let grey = if percent == 0.0 { 0 } else { 204 };
        let at = x(percent);
        svg.line((at, 1.4 * LINE), (at, bottom), grey, 1.0, "");
        svg.text((at, bottom + 14.0), Anchor::Middle, &format!("{percent:+.0}").replace("+0", "0"));
    }
    let mut y = LINE;
    let mut table = "";
    for row in rows {
        if row.table != table {
            table = &row.table;
            y += LINE;
            svg.bold((10.0, y + 4.0), Anchor::Start, table);
        }
        y += LINE;
        line(&mut svg, row, y);
    }
    legend(&mut svg, height - 10.0, rows);
    svg.finish(height)
}

fn line(svg: &mut Svg, row: &Row, y: f64) {
    svg.text((20.0, y + 4.0), Anchor::Start, &row.row);
    let digits = row.digits();
    svg.text((PUBLISHED, y + 4.0), Anchor::End, &format!("{:.digits$}", row.published));
    svg.text((OURS, y + 4.0), Anchor::End, &format!("{:.digits$}", row.ours));
    match (row.holds, row.fitted) {
        (true, false) => svg.text((HOLDS, y + 4.0), Anchor::End, "yes"),
        (true, true) => svg.text((HOLDS, y + 4.0), Anchor::End, "fitted"),
        (false, _) => svg.bold((HOLDS, y + 4.0), Anchor::End, "NO"),
    }
    // A percentage of 0 is undefined.
    if row.published == 0.0 {
        return;
    }
    let percent = |value: f64| 100.0 * value / row.published.abs();
    let (tolerance, ours, sd) = (percent(row.tolerance), percent(row.difference), percent(row.sd));
    band(svg, x(-tolerance), x(tolerance), y);
    if sd > 0.0 {
        svg.spread((x(ours - sd), y), (x(ours + sd), y));
    }
    if ours.abs() <= REACH {
        svg.mark((x(ours), y), Mark::Dot, row.holds);
    } else {
        // Beyond the axis: an arrow tip that points there.
        svg.tip((x(ours), y), ours > 0.0, row.holds);
    }
}

/// What the marks mean that are there.
fn legend(svg: &mut Svg, y: f64, rows: &[Row]) {
    let middle = y - 4.0;
    band(svg, 20.0, 50.0, middle);
    svg.text((56.0, y), Anchor::Start, "tolerance");
    svg.mark((150.0, middle), Mark::Dot, true);
    svg.text((160.0, y), Anchor::Start, "ours, holds");
    svg.mark((260.0, middle), Mark::Dot, false);
    svg.text((270.0, y), Anchor::Start, "ours, does not hold");
    if rows.iter().any(|row| row.sd > 0.0) {
        svg.spread((420.0, middle), (450.0, middle));
        svg.text((458.0, y), Anchor::Start, "standard deviation of one run, both ways");
    }
}

/// The position of `percent` on the axis.
fn x(percent: f64) -> f64 {
    let part = (percent.clamp(-REACH, REACH) + REACH) / (2.0 * REACH);
    AXIS.0 + part * (AXIS.1 - AXIS.0)
}

fn band(svg: &mut Svg, from: f64, to: f64, y: f64) {
    svg.rect((from, y - 5.0), (to - from, 10.0), 221, 170);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::svg::well_formed;

    fn row(name: &str, published: f64, ours: f64, tolerance: f64) -> Row {
        let difference = ours - published;
        let holds = difference.abs() <= tolerance;
        let (table, row) = ("a < b".to_owned(), name.to_owned());
        Row { table, row, published, ours, sd: 1.0, difference, tolerance, holds, fitted: false, seeds: 4 }
    }

    #[test]
    fn a_picture_is_well_formed_and_shows_every_row_without_colours() {
        let mut rows = [
            row("near & dear", 100.0, 101.0, 5.0),
            row("far", 100.0, 180.0, 5.0),
            row("below", -10.0, -40.0, 1.0),
            row("nothing", 0.0, 3.0, 4.0),
        ];
        let picture = svg(&rows);
        assert!(well_formed(&picture), "{picture}");
        for said in ["near &amp; dear", ">a &lt; b<", ">180.000<", "font-weight=\"bold\">NO<", "<polygon "] {
            assert!(picture.contains(said), "{said} is missing in {picture}");
        }
        assert!(picture.contains("standard deviation"));
        rows.iter_mut().for_each(|row| row.sd = 0.0);
        assert!(!svg(&rows).contains("standard deviation"), "one run has no spread");
    }
}
