//! How the rates of all units are distributed, from counts that say little about each.
//!
//! 1. Equal counts share a cell, so that the work does not grow with memory.
//! 2. The distribution of rates is one over a grid of rates, evenly spaced in their logarithms, and
//!    the rate 0. It is the one under which the counts are most probable (nonparametric maximum
//!    likelihood; J. Kiefer and J. Wolfowitz, 1956), found by expectation and maximisation
//!    (N. Laird, 1978).
//! 3. A unit's rate, given its counts, has the posterior of that distribution. Rates that are drawn
//!    from the posteriors of all units are distributed as the true ones are, while the most
//!    probable rate of each is more even, and the maximum-likelihood rate of each more uneven.

use std::collections::BTreeMap;

use super::evidence::Count;
use super::random::Random;

/// Two neighbouring rates of the grid.
const RATIO: f64 = 1.15;
/// Counts whose numbers differ by less than this factor share a cell.
const ALIKE: f64 = 1.03;
/// Fewer hits than this are told apart to an eighth.
const FEW: f64 = 32.0;
/// Rounds of expectation and maximisation: at most, and for a redrawn sample.
const ROUNDS: [usize; 2] = [400, 60];
/// The rounds end when one of them changes no weight by more than this.
const SETTLED: f64 = 1e-6;

/// Rates, ascending, the first of them 0.
#[derive(Clone, Debug)]
pub struct Grid {
    /// In accesses a second.
    pub rates: Vec<f64>,
    /// An access is found within so much time, in seconds; 0 if times are exact.
    check_s: f64,
    /// Whether rates above the last one are alike to the source.
    pub capped: bool,
}

impl Grid {
    /// The grid for these counts: from a rate that cannot be told from 0 up to the greatest that
    /// can be told apart, or that occurs.
    pub fn over(counts: impl Iterator<Item = Count>, check_s: f64) -> Grid {
        let (mut longest, mut fastest) = (1e-9f64, 1e-9f64);
        for Count { hits, quiet_s } in counts {
            let watched = quiet_s + hits * check_s;
            longest = longest.max(watched);
            if hits > 0.0 && watched > 0.0 {
                fastest = fastest.max((hits + 3.0 * hits.sqrt()) / watched);
            }
        }
        let low = 0.05 / longest;
        let capped = check_s > 0.0;
        let high = if capped { 3.0 / check_s } else { fastest }.max(2.0 * low);
        let steps = ((high / low).ln() / RATIO.ln()).ceil().max(1.0) as i32;
        let rates = std::iter::once(0.0).chain((0..=steps).rev().map(|i| high * RATIO.powi(-i))).collect();
        Grid { rates, check_s, capped }
    }

    /// The likelihood of a count at each rate over its greatest, and the logarithm of that.
    fn likelihood(&self, count: Count) -> (Vec<f64>, f64) {
        let log = |rate: f64| {
            let found = match (count.hits > 0.0, self.check_s > 0.0) {
                (false, _) => 0.0,
                (true, true) => count.hits * (-(-rate * self.check_s).exp_m1()).ln(),
                (true, false) => count.hits * rate.ln(),
            };
            found - rate * count.quiet_s
        };
        let logs: Vec<f64> = self.rates.iter().map(|rate| log(*rate)).collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (logs.into_iter().map(|log| (log - most).exp()).collect(), most)
    }
}

/// Counts that are about equal.
#[derive(Clone, Debug)]
struct Cell {
    /// The sum of their counts.
    sum: Count,
    /// How many they are.
    units: f64,
}

/// Counts by cell, and the cell of each.
#[derive(Clone, Debug)]
pub struct Cells {
    cells: Vec<Cell>,
    /// The cell of each count.
    of: Vec<u32>,
    /// For each cell, the likelihoods of its mean count by rate, and the logarithm of the greatest.
    likelihoods: Vec<(Vec<f64>, f64)>,
    grid: Grid,
}

/// A distribution of rates over the grid; the weights sum to 1.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// By rate of the grid.
    pub weights: Vec<f64>,
}

fn step(value: f64) -> i32 {
    if value > 0.0 { (value.ln() / ALIKE.ln()).round() as i32 } else { i32::MIN }
}

impl Cells {
    /// Puts counts into cells, each standing for so many units.
    pub fn new(counts: &[(Count, f64)], check_s: f64) -> Cells {
        let grid = Grid::over(counts.iter().map(|(count, _)| *count), check_s);
        let mut places: BTreeMap<(bool, i32, i32), u32> = BTreeMap::new();
        let mut cells: Vec<Cell> = Vec::new();
        let mut of = Vec::with_capacity(counts.len());
        for (count, units) in counts {
            let few = count.hits < FEW;
            let hits = if few { (count.hits * 8.0).round() as i32 } else { step(count.hits) };
            let place = *places.entry((few, hits, step(count.quiet_s))).or_insert_with(|| {
                cells.push(Cell { sum: Count::default(), units: 0.0 });
                cells.len() as u32 - 1
            });
            let cell = &mut cells[place as usize];
            let all = Count { hits: count.hits * units, quiet_s: count.quiet_s * units };
            (cell.sum, cell.units) = (cell.sum.plus(all), cell.units + units);
            of.push(place);
        }
        let mean = |cell: &Cell| Count {
            hits: cell.sum.hits / cell.units.max(1e-300),
            quiet_s: cell.sum.quiet_s / cell.units.max(1e-300),
        };
        let likelihoods = cells.iter().map(|cell| grid.likelihood(mean(cell))).collect();
        Cells { cells, of, likelihoods, grid }
    }

    /// The rates.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The distribution under which the counts are most probable.
    pub fn fit(&self) -> Mixture {
        let units: Vec<f64> = self.cells.iter().map(|cell| cell.units).collect();
        let even = 1.0 / self.grid.rates.len() as f64;
        self.improve(Mixture { weights: vec![even; self.grid.rates.len()] }, &units, ROUNDS[0])
    }

    /// The distribution for a sample of as many units, drawn from these with replacement.
    pub fn refit(&self, from: &Mixture, random: &mut Random) -> Mixture {
        let units: Vec<f64> = self.cells.iter().map(|cell| random.poisson(cell.units) as f64).collect();
        // A weight of 0 would stay 0.
        let rates = self.grid.rates.len() as f64;
        let weights = from.weights.iter().map(|w| 0.98 * w + 0.02 / rates).collect();
        self.improve(Mixture { weights }, &units, ROUNDS[1])
    }

    fn improve(&self, mut mixture: Mixture, units: &[f64], rounds: usize) -> Mixture {
        let all: f64 = units.iter().sum();
        if all <= 0.0 {
            return mixture;
        }
        for _ in 0..rounds {
            let mut next = vec![0.0; mixture.weights.len()];
            for ((likelihood, _), units) in self.likelihoods.iter().zip(units).filter(|(_, u)| **u > 0.0) {
                let sum: f64 = likelihood.iter().zip(&mixture.weights).map(|(l, w)| l * w).sum();
                let factor = units / (all * sum.max(f64::MIN_POSITIVE));
                for ((next, l), w) in next.iter_mut().zip(likelihood).zip(&mixture.weights) {
                    *next += factor * l * w;
                }
            }
            let changes = next.iter().zip(&mixture.weights).map(|(a, b)| (a - b).abs());
            let most = changes.fold(0.0, f64::max);
            mixture.weights = next;
            if most < SETTLED {
                break;
            }
        }
        mixture
    }

    /// The logarithm of the probability of all counts, up to a term that depends on the counts
    /// alone.
    pub fn evidence(&self, mixture: &Mixture) -> f64 {
        let of = |(cell, (likelihood, most)): (&Cell, &(Vec<f64>, f64))| {
            let sum: f64 = likelihood.iter().zip(&mixture.weights).map(|(l, w)| l * w).sum();
            cell.units * (sum.max(f64::MIN_POSITIVE).ln() + most)
        };
        self.cells.iter().zip(&self.likelihoods).filter(|(cell, _)| cell.units > 0.0).map(of).sum()
    }

    /// For each cell, the posterior of a rate, summed up over the grid.
    pub fn posteriors(&self, mixture: &Mixture) -> Posteriors {
        let of = |(likelihood, _): &(Vec<f64>, f64)| {
            let mut sum = 0.0;
            let mut summed: Vec<f64> = likelihood
                .iter()
                .zip(&mixture.weights)
                .map(|(l, w)| {
                    sum += l * w;
                    sum
                })
                .collect();
            summed.iter_mut().for_each(|s| *s /= sum.max(f64::MIN_POSITIVE));
            summed
        };
        Posteriors { summed: self.likelihoods.iter().map(of).collect() }
    }

    /// Draws the rate of a count, as its place on the grid.
    pub fn draw(&self, posteriors: &Posteriors, count: usize, random: &mut Random) -> usize {
        let summed = &posteriors.summed[self.of[count] as usize];
        let drawn = random.unit();
        summed.partition_point(|s| *s <= drawn).min(summed.len() - 1)
    }

    /// The mean rate of each count.
    pub fn means(&self, mixture: &Mixture) -> Vec<f64> {
        let mean = |(likelihood, _): &(Vec<f64>, f64)| {
            let weighted = likelihood.iter().zip(&mixture.weights).map(|(l, w)| l * w);
            let (mut all, mut sum) = (0.0, 0.0);
            for (weight, rate) in weighted.zip(&self.grid.rates) {
                (all, sum) = (all + weight, sum + weight * rate);
            }
            sum / all.max(f64::MIN_POSITIVE)
        };
        let means: Vec<f64> = self.likelihoods.iter().map(mean).collect();
        self.of.iter().map(|cell| means[*cell as usize]).collect()
    }

    /// The share of the posterior of a count at each rate of the grid.
    pub fn shares(&self, posteriors: &Posteriors, count: usize) -> Vec<f64> {
        let summed = &posteriors.summed[self.of[count] as usize];
        let before = std::iter::once(&0.0).chain(summed);
        summed.iter().zip(before).map(|(to, from)| to - from).collect()
    }
}

/// See [`Cells::posteriors`].
#[derive(Clone, Debug)]
pub struct Posteriors {
    summed: Vec<Vec<f64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(counts: &[(f64, f64, f64)], check_s: f64) -> Cells {
        let counts: Vec<(Count, f64)> = counts
            .iter()
            .map(|(hits, quiet_s, units)| (Count { hits: *hits, quiet_s: *quiet_s }, *units))
            .collect();
        Cells::new(&counts, check_s)
    }

    #[test]
    fn units_of_two_rates_are_told_apart() {
        let cells = cells(&[(0.0, 100.0, 70.0), (100.0, 10.0, 30.0)], 0.0);
        let mixture = cells.fit();
        let weight = |from: f64, to: f64| -> f64 {
            let rates = cells.grid().rates.iter().zip(&mixture.weights);
            rates.filter(|(rate, _)| (from..to).contains(*rate)).map(|(_, weight)| weight).sum()
        };
        assert!((weight(0.0, 0.03) - 0.7).abs() < 1e-6 && (weight(8.0, 12.5) - 0.3).abs() < 1e-6);
        let means = cells.means(&mixture);
        assert!(means[0] < 0.01 && (means[1] - 10.0).abs() < 0.5, "{means:?}");
        assert!((mixture.weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_posterior_is_the_likelihood_times_the_weights() {
        // Two rates, 1 and 2 a second, equally frequent; nothing was seen for a second.
        let cells = cells(&[(0.0, 1.0, 5.0)], 0.0);
        let near = |wanted: f64| {
            let distance = |i: &usize| (cells.grid().rates[*i] - wanted).abs();
            (0..cells.grid().rates.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap()
        };
        let (one, two) = (near(0.05), near(0.1));
        let mut weights = vec![0.0; cells.grid().rates.len()];
        (weights[one], weights[two]) = (0.5, 0.5);
        let mixture = Mixture { weights };
        let shares = cells.shares(&cells.posteriors(&mixture), 0);
        let (slow, fast) = (cells.grid().rates[one], cells.grid().rates[two]);
        let wanted = (-slow).exp() / ((-slow).exp() + (-fast).exp());
        assert!((shares[one] - wanted).abs() < 1e-9 && (shares[two] - (1.0 - wanted)).abs() < 1e-9);
        let mut random = Random::new(1);
        let posteriors = cells.posteriors(&mixture);
        let drawn = (0..10_000).filter(|_| cells.draw(&posteriors, 0, &mut random) == one).count();
        assert!((drawn as f64 / 1e4 - wanted).abs() < 0.02, "{drawn}");
    }

    #[test]
    fn the_grid_ends_where_rates_are_alike() {
        let grid = Grid::over([Count { hits: 5.0, quiet_s: 10.0 }].into_iter(), 0.005);
        assert_eq!((grid.rates[0], grid.capped), (0.0, true));
        assert!((grid.rates.last().unwrap() - 600.0).abs() < 1e-9);
        let exact = Grid::over([Count { hits: 16.0, quiet_s: 2.0 }].into_iter(), 0.0);
        // 16 and three standard deviations of 4, in two seconds.
        assert!((exact.rates.last().unwrap() - 14.0).abs() < 1e-9 && !exact.capped);
        assert!(!Grid::over(std::iter::empty(), 0.0).rates.is_empty());
    }
}
