//! The tables as a picture: the difference of ours from each published figure, one line per row.
//! Readable without colours.

use std::fmt::Write as _;

use super::Row;

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
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, (AXIS.0 + AXIS.1) / 2.0, LINE, "middle", "difference from the published figure, %");
    for (at, heading) in [(PUBLISHED, "published"), (OURS, "ours"), (HOLDS, "holds")] {
        text(&mut out, at, LINE, "end", heading);
    }
    for percent in [-50.0, -25.0, 0.0, 25.0, 50.0] {
        let stroke = if percent == 0.0 { "#000" } else { "#ccc" };
        let at = x(percent);
        let top = 1.4 * LINE;
        let _ =
            writeln!(out, "<line x1=\"{at}\" x2=\"{at}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"{stroke}\"/>");
        text(&mut out, at, bottom + 14.0, "middle", &format!("{percent:+.0}").replace("+0", "0"));
    }
    let mut y = LINE;
    let mut table = "";
    for row in rows {
        if row.table != table {
            table = &row.table;
            y += LINE;
            let _ = writeln!(
                out,
                "<text x=\"10\" y=\"{}\" font-weight=\"bold\">{}</text>",
                y + 4.0,
                plain(table)
            );
        }
        y += LINE;
        line(&mut out, row, y);
    }
    legend(&mut out, height - 10.0);
    out + "</svg>\n"
}

fn line(out: &mut String, row: &Row, y: f64) {
    text(out, 20.0, y + 4.0, "start", &row.row);
    let digits = row.digits();
    text(out, PUBLISHED, y + 4.0, "end", &format!("{:.digits$}", row.published));
    text(out, OURS, y + 4.0, "end", &format!("{:.digits$}", row.ours));
    let holds = match (row.holds, row.fitted) {
        (true, false) => "yes",
        (true, true) => "fitted",
        (false, _) => "NO",
    };
    let weight = if row.holds { "normal" } else { "bold" };
    let _ = writeln!(
        out,
        "<text x=\"{HOLDS}\" y=\"{}\" text-anchor=\"end\" font-weight=\"{weight}\">{holds}</text>",
        y + 4.0
    );
    // A percentage of 0 is undefined.
    if row.published == 0.0 {
        return;
    }
    let percent = |value: f64| 100.0 * value / row.published.abs();
    let (tolerance, ours, sd) = (percent(row.tolerance), percent(row.difference), percent(row.sd));
    band(out, x(-tolerance), x(tolerance), y);
    spread(out, x(ours - sd), x(ours + sd), y);
    if ours.abs() <= REACH {
        dot(out, x(ours), y, row.holds);
    } else {
        // Beyond the axis: an arrow tip that points there.
        let (tip, base) = if ours > 0.0 { (8.0, -2.0) } else { (-8.0, 2.0) };
        let at = x(ours);
        let _ = writeln!(
            out,
            "<path d=\"M{} {y} L{} {} L{} {} Z\" fill=\"{}\" stroke=\"black\"/>",
            at + tip,
            at + base,
            y - 5.0,
            at + base,
            y + 5.0,
            fill(row.holds)
        );
    }
}

fn legend(out: &mut String, y: f64) {
    let middle = y - 4.0;
    band(out, 20.0, 50.0, middle);
    text(out, 56.0, y, "start", "tolerance");
    spread(out, 150.0, 180.0, middle);
    text(out, 186.0, y, "start", "standard deviation of one run, both ways");
    dot(out, 470.0, middle, true);
    text(out, 480.0, y, "start", "ours, holds");
    dot(out, 590.0, middle, false);
    text(out, 600.0, y, "start", "ours, does not hold");
}

/// The position of `percent` on the axis.
fn x(percent: f64) -> f64 {
    let part = (percent.clamp(-REACH, REACH) + REACH) / (2.0 * REACH);
    ((AXIS.0 + part * (AXIS.1 - AXIS.0)) * 10.0).round() / 10.0
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>", plain(words));
}

fn plain(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

fn band(out: &mut String, from: f64, to: f64, y: f64) {
    let (top, width) = (y - 5.0, to - from);
    let _ = writeln!(
        out,
        "<rect x=\"{from}\" y=\"{top}\" width=\"{width:.1}\" height=\"10\" fill=\"#ddd\" stroke=\"#aaa\"/>"
    );
}

fn spread(out: &mut String, from: f64, to: f64, y: f64) {
    let _ = writeln!(
        out,
        "<line x1=\"{from}\" x2=\"{to}\" y1=\"{y}\" y2=\"{y}\" stroke=\"black\" stroke-width=\"1.5\"/>"
    );
}

fn dot(out: &mut String, x: f64, y: f64, holds: bool) {
    let _ = writeln!(
        out,
        "<circle cx=\"{x}\" cy=\"{y}\" r=\"4\" fill=\"{}\" stroke=\"black\" stroke-width=\"1.5\"/>",
        fill(holds)
    );
}

fn fill(holds: bool) -> &'static str {
    if holds { "black" } else { "white" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, published: f64, ours: f64, tolerance: f64) -> Row {
        let difference = ours - published;
        let holds = difference.abs() <= tolerance;
        let (table, row) = ("a < b".to_owned(), name.to_owned());
        Row { table, row, published, ours, sd: 1.0, difference, tolerance, holds, fitted: false, seeds: 4 }
    }

    /// Every tag is closed, in order, and text has no mark-up of its own.
    fn well_formed(svg: &str) -> bool {
        let mut open: Vec<&str> = Vec::new();
        for part in svg.split('<').skip(1) {
            let Some((tag, words)) = part.split_once('>') else { return false };
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) if open.pop() != Some(name) => return false,
                (false, false) => open.push(name),
                _ => {}
            }
            let entities = words.matches("&amp;").count() + words.matches("&lt;").count();
            if words.matches('&').count() != entities || tag.matches('"').count() % 2 != 0 {
                return false;
            }
        }
        open.is_empty() && svg.starts_with("<svg ")
    }

    #[test]
    fn a_picture_is_well_formed_and_shows_every_row_without_colours() {
        let rows = [
            row("near & dear", 100.0, 101.0, 5.0),
            row("far", 100.0, 180.0, 5.0),
            row("below", -10.0, -40.0, 1.0),
            row("nothing", 0.0, 3.0, 4.0),
        ];
        let svg = svg(&rows);
        assert!(well_formed(&svg), "{svg}");
        assert!(!well_formed("<svg ><g></svg>") && !well_formed("<svg >a & b</svg>"));
        for said in ["near &amp; dear", ">a &lt; b<", ">180.000<", ">NO<", "<path "] {
            assert!(svg.contains(said), "{said} is missing in {svg}");
        }
        for colour in svg.split("#").skip(1) {
            let digits: Vec<char> = colour.chars().take(3).collect();
            assert!(digits.iter().all(|d| *d == digits[0]), "{digits:?} is no grey");
        }
    }
}
