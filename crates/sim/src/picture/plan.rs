//! DRAM against what it serves and how fast the program is: a line with its band, hatched where the
//! evidence cannot tell.

use super::axis::Axis;
use super::svg::{Anchor, Mark, Svg};

const WIDTH: f64 = 1000.0;
/// Left and right ends of the two scales, in pixels.
const SIDES: [(f64, f64); 2] = [(60.0, 480.0), (570.0, 985.0)];
/// Height of the scales.
const HEIGHT: f64 = 250.0;
/// Distance of the strokes of a hatching.
const HATCH: f64 = 6.0;

/// A value on a size of DRAM, with its band; `None` is what the evidence cannot tell.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// DRAM, as a share of memory.
    pub dram: f64,
    /// The lower end of the band.
    pub low: Option<f64>,
    /// The likely value.
    pub likely: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Above the picture.
    pub title: String,
    /// Below it, a line each.
    pub notes: Vec<String>,
    /// What the scale of DRAM is in, as `% of 3.0 GiB`.
    pub memory: String,
    /// Share of the accesses that DRAM serves.
    pub share: Vec<Spot>,
    /// Time against all memory in DRAM.
    pub slowdown: Vec<Spot>,
    /// The greatest possible slowdown, and the acceptable one.
    pub slowest: f64,
    /// The acceptable slowdown.
    pub wanted: f64,
    /// DRAM that is enough for it, as a share of memory, if any is.
    pub enough: Option<f64>,
}

/// A picture with a scale for the share and one for the slowdown.
pub fn plan(planned: &Planned) -> String {
    let mut svg = Svg::new(WIDTH);
    svg.bold((10.0, 22.0), Anchor::Start, &planned.title);
    let shares = Side {
        heading: "accesses served by DRAM under the best placement, %",
        spots: &planned.share,
        factor: 100.0,
        ends: [0.0, 1.0],
        wanted: None,
    };
    let times = Side {
        heading: "time, against all memory in DRAM (1 is as fast)",
        spots: &planned.slowdown,
        factor: 1.0,
        ends: [1.0, planned.slowest],
        wanted: Some(planned.wanted),
    };
    for (side, at) in [shares, times].iter().zip(SIDES) {
        side.draw(&mut svg, at, planned);
    }
    let y = 72.0 + HEIGHT + 62.0;
    legend(&mut svg, y);
    for (number, note) in planned.notes.iter().enumerate() {
        svg.text((10.0, y + 28.0 + 17.0 * number as f64), Anchor::Start, note);
    }
    svg.finish(y + 38.0 + 17.0 * planned.notes.len() as f64)
}

struct Side<'a> {
    heading: &'a str,
    spots: &'a [Spot],
    factor: f64,
    /// The least and the greatest value that there can be.
    ends: [f64; 2],
    wanted: Option<f64>,
}

impl Side<'_> {
    fn draw(&self, svg: &mut Svg, (left, right): (f64, f64), planned: &Planned) {
        let top = 72.0;
        let bottom = top + HEIGHT;
        let middle = f64::midpoint(left, right);
        let x = Axis::over([0.0, 100.0].into_iter(), (left, right));
        let y = Axis::over(self.ends.into_iter().map(|v| v * self.factor), (bottom, top));
        let at = |dram: f64, value: f64| (x.at(dram * 100.0), y.at(value * self.factor));
        svg.text((middle, top - 14.0), Anchor::Middle, self.heading);
        for (value, text) in y.ticks() {
            svg.line((left, y.at(value)), (right, y.at(value)), 225, 1.0, "");
            svg.text((left - 6.0, y.at(value) + 4.0), Anchor::End, &text);
        }
        self.band(svg, &at);
        let likely: Vec<(f64, f64)> =
            self.spots.iter().filter_map(|spot| Some(at(spot.dram, spot.likely?))).collect();
        // Where the likely value is not known, the line would lead across what is not known.
        for run in runs(self.spots, |spot| spot.likely) {
            svg.path(&run.iter().map(|(dram, value)| at(*dram, *value)).collect::<Vec<_>>(), 0, 2.0, "");
        }
        for point in likely {
            svg.mark(point, Mark::Dot, true);
        }
        if let Some(wanted) = self.wanted {
            let height = y.at(wanted * self.factor);
            svg.line((left, height), (right, height), 0, 1.0, "6 4");
        }
        if let Some(enough) = planned.enough {
            let place = x.at(enough * 100.0);
            svg.line((place, top), (place, bottom), 0, 1.0, "2 3");
        }
        svg.line((left, bottom), (right, bottom), 0, 1.0, "");
        for (value, text) in x.ticks() {
            svg.line((x.at(value), bottom), (x.at(value), bottom + 5.0), 0, 1.0, "");
            svg.text((x.at(value), bottom + 18.0), Anchor::Middle, &text);
        }
        svg.text((middle, bottom + 35.0), Anchor::Middle, &format!("DRAM, {}", planned.memory));
    }

    /// The band in grey, and hatched where one of its ends is not known.
    fn band(&self, svg: &mut Svg, at: &dyn Fn(f64, f64) -> (f64, f64)) {
        for pair in self.spots.windows(2) {
            let [from, to] = pair else { continue };
            let known = [from.low, from.high, to.low, to.high].iter().all(Option::is_some);
            let low = |spot: &Spot| spot.low.unwrap_or(self.ends[0]);
            let high = |spot: &Spot| spot.high.unwrap_or(self.ends[1]);
            let corners = [
                at(from.dram, low(from)),
                at(to.dram, low(to)),
                at(to.dram, high(to)),
                at(from.dram, high(from)),
            ];
            if known {
                svg.area(&corners, 205);
                continue;
            }
            let (start, end) = (corners[0].0, corners[1].0);
            let mut x = (start / HATCH).ceil() * HATCH;
            while x < end {
                let part = (x - start) / (end - start);
                let between = |a: f64, b: f64| a + part * (b - a);
                let (bottom, top) =
                    (between(corners[0].1, corners[1].1), between(corners[3].1, corners[2].1));
                svg.line((x, bottom), (x, top), 150, 1.0, "");
                x += HATCH;
            }
            // The end that is known is a line of its own.
            if from.low.is_some() && to.low.is_some() {
                svg.line(corners[0], corners[1], 0, 1.0, "");
            }
            if from.high.is_some() && to.high.is_some() {
                svg.line(corners[3], corners[2], 0, 1.0, "");
            }
        }
    }
}

/// The stretches of values without a gap.
fn runs(spots: &[Spot], value: impl Fn(&Spot) -> Option<f64>) -> Vec<Vec<(f64, f64)>> {
    let known: Vec<Option<(f64, f64)>> =
        spots.iter().map(|spot| value(spot).map(|value| (spot.dram, value))).collect();
    known.split(Option::is_none).map(|run| run.iter().flatten().copied().collect()).collect()
}

fn legend(svg: &mut Svg, y: f64) {
    svg.line((12.0, y), (40.0, y), 0, 2.0, "");
    svg.mark((26.0, y), Mark::Dot, true);
    svg.text((48.0, y + 4.0), Anchor::Start, "likely");
    svg.area(&[(110.0, y - 6.0), (140.0, y - 6.0), (140.0, y + 6.0), (110.0, y + 6.0)], 205);
    svg.text((148.0, y + 4.0), Anchor::Start, "band of the evidence (90 %)");
    for stroke in 0..6 {
        let x = 335.0 + HATCH * f64::from(stroke);
        svg.line((x, y - 6.0), (x, y + 6.0), 150, 1.0, "");
    }
    svg.text((374.0, y + 4.0), Anchor::Start, "the evidence cannot tell");
    svg.line((540.0, y), (570.0, y), 0, 1.0, "6 4");
    svg.text((578.0, y + 4.0), Anchor::Start, "acceptable");
    svg.line((670.0, y - 7.0), (670.0, y + 7.0), 0, 1.0, "2 3");
    svg.text((678.0, y + 4.0), Anchor::Start, "DRAM that is enough by all the evidence");
}

#[cfg(test)]
mod tests {
    use super::super::svg::well_formed;
    use super::*;

    fn spot(dram: f64, low: Option<f64>, likely: Option<f64>, high: Option<f64>) -> Spot {
        Spot { dram, low, likely, high }
    }

    #[test]
    fn what_is_not_known_is_hatched() {
        let known =
            vec![spot(0.5, Some(0.7), Some(0.8), Some(0.9)), spot(1.0, Some(1.0), Some(1.0), Some(1.0))];
        let mut planned = Planned {
            title: "a & b".to_owned(),
            notes: vec!["a note".to_owned()],
            memory: "% of 3.0 GiB".to_owned(),
            share: known.clone(),
            slowdown: known.iter().map(|s| spot(s.dram, Some(1.0), Some(1.1), Some(1.2))).collect(),
            slowest: 1.4,
            wanted: 1.05,
            enough: Some(0.6),
        };
        let strokes = |svg: &str| svg.matches("stroke=\"#969696\"").count();
        let drawn = plan(&planned);
        assert!(well_formed(&drawn), "{drawn}");
        for said in [">a &amp; b<", ">a note<", ">DRAM, % of 3.0 GiB<", "cannot tell"] {
            assert!(drawn.contains(said), "{said} is missing in {drawn}");
        }
        let legend = strokes(&drawn);
        planned.share[0] = spot(0.5, Some(0.7), None, None);
        let hatched = plan(&planned);
        assert!(well_formed(&hatched) && strokes(&hatched) > legend + 20, "{hatched}");
        assert_eq!(drawn.matches("<circle").count(), hatched.matches("<circle").count() + 1);
    }
}
