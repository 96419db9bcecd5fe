//! Scales.

/// A scale from values to pixels.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    /// Pixels of the two ends; the first may be the greater.
    pixels: (f64, f64),
    logarithmic: bool,
}

/// Of a logarithmic scale the greatest value is at least so many times the least.
const LOGARITHMIC: f64 = 8.0;

impl Axis {
    /// A scale over the values, with round ends.
    pub fn over(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Axis {
        let (low, high) = ends(values);
        let step = step(high - low);
        Axis {
            from: (low / step).floor() * step,
            to: (high / step).ceil() * step,
            pixels,
            logarithmic: false,
        }
    }

    /// A scale that ends at the least and the greatest value; logarithmic if these are far apart.
    pub fn through(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Axis {
        let (from, to) = ends(values);
        Axis { from, to, pixels, logarithmic: from > 0.0 && to / from >= LOGARITHMIC }
    }

    /// The pixel of a value; values beyond the ends are at the ends.
    pub fn at(&self, value: f64) -> f64 {
        let scaled = |v: f64| if self.logarithmic { v.ln() } else { v };
        let value = value.clamp(self.from, self.to);
        let part = (scaled(value) - scaled(self.from)) / (scaled(self.to) - scaled(self.from));
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// Round values along a scale with round ends, with their text.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let step = step(self.to - self.from);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let n = ((self.to - self.from) / step).round() as usize;
        (0..=n).map(|i| self.from + step * i as f64).map(|v| (v, format!("{v:.digits$}"))).collect()
    }
}

/// The least and the greatest value; apart, whatever the values are.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    match high - low {
        d if d > 0.0 => (low, high),
        0.0 => (low - 0.01 * low.abs().max(1.0), high + 0.01 * high.abs().max(1.0)),
        _ => (0.0, 1.0),
    }
}

/// A round step of which four to eight make the length.
fn step(length: f64) -> f64 {
    let power = 10f64.powf((length / 8.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| length / s <= 8.0).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_ticks_are_round() {
        let axis = Axis::over([1.0, 1.176].into_iter(), (100.0, 500.0));
        let ticks = axis.ticks();
        let texts: Vec<&str> = ticks.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(texts, ["1.00", "1.05", "1.10", "1.15", "1.20"]);
        assert_eq!((axis.at(1.0), axis.at(1.1), axis.at(9.0)), (100.0, 300.0, 500.0));
    }

    #[test]
    fn few_values_and_equal_ones_have_a_scale_too() {
        for values in [vec![], vec![3.0], vec![0.0, 0.0], vec![f64::NAN]] {
            let axis = Axis::over(values.iter().copied(), (0.0, 10.0));
            assert!(axis.ticks().len() > 1 && axis.at(3.0).is_finite(), "{values:?}");
        }
    }

    #[test]
    fn what_is_far_apart_is_logarithmic() {
        let axis = Axis::through([1.0, 100.0].into_iter(), (0.0, 10.0));
        assert!((axis.at(10.0) - 5.0).abs() < 1e-9);
        assert!((Axis::through([1.0, 3.0].into_iter(), (0.0, 10.0)).at(2.0) - 5.0).abs() < 1e-9);
    }
}
