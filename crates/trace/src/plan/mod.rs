//! How much DRAM a recorded program needs: for each size the share of accesses that the best
//! placement serves from it, and the slowdown that follows, with what is not known of them.
//!
//! The best placement has the pages with most accesses in DRAM from the start. With the share s of
//! the accesses served by DRAM, a program that waits for memory for the share m of its time while
//! all its memory is in DRAM takes `1 + m (1 - s) (slow / fast - 1)` times as long.

mod curve;

pub use curve::{Curve, Part, parts};

use serde::Serialize;

use curve::{judged, plain};

use crate::heat::{Extremes, Heat, Spectrum};

/// Drawings of memory that a band is made of.
const DRAWINGS: u64 = 40;
/// What a band leaves out at each end.
const TAIL: f64 = 0.05;
/// What a share may be off because rates are on a grid, in which neighbours differ by 15 %.
const ROUNDING: f64 = 0.005;
/// If so much of the accesses goes to pages whose rate is beyond the source's reach, what they take
/// is not known.
const CAPPED_MAX: f64 = 0.01;

/// Shares of the pages for which the extremes are computed; between them they are even.
const SIZES: [f64; 17] =
    [0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Question {
    /// Loss of time that is acceptable, against all memory in DRAM; a share.
    pub loss: f64,
    /// Latency of DRAM and of the slower memory, in ns.
    pub latency_ns: [f64; 2],
    /// The share of its time that the program waits for memory, while all is in DRAM.
    pub memory_bound: f64,
}

impl Question {
    /// Time against all memory in DRAM, if DRAM serves this share of the accesses.
    pub fn slowdown(&self, share: f64) -> f64 {
        let [fast, slow] = self.latency_ns;
        1.0 + self.memory_bound * (1.0 - share) * (slow / fast - 1.0)
    }

    /// The share of the accesses that DRAM has to serve for the loss; 0 if none has to be.
    pub fn share_needed(&self) -> f64 {
        let all = self.slowdown(0.0) - 1.0;
        if all <= self.loss { 0.0 } else { 1.0 - self.loss / all }
    }
}

/// A value, with a band that leaves out 5 % at each end; `None` is what the evidence cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Band {
    /// The lower end.
    pub low: Option<f64>,
    /// The value in the middle.
    pub likely: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

impl Band {
    fn map(self, turn: impl Fn(f64) -> f64) -> Band {
        Band { low: self.high.map(&turn), likely: self.likely.map(&turn), high: self.low.map(&turn) }
    }
}

/// The best placement on a size of DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// DRAM, in pages.
    pub dram_pages: u64,
    /// The share of the accesses that it serves.
    pub share: Band,
    /// Time against all memory in DRAM.
    pub slowdown: Band,
}

/// The heat of memory as far as it is known: what all answers are made of.
#[derive(Clone, Debug)]
pub struct Supply {
    /// Drawings of memory as it may have been.
    curves: Vec<Curve>,
    /// Pages chosen by one half of the evidence, and judged by the other.
    judged: Vec<Curve>,
    /// Pages chosen and judged by the same evidence, where that has an answer.
    plain: Option<Curve>,
    /// By which factor hot pages may be hotter than they are drawn.
    slowed: f64,
    /// Whether shares may be greater than they are drawn, by an amount that is not known.
    open: Option<Open>,
    /// Accesses a second at least and at most, where drawings do not tell.
    accesses: Option<[f64; 2]>,
}

/// Why shares may be greater than the evidence can tell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Open {
    /// Too many of the accesses go to pages whose rates are beyond the source's reach.
    Reach {
        /// Rates above this are alike, in accesses a second.
        per_s: f64,
        /// Pages with such rates.
        pages: f64,
    },
    /// Pages of a region are not told apart.
    Regions,
}

impl Supply {
    /// Draws memory as it may have been, several times.
    pub fn new(heat: &Heat) -> Supply {
        if let Some(supply) = heat.spectrum().and_then(Supply::of_spectrum) {
            return supply;
        }
        let evidence = heat.evidence();
        let mixed = evidence.by_page.then_some(evidence.check_s);
        let one = |number| Curve::new(parts(evidence, &heat.draw(number)), mixed);
        let curves: Vec<Curve> = (1..=DRAWINGS).map(one).collect();
        let beyond = evidence.reach().and_then(|reach| reach_of(&curves, reach));
        let open = beyond.or_else(|| evidence.by_page.then_some(Open::Regions));
        let judged = judged(heat).into_iter().map(|parts| Curve::ordered(parts, None)).collect();
        let slowed = evidence.slowed(quantile(curves.iter().map(Curve::accesses), 0.5));
        let plain = plain(evidence).map(|parts| Curve::new(parts, None));
        Supply { curves, judged, plain, slowed, open, accesses: None }
    }

    /// The same where the distribution of rates is known, and not which pages have them. `None` if
    /// it contradicts itself.
    fn of_spectrum(spectrum: &Spectrum) -> Option<Supply> {
        let reach = spectrum.reach();
        let part = |(pages, rate)| Part { pages, rate, capped: rate >= reach };
        let likely = Curve::new(spectrum.fitted().into_iter().map(part).collect(), None);
        let Extremes { shares, beyond, accesses } = spectrum.extremes(&SIZES)?;
        let extreme = |which: usize| {
            let through = SIZES.into_iter().zip(shares.iter().map(|shares| shares[which]));
            Curve::through(spectrum.pages(), through.chain([(1.0, 1.0)]))
        };
        let (least, most) = (extreme(0), extreme(1));
        let pages = likely.capped_pages();
        let open = (beyond > CAPPED_MAX).then_some(Open::Reach { per_s: reach, pages });
        let accesses = Some(accesses);
        Some(Supply {
            curves: vec![likely],
            judged: vec![least],
            plain: Some(most),
            slowed: 1.0,
            open,
            accesses,
        })
    }

    /// Why shares may be greater than the evidence can tell, if they may.
    pub fn open(&self) -> Option<Open> {
        self.open
    }

    /// Accesses a second to all of the memory: at least, about and at most.
    pub fn accesses(&self) -> Band {
        let of = |at| quantile(self.curves.iter().map(Curve::accesses), at);
        let known = |value| self.open.is_none().then_some(value);
        let [least, most] = self.accesses.unwrap_or([of(TAIL), of(1.0 - TAIL)]);
        Band { low: Some(least), likely: known(of(0.5)), high: known(most) }
    }

    /// The share that the best placement serves from so many pages of DRAM.
    pub fn share(&self, pages: u64) -> Band {
        let pages = pages as f64;
        let least = self.curves.iter().map(|curve| curve.least_share(pages));
        let even = |at| quantile(self.curves.iter().map(|curve| curve.share(pages)), at);
        let judged = self.judged.iter().map(|curve| curve.share(pages));
        let low = (judged.fold(quantile(least, TAIL), f64::min) - ROUNDING).max(0.0);
        let most = self.plain.as_ref().map_or(0.0, |curve| curve.share(pages));
        if self.curves.first().is_some_and(|curve| pages >= curve.pages()) {
            return Band { low: Some(1.0), likely: Some(1.0), high: Some(1.0) };
        }
        let high = (self.hotter(even(1.0 - TAIL).max(most)) + ROUNDING).min(1.0);
        match self.open {
            None => Band { low: Some(low), likely: Some(even(0.5)), high: Some(high) },
            Some(_) => Band { low: Some(low), likely: None, high: None },
        }
    }

    /// The share of pages that have this share as they are drawn, if only they are as hot as they
    /// may be.
    fn hotter(&self, share: f64) -> f64 {
        share * self.slowed / (1.0 + share * (self.slowed - 1.0))
    }

    /// The share that becomes this one if only its pages are as hot as they may be.
    fn colder(&self, share: f64) -> f64 {
        share / (self.slowed - share * (self.slowed - 1.0))
    }

    /// The best placement on so many pages of DRAM.
    pub fn point(&self, dram_pages: u64, question: &Question) -> Point {
        let share = self.share(dram_pages);
        Point { dram_pages, share, slowdown: share.map(|share| question.slowdown(share)) }
    }

    /// The pages of DRAM that keep the loss: the upper end of the band is enough as far as the
    /// evidence can tell.
    pub fn smallest(&self, question: &Question) -> Band {
        let share = question.share_needed();
        // If nothing has to be served from DRAM, it does not matter what is known.
        if share <= 0.0 {
            return Band { low: Some(0.0), likely: Some(0.0), high: Some(0.0) };
        }
        let (more, less) = ((share + ROUNDING).min(1.0), self.colder((share - ROUNDING).max(0.0)));
        let of = |share, least, at| quantile(self.curves.iter().map(|c| c.pages_for(share, least)), at);
        let judged = self.judged.iter().map(|curve| curve.pages_for(more, false));
        let enough = Some(judged.fold(of(more, true, 1.0 - TAIL), f64::max).ceil());
        let least = self.plain.as_ref().map_or(f64::INFINITY, |curve| curve.pages_for(less, false));
        match self.open {
            None => Band {
                low: Some(of(less, false, TAIL).min(least).floor()),
                likely: Some(of(share, false, 0.5).round()),
                high: enough,
            },
            Some(_) => Band { low: None, likely: None, high: enough },
        }
    }
}

/// Whether too much of what drawings have goes to pages beyond the reach.
fn reach_of(curves: &[Curve], per_s: f64) -> Option<Open> {
    let capped = quantile(curves.iter().map(Curve::capped), 0.5);
    let pages = quantile(curves.iter().map(Curve::capped_pages), 0.5);
    (capped > CAPPED_MAX).then_some(Open::Reach { per_s, pages })
}

/// The value below which this share of the values is; of an even number, the mean of two.
fn quantile(values: impl Iterator<Item = f64>, at: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let place = at * (values.len().max(1) - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    match (values.get(below), values.get(above)) {
        (Some(a), Some(b)) => a + (b - a) * place.fract(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question = Question { loss: 0.03, latency_ns: [100.0, 250.0], memory_bound: 0.4 };

    #[test]
    fn the_slowdown_is_the_stall_that_slower_memory_adds() {
        // 40 % of the time is stall; memory that is 2.5 times as slow adds 1.5 times that: 60 %.
        assert!((QUESTION.slowdown(0.0) - 1.6).abs() < 1e-12);
        assert!((QUESTION.slowdown(0.9) - 1.06).abs() < 1e-12);
        assert_eq!(QUESTION.slowdown(1.0), 1.0);
        // A loss of 3 % is a twentieth of these 60 %.
        assert!((QUESTION.share_needed() - 0.95).abs() < 1e-12);
        assert_eq!(Question { loss: 0.7, ..QUESTION }.share_needed(), 0.0);
        assert_eq!(Question { memory_bound: 0.0, ..QUESTION }.share_needed(), 0.0);
    }

    fn supply(open: Option<Open>) -> Supply {
        // Two drawings: 10 pages take 80 or 90 % of the accesses, 90 pages the rest.
        let curve = |hot: f64| {
            let part = |pages: f64, share: f64| Part { pages, rate: share / pages, capped: false };
            Curve::new(vec![part(10.0, hot), part(90.0, 1.0 - hot)], None)
        };
        let curves = vec![curve(0.8), curve(0.9)];
        Supply { curves, judged: Vec::new(), plain: None, slowed: 1.0, open, accesses: None }
    }

    #[test]
    fn a_point_has_the_band_of_the_drawings() {
        let point = supply(None).point(10, &QUESTION);
        let close = |value: Option<f64>, wanted: f64| {
            assert!((value.expect("it is known") - wanted).abs() < 1e-9, "{value:?} for {wanted}");
        };
        // 5 % and 95 % of the way from 0.8 to 0.9, and half a point for the grid.
        close(point.share.low, 0.8);
        close(point.share.likely, 0.85);
        close(point.share.high, 0.9);
        close(point.slowdown.likely, 1.0 + 0.6 * 0.15);
        close(point.slowdown.high, 1.0 + 0.6 * 0.2);
        let whole = supply(None).share(100);
        assert_eq!((whole.low, whole.high), (Some(1.0), Some(1.0)));
    }

    #[test]
    fn what_faults_cost_may_hide_how_hot_pages_are() {
        let slowed = Supply { slowed: 3.0, ..supply(None) };
        // Three times as hot, 80 % of the accesses are 2.4 of 2.6.
        assert!(
            (slowed.hotter(0.8) - 2.4 / 2.6).abs() < 1e-12 && (slowed.colder(2.4 / 2.6) - 0.8).abs() < 1e-12
        );
        let (plain, slowed) = (supply(None).share(10), slowed.share(10));
        assert_eq!((plain.low, plain.likely), (slowed.low, slowed.likely));
        assert!((slowed.high.expect("known") - (3.0 * 0.895 / 2.79 + 0.005)).abs() < 1e-9, "{slowed:?}");
    }

    #[test]
    fn what_cannot_be_told_is_no_number() {
        let reach = supply(Some(Open::Reach { per_s: 600.0, pages: 5.0 }));
        let point = reach.point(10, &QUESTION);
        assert!(point.share.low.is_some());
        assert_eq!((point.share.likely, point.share.high, point.slowdown.low), (None, None, None));
        assert!(reach.smallest(&QUESTION).high.is_some() && reach.smallest(&QUESTION).low.is_none());
    }

    #[test]
    fn the_smallest_dram_keeps_the_loss() {
        // 94.5 % of the accesses are those to 75.25 or 50.5 pages, 95.5 % those to 79.75 or 59.5;
        // of the two drawings, 5 % and 95 % of the way between them.
        let smallest = supply(None).smallest(&QUESTION);
        let (low, high) = (smallest.low.expect("known"), smallest.high.expect("known"));
        assert!((low - 51.7).abs() <= 1.0 && (high - 78.7).abs() <= 1.5, "{smallest:?}");
        let all = supply(None).smallest(&Question { loss: 0.9, ..QUESTION });
        assert_eq!((all.low, all.high), (Some(0.0), Some(0.0)));
    }
}
