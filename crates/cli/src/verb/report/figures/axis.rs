//! Scales with round marks, and the frame of a figure over time.

use thermocline_trace::digest::{BINS, Span};

use super::svg::{Anchor, Svg, WIDTH};
use crate::verb::report::number;

/// Left and right ends of the plot.
pub const LEFT: f64 = 52.0;
pub const RIGHT: f64 = WIDTH - 10.0;
/// Its upper end; above are the title and the legend.
pub const TOP: f64 = 50.0;
/// What is below the plot: the marks of time and their unit.
pub const BELOW: f64 = 38.0;
/// Width of an average letter of 12 pixels.
const LETTER: f64 = 7.0;

/// A scale that begins at 0 or below.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    step: f64,
    /// Pixels of the two ends.
    ends: (f64, f64),
}

impl Scale {
    /// A scale that holds `low` to `high` and 0, with about `marks` round marks.
    pub fn over(low: f64, high: f64, marks: f64, ends: (f64, f64)) -> Scale {
        let sound = |value: f64| if value.is_finite() { value } else { 0.0 };
        let (low, high) = (sound(low).min(0.0), sound(high).max(0.0));
        let high = if high - low > 0.0 { high } else { low + 1.0 };
        let step = round_step((high - low) / marks);
        Scale { low: (low / step).floor() * step, high: (high / step).ceil() * step, step, ends }
    }

    /// A scale from `low` to `high` itself, with round marks between.
    pub fn exact(low: f64, high: f64, marks: f64, ends: (f64, f64)) -> Scale {
        let high = if high - low > 0.0 && (high - low).is_finite() { high } else { low + 1.0 };
        Scale { low, high, step: round_step((high - low) / marks), ends }
    }

    /// The pixel of a value; values beyond the ends are at the ends.
    pub fn at(&self, value: f64) -> f64 {
        let part = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        self.ends.0 + part * (self.ends.1 - self.ends.0)
    }

    /// Its round marks with their text.
    pub fn marks(&self) -> Vec<(f64, String)> {
        let digits = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        let first = (self.low / self.step - 1e-6).ceil();
        let all = (0..20).map(|n| (first + f64::from(n)) * self.step);
        all.take_while(|value| *value <= self.high + self.step * 1e-6)
            .map(|value| (value, format!("{:.digits$}", if value.abs() < 1e-12 { 0.0 } else { value })))
            .collect()
    }
}

/// The least of 1, 2, 5 times a power of ten that is no less.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].map(|n| n * power).into_iter().find(|step| *step >= least * 0.999).unwrap_or(10.0 * power)
}

/// Time along a figure.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    seconds: Option<f64>,
}

impl Time {
    /// The time of a recording; of one whose times are no time, only an order.
    pub fn new(span: Span, timed: bool) -> Time {
        Time { seconds: timed.then(|| span.seconds()) }
    }

    /// The left end of an interval, in pixels.
    pub fn at(bin: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * bin as f64 / BINS as f64
    }

    /// Width of an interval, in pixels.
    pub fn width() -> f64 {
        (RIGHT - LEFT) / BINS as f64
    }

    /// Some intervals in words.
    pub fn words(&self, from: usize, until: usize) -> String {
        match self.seconds {
            None => format!("{} to {} % of the recording", from * 100 / BINS, until * 100 / BINS),
            Some(seconds) => {
                let (unit, size) = number::time_unit(seconds);
                let at = |bin: usize| number::short(seconds * bin as f64 / BINS as f64 / size);
                format!("{} to {} {unit}", at(from), at(until))
            }
        }
    }

    /// The marks of time below a plot that ends at `bottom`.
    pub fn draw(&self, svg: &mut Svg, bottom: f64) {
        let (label, most) = match self.seconds {
            None => ("order of the recording, %: its times are no time".to_owned(), 100.0),
            Some(seconds) => {
                let (unit, size) = number::time_unit(seconds);
                (format!("time since the beginning, {unit}"), seconds / size)
            }
        };
        let scale = Scale::exact(0.0, most, 6.0, (LEFT, RIGHT));
        svg.line("axis", (LEFT, bottom), (RIGHT, bottom));
        for (value, words) in scale.marks() {
            let x = scale.at(value);
            svg.line("axis", (x, bottom), (x, bottom + 4.0));
            svg.text((x, bottom + 17.0), Anchor::Middle, "dim", &words);
        }
        svg.text((f64::midpoint(LEFT, RIGHT), bottom + 33.0), Anchor::Middle, "dim", &label);
    }
}

/// The marks of an upright scale, with lines across the plot, and its unit.
pub fn upright(svg: &mut Svg, scale: &Scale, label: &str) {
    for (value, words) in scale.marks() {
        let y = scale.at(value);
        svg.line(if value == 0.0 { "axis" } else { "rule" }, (LEFT, y), (RIGHT, y));
        svg.text((LEFT - 5.0, y + 4.0), Anchor::End, "dim", &words);
    }
    svg.upright(f64::midpoint(scale.ends.0, scale.ends.1), label);
}

/// What stands for what, in a line below the title.
#[derive(Debug)]
pub struct Legend {
    x: f64,
    y: f64,
}

impl Legend {
    /// An empty one.
    pub fn new() -> Legend {
        Legend { x: 0.0, y: 35.0 }
    }

    /// Adds a word, for which `sample` draws 22 pixels from a place on.
    pub fn add(&mut self, svg: &mut Svg, words: &str, sample: impl FnOnce(&mut Svg, (f64, f64))) {
        let width = 28.0 + words.chars().count() as f64 * LETTER + 14.0;
        if self.x > 0.0 && self.x + width > WIDTH {
            (self.x, self.y) = (0.0, self.y + 17.0);
        }
        sample(svg, (self.x, self.y - 4.0));
        svg.text((self.x + 28.0, self.y), Anchor::Start, "dim", words);
        self.x += width;
    }

    /// How much lower than [`TOP`] a plot has to begin.
    pub fn more(&self) -> f64 {
        self.y - 35.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_scale_is_in_its_ends_and_has_few_marks(low in any::<f64>(), high in any::<f64>()) {
            let (low, high) = (low.clamp(-1e15, 0.0), high.clamp(0.0, 1e15));
            let scale = Scale::over(low, high, 5.0, (200.0, 50.0));
            prop_assert!([low, high, 0.0].into_iter().all(|v| (50.0..=200.0).contains(&scale.at(v))));
            let marks = scale.marks();
            prop_assert!((2..=13).contains(&marks.len()), "{:?}", marks);
        }
    }

    #[test]
    fn marks_are_round() {
        let texts = |low, high| -> Vec<String> {
            Scale::over(low, high, 5.0, (100.0, 0.0)).marks().into_iter().map(|(_, words)| words).collect()
        };
        assert_eq!(texts(0.0, 0.93), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(-30.0, 61.0), ["-40", "-20", "0", "20", "40", "60", "80"]);
        assert_eq!(texts(0.0, 0.0).len(), 6);
        let time = Scale::exact(0.0, 39.7, 6.0, (0.0, 397.0));
        assert_eq!(time.marks().last().map(|(value, _)| *value), Some(30.0));
        assert!((time.at(10.0) - 100.0).abs() < 1e-6);
    }
}
