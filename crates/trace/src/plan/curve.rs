//! How many accesses the hottest pages take.

use crate::heat::{Count, Drawn, Evidence, Heat, Unit};

/// Pages that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// How many there are.
    pub pages: f64,
    /// Accesses a second to each of them.
    pub rate: f64,
    /// Whether the rate is one above which rates are alike to the source.
    pub capped: bool,
}

/// The parts of a drawing.
pub fn parts(evidence: &Evidence, drawn: &Drawn) -> Vec<Part> {
    let unit = |(number, unit): (usize, &Unit)| {
        let pages = f64::from(unit.pages);
        Part { pages, rate: drawn.mean(number, evidence.epochs) / pages, capped: drawn.capped[number] }
    };
    let silent = drawn.silent.iter().map(|(pages, rate)| Part { pages: *pages, rate: *rate, capped: false });
    evidence.units.iter().enumerate().map(unit).chain(silent).collect()
}

/// What one half of the evidence says of pages that were chosen by the other: parts in the order of
/// the one, with the rates of the other; both ways. No placement that is better than the best is
/// chosen so, and none is judged by what it was chosen for.
pub fn judged(heat: &Heat) -> Vec<Vec<Part>> {
    let evidence = heat.evidence();
    let [first, second] = heat.halves();
    let one = |choose: &[f64], judge: &[f64]| {
        let pages = evidence.units.iter().map(|unit| f64::from(unit.pages));
        let units = pages.clone().map(|_| 1.0);
        let silent = evidence.silent_pages as f64;
        let (pages, whole) = (pages.chain([silent]), units.chain([silent]));
        let mut parts: Vec<(f64, Part)> = pages
            .zip(whole)
            .zip(choose.iter().zip(judge))
            .filter(|((pages, _), _)| *pages > 0.0)
            .map(|((pages, whole), (choose, judge))| {
                let a_page = whole / pages;
                (choose * a_page, Part { pages, rate: judge * a_page, capped: false })
            })
            .collect();
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        parts.into_iter().map(|(_, part)| part).collect()
    };
    vec![one(first, second), one(second, first)]
}

/// Parts with the rates under which the evidence of each is most probable: chosen and judged by the
/// same evidence, so that chance is taken for heat. `None` where a rate has no bounds.
pub fn plain(evidence: &Evidence) -> Option<Vec<Part>> {
    let unit = |(number, unit): (usize, &Unit)| {
        let pages = f64::from(unit.pages);
        let counts = evidence.of(number);
        let sum = counts.iter().fold(Count::default(), |sum, count| sum.plus(*count));
        let rate = sum.rate(evidence.check_s).or(evidence.reach())?;
        let rate = if evidence.by_page { rate } else { rate / pages };
        Some(Part { pages, rate, capped: false })
    };
    let silent = Part { pages: evidence.silent_pages as f64, rate: 0.0, capped: false };
    evidence.units.iter().enumerate().map(unit).chain([Some(silent)]).collect()
}

/// The share of the accesses that go to the hottest pages, by how many these are: what the best
/// placement serves from so much DRAM.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Parts, those first that are chosen first.
    parts: Vec<Part>,
    /// Pages and accesses of the parts before each, and of all.
    before: Vec<(f64, f64)>,
    /// The longest time in which accesses are found only once, in seconds, where a part's pages may
    /// have different rates; `None` where they do not.
    check_s: Option<f64>,
}

impl Curve {
    /// The curve of these parts. `mixed`: the pages of a part may have different rates, of which a
    /// check that looks back so many seconds sees the mean of the chances to be found.
    pub fn new(mut parts: Vec<Part>, mixed: Option<f64>) -> Curve {
        parts.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        Curve::ordered(parts, mixed)
    }

    /// The same for parts that are in another order.
    pub fn ordered(parts: Vec<Part>, mixed: Option<f64>) -> Curve {
        let mut before = vec![(0.0, 0.0)];
        let (mut pages, mut accesses) = (0.0, 0.0);
        for part in &parts {
            pages += part.pages;
            accesses += part.pages * part.rate;
            before.push((pages, accesses));
        }
        Curve { parts, before, check_s: mixed }
    }

    /// The curve through these shares of the pages and of the accesses, both ascending to 1.
    pub fn through(pages: f64, shares: impl Iterator<Item = (f64, f64)>) -> Curve {
        let (mut before, mut served) = (0.0, 0.0f64);
        let part = |(of_pages, share): (f64, f64)| {
            let (number, more) = (pages * (of_pages - before), (share - served).max(0.0));
            (before, served) = (of_pages, served.max(share));
            Part { pages: number, rate: more / number, capped: false }
        };
        Curve::ordered(shares.map(part).collect(), None)
    }

    /// All pages.
    pub fn pages(&self) -> f64 {
        self.before.last().map_or(0.0, |(pages, _)| *pages)
    }

    /// All accesses a second.
    pub fn accesses(&self) -> f64 {
        self.before.last().map_or(0.0, |(_, accesses)| *accesses)
    }

    /// The share of the accesses that go to capped parts.
    pub fn capped(&self) -> f64 {
        let capped = self.parts.iter().filter(|part| part.capped);
        capped.map(|part| part.pages * part.rate).sum::<f64>() / self.accesses().max(f64::MIN_POSITIVE)
    }

    /// Pages of capped parts.
    pub fn capped_pages(&self) -> f64 {
        self.parts.iter().filter(|part| part.capped).map(|part| part.pages).sum()
    }

    /// The part in which the hottest `pages` end, and their accesses.
    fn hottest(&self, pages: f64) -> (usize, f64) {
        let at = self.before.partition_point(|(before, _)| *before <= pages).saturating_sub(1);
        let Some(part) = self.parts.get(at) else { return (at, self.accesses()) };
        let (before, accesses) = self.before[at];
        (at, accesses + (pages - before).max(0.0) * part.rate)
    }

    /// The share of the accesses that the hottest `pages` take, if the pages of each part are
    /// alike; 1 if there are no accesses.
    pub fn share(&self, pages: f64) -> f64 {
        let all = self.accesses();
        if all > 0.0 { (self.hottest(pages).1 / all).min(1.0) } else { 1.0 }
    }

    /// The least share of the accesses that the hottest `pages` may take, however rates differ
    /// within the parts. The accesses to the other pages are most if each of them is as hot as the
    /// coldest of the hottest pages, or idle: those hotter than that would be among the hottest.
    pub fn least_share(&self, pages: f64) -> f64 {
        let (at, inside) = self.hottest(pages);
        let (Some(check_s), Some(marginal)) = (self.check_s, self.parts.get(at)) else {
            return self.share(pages);
        };
        let found = |rate: f64| -(-rate * check_s).exp_m1();
        if marginal.rate <= 0.0 {
            return 1.0;
        }
        let most = |part: &Part| marginal.rate * (found(part.rate) / found(marginal.rate)).min(1.0);
        let rest = self.before[at + 1].0 - pages;
        let outside = rest.max(0.0) * marginal.rate
            + self.parts[at + 1..].iter().map(|part| part.pages * most(part)).sum::<f64>();
        inside / (inside + outside)
    }

    /// The fewest pages whose share, or least share, is at least this.
    pub fn pages_for(&self, share: f64, least: bool) -> f64 {
        let of = |pages: f64| if least { self.least_share(pages) } else { self.share(pages) };
        let (mut low, mut high) = (0.0, self.pages());
        if of(0.0) >= share {
            return 0.0;
        }
        // A page is the smallest difference that matters; sixty halvings are enough for any memory.
        for _ in 0..60 {
            if high - low < 0.5 {
                break;
            }
            let middle = f64::midpoint(low, high);
            if of(middle) >= share {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(pages: f64, rate: f64) -> Part {
        Part { pages, rate, capped: false }
    }

    #[test]
    fn the_hottest_pages_take_their_share() {
        // 10 pages with 6 accesses a second each, 20 with 1, 70 with none: 80 in all.
        let curve = Curve::new(vec![part(20.0, 1.0), part(70.0, 0.0), part(10.0, 6.0)], None);
        let shares = [0.0, 5.0, 10.0, 20.0, 30.0, 100.0, 900.0].map(|pages| curve.share(pages));
        assert_eq!(shares, [0.0, 0.375, 0.75, 0.875, 1.0, 1.0, 1.0]);
        assert_eq!((curve.pages(), curve.accesses()), (100.0, 80.0));
        assert!((curve.pages_for(0.875, false) - 20.0).abs() < 0.5);
        assert!((curve.pages_for(1.0, false) - 30.0).abs() < 0.5);
        assert_eq!(curve.pages_for(0.0, false), 0.0);
        assert_eq!(Curve::new(vec![part(5.0, 0.0)], None).share(0.0), 1.0);
        let capped = Part { capped: true, ..part(10.0, 6.0) };
        assert!((Curve::new(vec![capped, part(20.0, 1.0)], None).capped() - 0.75).abs() < 1e-12);
    }

    #[test]
    fn what_regions_hide_is_not_counted_on() {
        // Ten pages at 2 a check; a hundred of which checks find 9.5 %: all alike at 0.1 a check,
        // or 22 of them, which are found as often in all, at 1 / 0.8647 times 9.5 % of 2 on
        // average.
        let (hot, mild) = (part(10.0, 2.0), part(100.0, -(1.0f64 - 0.095).ln()));
        let curve = Curve::new(vec![hot, mild], Some(1.0));
        assert!((curve.share(10.0) - 20.0 / (20.0 + 9.982)).abs() < 1e-4);
        let most = 100.0 * 2.0 * 0.095 / (1.0 - (-2.0f64).exp());
        let below = Curve::new(vec![hot, part(1.0, 2.0), mild], Some(1.0));
        assert!((below.least_share(10.0) - 20.0 / (20.0 + 2.0 + most)).abs() < 1e-9);
        // Where rates are far below a check, a mixture looks as it is.
        let slow = Curve::new(vec![part(10.0, 0.002), part(100.0, 0.0001)], Some(1.0));
        assert!((slow.share(5.0) - slow.least_share(5.0)).abs() < 1e-3);
        assert_eq!(curve.least_share(110.0), 1.0);
    }
}
