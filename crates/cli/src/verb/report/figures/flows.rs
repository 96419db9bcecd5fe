//! What was promoted, what was demoted, and what came back, by interval.

use thermocline_trace::digest::{BINS, Bins};

use super::axis::{BELOW, LEFT, Legend, RIGHT, Scale, TOP, Time, upright};
use super::svg::{Anchor, Figure, Svg, bar, through};
use crate::recorded::bytes;
use crate::verb::report::number::memory_unit;

/// Height of the plot.
const HEIGHT: f64 = 170.0;

/// What is drawn: base pages by interval.
#[derive(Debug)]
pub struct Flows<'a> {
    /// Promoted.
    pub promoted: &'a Bins,
    /// Demoted, by moves and by demands.
    pub demoted: &'a Bins,
    /// Promoted and soon accessed on a lower tier; `None` if that is not known.
    pub came_back: Option<&'a Bins>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Seconds of an interval; `None` if times are no time.
    pub bin_s: Option<f64>,
}

/// The figure.
pub fn flows(flows: &Flows<'_>, time: Time) -> Figure {
    let mut svg = Svg::default();
    let per = flows.page_bytes as f64 / flows.bin_s.filter(|s| *s > 0.0).unwrap_or(1.0);
    let rates = |bins: &Bins| -> Vec<f64> { bins.counts().iter().map(|n| *n as f64 * per).collect() };
    let (up, down) = (rates(flows.promoted), rates(flows.demoted));
    let back = flows.came_back.map(rates);
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let high = most(&up).max(back.as_deref().map_or(0.0, most));
    let (unit, size) = memory_unit(high.max(most(&down)));
    let mut legend = Legend::new();
    legend.add(&mut svg, "promoted", |svg, (x, y)| svg.path("up", &bar((x, y - 5.0), 22.0, 10.0)));
    legend.add(&mut svg, "demoted (downwards)", |svg, (x, y)| {
        svg.path("down", &bar((x, y - 5.0), 22.0, 10.0));
    });
    if back.is_some() {
        legend.add(&mut svg, "came back", |svg, (x, y)| svg.line("back", (x, y), (x + 22.0, y)));
    }
    let top = TOP + legend.more();
    let bottom = top + HEIGHT;
    let scale = Scale::over(-most(&down) / size, high / size, 5.0, (bottom, top));
    let label =
        if flows.bin_s.is_some() { format!("{unit} a second") } else { format!("{unit} an interval") };
    upright(&mut svg, &scale, &label);
    let zero = scale.at(0.0);
    let bars = |values: &[f64], sign: f64| -> String {
        let drawn = values.iter().enumerate().filter(|(_, value)| **value > 0.0);
        drawn
            .map(|(bin, value)| {
                let y = scale.at(sign * value / size);
                bar((Time::at(bin), y.min(zero)), Time::width(), (y - zero).abs().max(0.6))
            })
            .collect()
    };
    svg.path("up", &bars(&up, 1.0));
    svg.path("down", &bars(&down, -1.0));
    if let Some(back) = &back {
        let at = |(bin, value): (usize, &f64)| (Time::at(bin) + Time::width() / 2.0, scale.at(value / size));
        svg.path("back", &through(&back.iter().enumerate().map(at).collect::<Vec<_>>()));
    }
    svg.line("axis", (LEFT, zero), (RIGHT, zero));
    if flows.promoted.sum() + flows.demoted.sum() == 0 {
        svg.text((f64::midpoint(LEFT, RIGHT), top + 30.0), Anchor::Middle, "dim", "nothing moved");
    }
    let pages = |bins: &Bins, bin: usize| bytes(bins.counts()[bin].saturating_mul(flows.page_bytes));
    for bin in 0..BINS {
        let back = flows.came_back.map_or("unknown".to_owned(), |back| pages(back, bin));
        let words = format!(
            "{}: promoted {}, demoted {}, came back {back}",
            time.words(bin, bin + 1),
            pages(flows.promoted, bin),
            pages(flows.demoted, bin)
        );
        svg.says((Time::at(bin), top), (Time::width(), HEIGHT), &words);
    }
    time.draw(&mut svg, bottom);
    svg.finish("flows", "Pages promoted and demoted", bottom + BELOW)
}
