//! Memory held over time, a line for each node or scope.

use thermocline_trace::digest::{BINS, Level};

use super::axis::{BELOW, LEFT, Legend, RIGHT, Scale, TOP, Time, upright};
use super::svg::{Figure, Svg, through};
use crate::recorded::bytes;
use crate::verb::report::html::cut;
use crate::verb::report::number::memory_unit;

/// Height of the plot.
const HEIGHT: f64 = 150.0;
/// What tells lines apart, without colours too.
const WAVES: [&str; 6] = ["wave", "wave1", "wave2", "wave3", "wave4", "wave5"];
/// Lines of a figure.
pub const LINES_MAX: usize = WAVES.len();
/// A limit is drawn if it is at most so many times what was held.
const LIMIT_NEAR: u64 = 4;
/// Letters of a name.
const NAME_MAX: usize = 28;

/// What a line shows.
#[derive(Debug)]
pub struct Line<'a> {
    /// The node's or the scope's name.
    pub name: String,
    /// Pages.
    pub level: &'a Level,
    /// What it cannot exceed, in pages, if that is known.
    pub limit: Option<u64>,
}

/// A figure of at most [`LINES_MAX`] lines.
pub fn held((name, title): (&str, &str), lines: &[Line<'_>], page_bytes: u64, time: Time) -> Figure {
    let mut svg = Svg::default();
    let lines = &lines[..lines.len().min(LINES_MAX)];
    let values: Vec<Vec<Option<u64>>> = lines.iter().map(|line| line.level.values()).collect();
    let held = values.iter().flatten().copied().flatten().max().unwrap_or(0);
    // Of what is nearly empty the limit would hide how full it is.
    let near = |limit: &u64| *limit <= held.saturating_mul(LIMIT_NEAR);
    let limits: Vec<u64> = lines.iter().filter_map(|line| line.limit).filter(near).collect();
    let most = limits.iter().copied().fold(held, u64::max) as f64;
    let (unit, size) = memory_unit(most * page_bytes as f64);
    let amount = |pages: u64| pages as f64 * page_bytes as f64 / size;
    let mut legend = Legend::new();
    for (line, class) in lines.iter().zip(WAVES) {
        let sample = |svg: &mut Svg, (x, y)| svg.line(class, (x, y), (x + 22.0, y));
        legend.add(&mut svg, &cut(&line.name, NAME_MAX), sample);
    }
    if !limits.is_empty() {
        legend.add(&mut svg, "all there is", |svg, (x, y)| svg.line("limit", (x, y), (x + 22.0, y)));
    }
    let top = TOP + legend.more();
    let bottom = top + HEIGHT;
    let scale = Scale::over(0.0, amount(most as u64), 5.0, (bottom, top));
    upright(&mut svg, &scale, unit);
    for limit in limits {
        let y = scale.at(amount(limit));
        svg.line("limit", (LEFT, y), (RIGHT, y));
    }
    for (values, class) in values.iter().zip(WAVES) {
        let at = |bin: usize| Time::at(bin) + Time::width() / 2.0;
        let points = values.iter().enumerate();
        let known: Vec<(f64, f64)> =
            points.filter_map(|(bin, pages)| Some((at(bin), scale.at(amount((*pages)?))))).collect();
        svg.path(class, &through(&known));
    }
    for bin in 0..BINS {
        let of = |(line, values): (&Line<'_>, &Vec<Option<u64>>)| {
            let known = values[bin].map(|pages| bytes(pages.saturating_mul(page_bytes)));
            format!("{} {}", cut(&line.name, NAME_MAX), known.unwrap_or("unknown".to_owned()))
        };
        let all: Vec<String> = lines.iter().zip(&values).map(of).collect();
        let words = format!("{}: {}", time.words(bin, bin + 1), all.join(", "));
        svg.says((Time::at(bin), top), (Time::width(), HEIGHT), &words);
    }
    time.draw(&mut svg, bottom);
    svg.finish(name, title, bottom + BELOW)
}
