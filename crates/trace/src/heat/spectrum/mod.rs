//! How the rates of pages are distributed, from checks that look back for different times.
//!
//! A check of DAMON looks at a random page of its region. So over all regions, weighed by size, the
//! share of the checks that find no access in a time t is the mean of exp(-λ t) over pages: the
//! Laplace transform of the distribution of their rates λ, however regions are cut and whatever
//! differs within them. Checks of several lengths give it at several t. That tells how many pages
//! are how hot, and so what the hottest of them serve, but not which they are.
//!
//! 1. Checks of about one length share a cell.
//! 2. The distribution over a grid of rates is found under which the cells are most probable, by
//!    expectation and maximisation. Each length counts as much as the others.
//! 3. Many distributions agree with the checks about as well. What the hottest pages serve by any
//!    of them lies between the [`extremes`].

mod extremes;

use extremes::{Agreeing, Allowed};
use serde::Serialize;

use super::collect::Collected;
use super::regions::Checked;

/// Two neighbouring rates of the grid.
const RATIO: f64 = 1.2;
/// Lengths that differ by less than this factor share a cell: a busy kernel is late.
const ALIKE: f64 = 2.0;
/// Lengths that tell a distribution: so many, over such a range.
const LENGTHS_MIN: usize = 3;
const RANGE_MIN: f64 = 16.0;
/// A check finds so little of the lowest rate of the grid even if it looks back for longest.
const LOWEST: f64 = 0.01;
/// A check finds 95 % at the greatest even if it looks back for the shortest time.
const GREATEST: f64 = 3.0;
/// Rounds of expectation and maximisation.
const ROUNDS: usize = 8000;
/// Standard errors within which a distribution has to agree with the checks, and the part of what
/// they found that the time between them may be off. Where no distribution agrees, both are doubled
/// until one does: accesses do not come at random times exactly.
const ERRORS: f64 = 2.0;
const TIMING: f64 = 0.01;
const DOUBLED_MAX: i32 = 8;

/// What checks of about one length found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Checks {
    /// The time for which they look back, in seconds.
    pub check_s: f64,
    /// Snapshots of them.
    pub snapshots: usize,
    /// The share of them that found an access, weighed by the sizes of regions.
    pub found: f64,
    /// Its standard error.
    pub error: f64,
}

/// A snapshot.
#[derive(Clone, Copy, Debug)]
struct Seen {
    pages: f64,
    /// The share of the checks that found an access, times pages.
    found: f64,
    /// Checks of as many pages, evenly drawn from all of them, that would tell as much.
    checks: f64,
}

/// Checks of about one length.
#[derive(Clone, Debug)]
struct Cell {
    check_s: f64,
    snapshots: Vec<Seen>,
}

/// The least and the greatest by all distributions that agree with the checks.
#[derive(Clone, Debug)]
pub struct Extremes {
    /// The shares of the accesses that the hottest pages take.
    pub shares: Vec<[f64; 2]>,
    /// The share of the accesses that goes to pages beyond the reach, at least.
    pub beyond: f64,
    /// Accesses a second in all.
    pub accesses: [f64; 2],
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Spectrum {
    cells: Vec<Cell>,
    /// Ascending, the first of them 0. Rates above the last are alike.
    rates: Vec<f64>,
    pages: f64,
}

impl Spectrum {
    /// The spectrum of a recording; `None` if its checks have too few lengths.
    pub(super) fn of(from: &Collected) -> Option<Spectrum> {
        let (mut checked, mut all) = (Checked::default(), Vec::new());
        for snapshot in &from.snapshots {
            let (mut seen, mut spread, mut check_s) =
                (Seen { pages: 0.0, found: 0.0, checks: 0.0 }, 0.0, 0.0);
            for (region, checks) in checked.regions(snapshot) {
                let size = region.pages() as f64;
                seen.pages += size;
                seen.found += size * f64::from(region.access_rate_bp.min(10_000)) / 10_000.0;
                spread += size * size / checks as f64;
                check_s = region.check.0 as f64 / 1e9;
            }
            if seen.pages > 0.0 {
                all.push((check_s, Seen { checks: seen.pages * seen.pages / spread, ..seen }));
            }
        }
        let pages = all.iter().map(|(_, seen)| seen.pages).fold(0.0, f64::max);
        let cells = cells(all);
        let (first, last) = (cells.first()?.check_s, cells.last()?.check_s);
        let tells = cells.len() >= LENGTHS_MIN && last >= RANGE_MIN * first;
        tells.then(|| Spectrum { rates: grid(LOWEST / last, GREATEST / first), cells, pages })
    }

    /// The rate, in accesses a second, above which rates are alike.
    pub fn reach(&self) -> f64 {
        self.rates.last().copied().unwrap_or(0.0)
    }

    /// What checks of each length found.
    pub fn checks(&self) -> Vec<Checks> {
        let of = |cell: &Cell| {
            let (found, error) = cell.found();
            Checks { check_s: cell.check_s, snapshots: cell.snapshots.len(), found, error }
        };
        self.cells.iter().map(of).collect()
    }

    /// Numbers of pages, and their rate in accesses a second, as is most probable.
    pub fn fitted(&self) -> Vec<(f64, f64)> {
        let found: Vec<f64> = self.cells.iter().map(|cell| cell.found().0).collect();
        let finds: Vec<Vec<f64>> = self.cells.iter().map(|cell| self.finds(cell)).collect();
        let mut weights = vec![1.0 / self.rates.len() as f64; self.rates.len()];
        let mut factors = weights.clone();
        for _ in 0..ROUNDS {
            factors.fill(0.0);
            for (found, finds) in found.iter().zip(&finds) {
                let chance: f64 = weights.iter().zip(finds).map(|(weight, finds)| weight * finds).sum();
                let (hit, miss) = (found / chance.max(1e-12), (1.0 - found) / (1.0 - chance).max(1e-12));
                let of = factors.iter_mut().zip(finds);
                of.for_each(|(factor, finds)| *factor += miss + (hit - miss) * finds);
            }
            weights.iter_mut().zip(&factors).for_each(|(weight, factor)| *weight *= factor);
            let all: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= all);
        }
        weights.into_iter().zip(&self.rates).map(|(weight, rate)| (weight * self.pages, *rate)).collect()
    }

    /// What is so by all distributions that agree with the checks; `of_pages` are shares of the
    /// pages. `None` if no distribution agrees with them at all.
    pub fn extremes(&self, of_pages: &[f64]) -> Option<Extremes> {
        (0..=DOUBLED_MAX).find_map(|doubled| {
            let allowed: Vec<Allowed> = self.cells.iter().map(|cell| self.allowed(cell, doubled)).collect();
            let agreeing = Agreeing { rates: &self.rates, allowed: &allowed };
            let beyond = agreeing.at_the_greatest_rate()?;
            let accesses = agreeing.mean_rates()?.map(|rate| rate * self.pages);
            let shares = of_pages.iter().map(|share| agreeing.shares(*share));
            Some(Extremes { shares: shares.collect::<Option<_>>()?, beyond, accesses })
        })
    }

    /// All its pages.
    pub fn pages(&self) -> f64 {
        self.pages
    }

    fn finds(&self, cell: &Cell) -> Vec<f64> {
        self.rates.iter().map(|rate| -(-rate * cell.check_s).exp_m1()).collect()
    }

    fn allowed(&self, cell: &Cell, doubled: i32) -> Allowed {
        let (found, error) = cell.found();
        let off = (ERRORS * error + TIMING * found) * 2f64.powi(doubled);
        Allowed { finds: self.finds(cell), low: (found - off).max(0.0), high: (found + off).min(1.0) }
    }
}

impl Cell {
    /// The share of the checks that found an access, and its standard error: at least that of so
    /// many checks, and that of the snapshots, which differ by more if heat changes.
    fn found(&self) -> (f64, f64) {
        let snapshots = &self.snapshots;
        let pages: f64 = snapshots.iter().map(|seen| seen.pages).sum();
        let share = (snapshots.iter().map(|seen| seen.found).sum::<f64>() / pages).clamp(0.0, 1.0);
        let weighed = |of: &dyn Fn(&Seen) -> f64| {
            snapshots.iter().map(|seen| (seen.pages / pages).powi(2) * of(seen)).sum::<f64>()
        };
        let by_checks = weighed(&|seen| share * (1.0 - share) / seen.checks);
        let by_snapshots = weighed(&|seen| (seen.found / seen.pages - share).powi(2));
        (share, by_checks.max(by_snapshots).sqrt())
    }
}

/// Snapshots by the length of their checks, ascending.
fn cells(mut all: Vec<(f64, Seen)>) -> Vec<Cell> {
    all.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let alike = |first: f64| move |(check_s, _): &(f64, Seen)| *check_s < ALIKE * first;
    let mut cells = Vec::new();
    let mut rest = &all[..];
    while let Some((first, _)) = rest.first() {
        let (here, others) = rest.split_at(rest.partition_point(alike(*first)).max(1));
        let check_s = here.iter().map(|(check_s, _)| check_s).sum::<f64>() / here.len() as f64;
        cells.push(Cell { check_s, snapshots: here.iter().map(|(_, seen)| *seen).collect() });
        rest = others;
    }
    cells
}

/// Rates from `low` to `high`, and 0.
fn grid(low: f64, high: f64) -> Vec<f64> {
    let steps = ((high / low).ln() / RATIO.ln()).ceil().max(1.0) as i32;
    std::iter::once(0.0).chain((0..=steps).rev().map(|i| high * RATIO.powi(-i))).collect()
}
