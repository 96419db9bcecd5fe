//! What each size of DRAM would serve, as `plan` estimates it.

use thermocline_sim::picture::{Planned, Spot};

use super::axis::{BELOW, LEFT, Legend, RIGHT, Scale, TOP, upright};
use super::svg::{Anchor, Figure, Svg, bar, through};

/// Height of the plot.
const HEIGHT: f64 = 170.0;
/// Distance of the strokes where the evidence cannot tell.
const HATCH: f64 = 6.0;

/// What is drawn.
#[derive(Debug)]
pub struct Curve<'a> {
    /// Its name among the figures.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What is upright, with its unit.
    pub label: &'static str,
    /// The values.
    pub spots: &'a [Spot],
    /// What values are multiplied by.
    pub factor: f64,
    /// The least and the greatest value that there can be.
    pub ends: [f64; 2],
}

/// The figure.
pub fn curve(drawn: &Curve<'_>, planned: &Planned) -> Figure {
    let mut svg = Svg::default();
    let mut legend = Legend::new();
    legend.add(&mut svg, "likely", |svg, (x, y)| svg.line("wave", (x, y), (x + 22.0, y)));
    legend.add(&mut svg, "band, 90 %", |svg, (x, y)| svg.path("band", &bar((x, y - 5.0), 22.0, 10.0)));
    let is_known = |spot: &Spot| spot.low.is_some() && spot.high.is_some();
    if !drawn.spots.iter().all(is_known) {
        legend.add(&mut svg, "the evidence cannot tell", |svg, (x, y)| {
            (0..4).for_each(|n| {
                let x = x + HATCH * f64::from(n);
                svg.line("hatch", (x, y - 5.0), (x, y + 5.0));
            });
        });
    }
    let top = TOP + legend.more();
    let bottom = top + HEIGHT;
    let [least, most] = drawn.ends.map(|end| end * drawn.factor);
    let y = Scale::exact(least, most, 5.0, (bottom, top));
    upright(&mut svg, &y, drawn.label);
    let x = Scale::exact(0.0, 100.0, 5.0, (LEFT, RIGHT));
    let low = |spot: &Spot| y.at(spot.low.unwrap_or(drawn.ends[0]) * drawn.factor);
    let high = |spot: &Spot| y.at(spot.high.unwrap_or(drawn.ends[1]) * drawn.factor);
    let at = |spot: &Spot| x.at(spot.dram * 100.0);
    for pair in drawn.spots.windows(2) {
        let [from, to] = pair else { continue };
        let corners = [(at(from), low(from)), (at(to), low(to)), (at(to), high(to)), (at(from), high(from))];
        if is_known(from) && is_known(to) {
            svg.path("band", &format!("{}z", through(&corners)));
            continue;
        }
        let mut stroke = (at(from) / HATCH).ceil() * HATCH;
        while stroke < at(to) {
            let part = (stroke - at(from)) / (at(to) - at(from));
            let between = |a: f64, b: f64| a + part * (b - a);
            let ends = [between(low(from), low(to)), between(high(from), high(to))];
            svg.line("hatch", (stroke, ends[0]), (stroke, ends[1]));
            stroke += HATCH;
        }
    }
    let likely = |spot: &Spot| Some((at(spot), y.at(spot.likely? * drawn.factor)));
    for known in drawn.spots.split(|spot| spot.likely.is_none()) {
        svg.path("wave", &through(&known.iter().filter_map(likely).collect::<Vec<_>>()));
    }
    if let Some(enough) = planned.enough {
        let x = x.at(enough * 100.0);
        svg.line("limit", (x, top), (x, bottom));
    }
    let mut left = LEFT;
    for spot in drawn.spots {
        let number = |value: Option<f64>| value.map(|value| format!("{:.2}", value * drawn.factor));
        let known = |value: Option<f64>| number(value).unwrap_or("unknown".to_owned());
        let words = format!(
            "{:.0} {}: {} (from {} to {})",
            spot.dram * 100.0,
            planned.memory,
            known(spot.likely),
            known(spot.low),
            known(spot.high)
        );
        svg.says((left, top), ((at(spot) - left).max(0.0), HEIGHT), &words);
        left = at(spot);
    }
    svg.line("axis", (LEFT, bottom), (RIGHT, bottom));
    for (value, words) in x.marks() {
        svg.line("axis", (x.at(value), bottom), (x.at(value), bottom + 4.0));
        svg.text((x.at(value), bottom + 17.0), Anchor::Middle, "dim", &words);
    }
    let label = format!("DRAM, {}", planned.memory);
    svg.text((f64::midpoint(LEFT, RIGHT), bottom + 33.0), Anchor::Middle, "dim", &label);
    svg.finish(drawn.name, drawn.title, bottom + BELOW)
}
