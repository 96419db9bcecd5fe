//! Curves over a swept parameter: slowdown and share of the best static placement, a line a
//! manager.

use super::axis::Axis;
use super::svg::{Anchor, Mark, Svg};
use crate::stats::Summary;
use crate::units::{Bytes, Span};

const WIDTH: f64 = 1000.0;
/// Left and right ends of the two scales, in pixels.
const SIDES: [(f64, f64); 2] = [(60.0, 480.0), (570.0, 985.0)];
/// Height of a panel's scales.
const HEIGHT: f64 = 230.0;
/// Marks and dashes: what tells lines apart without colours.
const STYLES: [(Mark, bool, &str); 8] = [
    (Mark::Dot, true, ""),
    (Mark::Square, false, "7 3"),
    (Mark::Triangle, true, "2 3"),
    (Mark::Diamond, false, "9 3 2 3"),
    (Mark::Cross, true, "4 4"),
    (Mark::Dot, false, "12 3"),
    (Mark::Square, true, "2 5"),
    (Mark::Triangle, false, "5 2"),
];
/// Least distance of the texts of two values, per letter.
const LETTER: f64 = 7.5;

/// A manager's line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The manager.
    pub name: String,
    /// By the parameter's values: time relative to that with all memory in the top tier.
    pub slowdown: Vec<Option<Summary>>,
    /// By the parameter's values: accesses that the top tier served, as a share of the best static
    /// placement's.
    pub share: Vec<Option<Summary>>,
}

/// A scenario, with one value each of the other parameters.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The scenario, and the other parameters.
    pub title: String,
    /// The managers.
    pub curves: Vec<Curve>,
    /// By the parameter's values: the slowdown of the best static placement.
    pub best: Vec<Option<f64>>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The parameter along the scale.
    pub parameter: String,
    /// Its values, as text.
    pub values: Vec<String>,
    /// Runs behind each point.
    pub seeds: u64,
    /// The panels.
    pub panels: Vec<Panel>,
}

/// A picture with a row of two scales for each panel.
pub fn curves(sweep: &Sweep) -> String {
    let mut svg = Svg::new(WIDTH);
    let positions = positions(&sweep.values);
    let mut y = 8.0;
    for panel in &sweep.panels {
        svg.bold((10.0, y + 14.0), Anchor::Start, &panel.title);
        let means = |s: &Summary| [s.mean - s.sd, s.mean + s.sd];
        let best = panel.best.iter().flatten().copied();
        let slow = panel.curves.iter().flat_map(|c| &c.slowdown).flatten().flat_map(means);
        let slow: Vec<f64> = slow.chain(best).chain([1.0]).collect();
        let of_best = panel.curves.iter().flat_map(|c| &c.share).flatten().flat_map(means);
        let shares: Vec<f64> = of_best.map(|v| 100.0 * v).chain([100.0]).collect();
        let sides = [
            ("time, against all memory in DRAM (1 is as fast)", slow, 1.0),
            ("accesses served by DRAM, % of the best static placement's", shares, 100.0),
        ];
        for (side, (heading, values, factor)) in sides.into_iter().enumerate() {
            let x = Axis::through(positions.iter().copied(), (SIDES[side].0 + 20.0, SIDES[side].1 - 20.0));
            let top = y + 44.0;
            let axis = Axis::over(values.into_iter(), (top + HEIGHT, top));
            let frame = Frame { x: &x, y: &axis, sides: SIDES[side], top };
            frame.draw(&mut svg, sweep, &positions, heading, factor);
            let figures = |c: &Curve| -> Vec<Option<Summary>> {
                let of = if side == 0 { &c.slowdown } else { &c.share };
                let scaled = |s: Summary| Summary { mean: s.mean * factor, sd: s.sd * factor };
                of.iter().map(|s| s.map(scaled)).collect()
            };
            if side == 0 {
                let best: Vec<Option<Summary>> =
                    panel.best.iter().map(|b| b.map(|mean| Summary { mean, sd: 0.0 })).collect();
                for run in frame.runs(&best, &positions) {
                    svg.path(&run.iter().map(|(at, _)| *at).collect::<Vec<_>>(), 140, 3.0, "");
                }
            }
            for (i, curve) in panel.curves.iter().enumerate() {
                frame.curve(&mut svg, &figures(curve), &positions, STYLES[i % STYLES.len()]);
            }
        }
        y += HEIGHT + 100.0;
    }
    let end = legend(&mut svg, sweep, y);
    svg.finish(end)
}

/// A scale in both directions.
struct Frame<'a> {
    x: &'a Axis,
    y: &'a Axis,
    sides: (f64, f64),
    top: f64,
}

impl Frame<'_> {
    fn draw(&self, svg: &mut Svg, sweep: &Sweep, positions: &[f64], heading: &str, whole: f64) {
        let (left, right) = self.sides;
        let bottom = self.top + HEIGHT;
        let middle = (left + right) / 2.0;
        svg.text((middle, self.top - 12.0), Anchor::Middle, heading);
        for (value, text) in self.y.ticks() {
            let y = self.y.at(value);
            // As fast as can be, or as good.
            let grey = if (value - whole).abs() < 1e-9 { 0 } else { 215 };
            svg.line((left, y), (right, y), grey, 1.0, "");
            svg.text((left - 6.0, y + 4.0), Anchor::End, &text);
        }
        svg.line((left, bottom), (right, bottom), 0, 1.0, "");
        let mut last = f64::NEG_INFINITY;
        for (value, text) in positions.iter().zip(&sweep.values) {
            let x = self.x.at(*value);
            svg.line((x, bottom), (x, bottom + 5.0), 0, 1.0, "");
            let half = text.chars().count() as f64 * LETTER / 2.0;
            if x - half > last {
                svg.text((x, bottom + 18.0), Anchor::Middle, text);
                last = x + half;
            }
        }
        svg.text((middle, bottom + 35.0), Anchor::Middle, &sweep.parameter);
    }

    /// The stretches of a curve without a gap: position in pixels, and the value.
    fn runs(&self, values: &[Option<Summary>], positions: &[f64]) -> Vec<Vec<((f64, f64), Summary)>> {
        let mut points: Vec<(f64, Option<Summary>)> =
            positions.iter().copied().zip(values.iter().copied()).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let stretches = points.split(|(_, value)| value.is_none());
        let at = |(x, value): &(f64, Option<Summary>)| {
            value.map(|value| ((self.x.at(*x), self.y.at(value.mean)), value))
        };
        stretches.map(|s| s.iter().filter_map(at).collect()).filter(|s: &Vec<_>| !s.is_empty()).collect()
    }

    fn curve(
        &self,
        svg: &mut Svg,
        values: &[Option<Summary>],
        positions: &[f64],
        (mark, filled, dash): (Mark, bool, &str),
    ) {
        for run in self.runs(values, positions) {
            svg.path(&run.iter().map(|(at, _)| *at).collect::<Vec<_>>(), 0, 1.5, dash);
            for ((x, y), value) in run {
                if value.sd > 0.0 {
                    svg.spread((x, self.y.at(value.mean - value.sd)), (x, self.y.at(value.mean + value.sd)));
                }
                svg.mark((x, y), mark, filled);
            }
        }
    }
}

/// Draws what the lines mean, from `y` down; returns where it ends.
fn legend(svg: &mut Svg, sweep: &Sweep, y: f64) -> f64 {
    let mut names: Vec<&str> = Vec::new();
    for curve in sweep.panels.iter().flat_map(|p| &p.curves) {
        if !names.contains(&curve.name.as_str()) {
            names.push(&curve.name);
        }
    }
    let mut at = (20.0, y);
    let mut place = |words: &str| {
        let here = at;
        at.0 += 75.0 + words.chars().count() as f64 * LETTER;
        if at.0 > WIDTH - 150.0 {
            at = (20.0, at.1 + 22.0);
        }
        here
    };
    for (i, name) in names.iter().enumerate() {
        let (mark, filled, dash) = STYLES[i % STYLES.len()];
        let (x, y) = place(name);
        svg.line((x, y), (x + 40.0, y), 0, 1.5, dash);
        svg.mark((x + 20.0, y), mark, filled);
        svg.text((x + 48.0, y + 4.0), Anchor::Start, name);
    }
    let best = "best static placement, without faults or moves";
    let (x, y) = place(best);
    svg.line((x, y), (x + 40.0, y), 140, 3.0, "");
    svg.text((x + 48.0, y + 4.0), Anchor::Start, best);
    let runs = match sweep.seeds {
        1 => "each point is one run".to_owned(),
        n => format!(
            "each point is the mean of {n} runs; upright lines: standard deviation of one run, both ways"
        ),
    };
    svg.text((20.0, y + 26.0), Anchor::Start, &runs);
    y + 40.0
}

/// Where values are on a scale: by their size if all are numbers, sizes of memory or spans of time,
/// and one after the other if not.
fn positions(values: &[String]) -> Vec<f64> {
    let number = |text: &String| -> Option<f64> {
        let bytes = || text.parse::<Bytes>().ok().map(|b| b.0 as f64);
        let span = || text.parse::<Span>().ok().map(|s| s.0.0 as f64);
        text.parse().ok().filter(|v: &f64| v.is_finite()).or_else(bytes).or_else(span)
    };
    let all: Option<Vec<f64>> = values.iter().map(number).collect();
    all.unwrap_or_else(|| (0..values.len()).map(|i| i as f64).collect())
}

#[cfg(test)]
mod tests {
    use super::super::svg::well_formed;
    use super::*;

    #[test]
    fn positions_are_those_of_sizes_spans_numbers_or_words() {
        let of = |values: &[&str]| positions(&values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["1KiB", "2KiB", "1MiB"]), [1024.0, 2048.0, 1_048_576.0]);
        assert_eq!(of(&["1ms", "2us"]), [1e6, 2e3]);
        assert_eq!(of(&["4", "0.5"]), [4.0, 0.5]);
        assert_eq!(of(&["B", "4", "true"]), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_gap_is_not_bridged_and_every_manager_has_a_line_of_its_own() {
        let point = |mean| Some(Summary { mean, sd: 0.01 });
        let curve = |name: &str| Curve {
            name: name.to_owned(),
            slowdown: vec![point(1.2), None, point(1.1), point(1.05)],
            share: vec![point(0.5), None, point(0.7), point(0.9)],
        };
        let sweep = Sweep {
            parameter: "machine.node.0.memory".to_owned(),
            values: ["1GiB", "2GiB", "4GiB", "8GiB"].map(str::to_owned).to_vec(),
            seeds: 3,
            panels: vec![Panel {
                title: "redis".to_owned(),
                curves: vec![curve("none"), curve("numab2")],
                best: vec![Some(1.1), Some(1.05), Some(1.02), Some(1.0)],
            }],
        };
        let drawn = curves(&sweep);
        assert!(well_formed(&drawn), "{drawn}");
        // Two sides, two managers, two stretches each, and the best placement once.
        let lines =
            drawn.lines().filter(|l| l.starts_with("<polyline") && l.contains("stroke-width=\"1.5\""));
        let long =
            lines.filter(|l| l.matches(',').count() == 2 && l.contains("stroke-dasharray=\"7 3\"")).count();
        assert_eq!(long, 2 + 1, "the second manager's stretch of two points on each side, and the legend");
        for said in [">redis<", ">numab2<", ">4GiB<", ">machine.node.0.memory<", "mean of 3 runs"] {
            assert!(drawn.contains(said), "{said} is missing in {drawn}");
        }
        assert!(STYLES.iter().enumerate().all(|(i, s)| !STYLES[..i].contains(s)));
    }
}
