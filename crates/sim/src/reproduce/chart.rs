//! The tables as a picture: ours as a part of the published figure, one line a row. Readable without colours.

use std::fmt::Write as _;

use super::Row;

const WIDTH: f64 = 900.0;
const LINE: f64 = 20.0;
const LABELS: f64 = 420.0;
/// Ratios that the axis reaches.
const AXIS: std::ops::Range<f64> = 0.5..1.5;

/// An SVG of the rows. The band is the tolerance, the dot ours (hollow where it does not hold), the line one standard deviation.
pub fn svg(rows: &[Row]) -> String {
    let height = LINE * (rows.len() as f64 + 4.0);
    let x = |ratio: f64| {
        let part = (ratio.clamp(AXIS.start, AXIS.end) - AXIS.start) / (AXIS.end - AXIS.start);
        LABELS + part * (WIDTH - LABELS - 20.0)
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"16\">ours as a part of the published figure; band: tolerance; bar: standard deviation of a run; hollow: does not hold</text>\n"
    );
    for tick in 0..=4 {
        let ratio = AXIS.start + f64::from(tick) * 0.25;
        let (at, bottom) = (x(ratio), height - LINE);
        let _ = writeln!(
            out,
            "<line x1=\"{at}\" x2=\"{at}\" y1=\"24\" y2=\"{bottom}\" stroke=\"#{}\"/>\
             <text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{ratio:.2}</text>",
            if tick == 2 { "000" } else { "ccc" },
            height - 6.0
        );
    }
    for (i, row) in rows.iter().enumerate() {
        let y = LINE * (i as f64 + 2.0);
        let label = format!("{} - {}", row.table, row.row).replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(out, "<text x=\"10\" y=\"{}\">{label}</text>", y + 4.0);
        if row.published == 0.0 {
            continue;
        }
        let scale = row.published.abs();
        let ratio = 1.0 + row.difference / scale;
        let band = (x(1.0 - row.tolerance / scale), x(1.0 + row.tolerance / scale));
        let sd = (x(ratio - row.sd / scale), x(ratio + row.sd / scale));
        let fill = if row.holds { "black" } else { "white" };
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"10\" fill=\"#ddd\"/>\
             <line x1=\"{}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"black\"/>\
             <circle cx=\"{}\" cy=\"{y}\" r=\"4\" fill=\"{fill}\" stroke=\"black\"/>",
            band.0,
            y - 5.0,
            band.1 - band.0,
            sd.0,
            sd.1,
            x(ratio)
        );
    }
    out + "</svg>\n"
}
