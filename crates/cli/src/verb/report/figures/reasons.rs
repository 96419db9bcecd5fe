//! How often something kept a page from moving, by reason.

use super::axis::{LEFT, Scale};
use super::svg::{Anchor, Figure, Svg, WIDTH, bar};
use crate::verb::report::number::count;

/// Bars that are drawn.
pub const BARS_MAX: usize = 10;
/// Height of a bar with what is above it.
const HEIGHT: f64 = 30.0;

/// The figure: names with their numbers, the greatest first.
pub fn reasons(title: &str, label: &str, bars: &[(String, u64)]) -> Figure {
    let mut svg = Svg::default();
    let most = bars.iter().map(|(_, n)| *n).max().unwrap_or(0);
    let scale = Scale::exact(0.0, most as f64, 5.0, (0.0, WIDTH - LEFT - 60.0));
    let mut y = 26.0;
    for (name, n) in bars.iter().take(BARS_MAX) {
        svg.text((0.0, y + 12.0), Anchor::Start, "", name);
        let width = scale.at(*n as f64).max(1.0);
        svg.path("up", &bar((0.0, y + 17.0), width, 8.0));
        svg.text((width + 6.0, y + 25.0), Anchor::Start, "dim", &count(*n));
        y += HEIGHT;
    }
    svg.line("axis", (0.0, 30.0), (0.0, y));
    svg.text((0.0, y + 16.0), Anchor::Start, "dim", label);
    svg.finish("reasons", title, y + 24.0)
}
