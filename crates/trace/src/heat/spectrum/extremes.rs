//! What the hottest pages serve at least and at most, by all distributions of rates that agree with
//! the checks.
//!
//! A distribution agrees if for each length of check the mean chance to be found lies within
//! bounds. The hottest pages are those above a threshold. For each threshold, what they serve at
//! least is a linear program; at most, one program finds the threshold too. Shares of accesses are
//! ratios; so that programs are linear, all accesses are 1, and the number of all pages is free.

use std::ops::Range;

use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOutcome, Variable};

const LEAST: OptimizationDirection = OptimizationDirection::Minimize;
const MOST: OptimizationDirection = OptimizationDirection::Maximize;

/// Bounds of the mean chance that a check of one length finds an access.
#[derive(Clone, Debug)]
pub(super) struct Allowed {
    /// The chance at each rate.
    pub(super) finds: Vec<f64>,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The distributions that agree with checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreeing<'a> {
    /// Ascending.
    pub(super) rates: &'a [f64],
    pub(super) allowed: &'a [Allowed],
}

impl Agreeing<'_> {
    /// The least and the greatest share of the accesses that go to this share of the pages, the
    /// hottest; `None` if no distribution agrees.
    pub(super) fn shares(&self, of_pages: f64) -> Option<[f64; 2]> {
        let number = self.rates.len();
        let served = |rate: usize| self.rates[rate];
        let most = self.solve(MOST, of_pages, [0..number, 0..number], served, 0.0)?;
        let at_least = |threshold: usize| {
            self.solve(LEAST, of_pages, [threshold..number, 0..threshold + 1], served, 0.0)
        };
        let least = (0..number).filter_map(at_least).fold(most, f64::min);
        Some([least, most])
    }

    /// The least share of the accesses that go to pages of the greatest rate.
    pub(super) fn at_the_greatest_rate(&self) -> Option<f64> {
        let number = self.rates.len();
        let served = |rate: usize| if rate + 1 == number { self.rates[rate] } else { 0.0 };
        self.solve(LEAST, 1.0, [0..number, 0..0], served, 0.0)
    }

    /// The least and the greatest mean rate: the more pages there are for one access, the lower.
    pub(super) fn mean_rates(&self) -> Option<[f64; 2]> {
        let pages = |direction| self.solve(direction, 1.0, [0..self.rates.len(), 0..0], |_| 0.0, 1.0);
        Some([1.0 / pages(MOST)?, 1.0 / pages(LEAST)?])
    }

    /// The extreme of what is served and of the number of pages times its weight, of distributions
    /// of which this share of the pages have rates of the first range, and the others of the
    /// second.
    fn solve(
        &self,
        direction: OptimizationDirection,
        of_pages: f64,
        [inside, outside]: [Range<usize>; 2],
        served: impl Fn(usize) -> f64,
        of_number: f64,
    ) -> Option<f64> {
        let mut problem = Problem::new(direction);
        let any = (0.0, f64::INFINITY);
        let inside: Vec<(usize, Variable)> =
            inside.map(|rate| (rate, problem.add_var(served(rate), any))).collect();
        let outside: Vec<(usize, Variable)> = outside.map(|rate| (rate, problem.add_var(0.0, any))).collect();
        let pages = problem.add_var(of_number, any);
        let all = || inside.iter().chain(&outside);
        let mut sum =
            |of: Vec<(Variable, f64)>, op, value: f64| problem.add_constraint(of.as_slice(), op, value);
        sum(all().map(|(rate, number)| (*number, self.rates[*rate])).collect(), ComparisonOp::Eq, 1.0);
        for (part, share) in [(&inside, of_pages), (&outside, 1.0 - of_pages)] {
            let numbers = part.iter().map(|(_, number)| (*number, 1.0));
            sum(numbers.chain([(pages, -share)]).collect(), ComparisonOp::Eq, 0.0);
        }
        for Allowed { finds, low, high } in self.allowed {
            let found = all().map(|(rate, number)| (*number, finds[*rate]));
            sum(found.clone().chain([(pages, -low)]).collect(), ComparisonOp::Ge, 0.0);
            sum(found.chain([(pages, -high)]).collect(), ComparisonOp::Le, 0.0);
        }
        match problem.solve() {
            Ok(SolveOutcome::Solution(solution)) => Some(solution.objective()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(rates: &[f64], check_s: f64, mean: f64) -> Allowed {
        let finds: Vec<f64> = rates.iter().map(|rate| -(-rate * check_s).exp_m1()).collect();
        Allowed { finds, low: mean - 1e-6, high: mean + 1e-6 }
    }

    #[test]
    fn two_rates_and_one_check_leave_nothing_open() {
        let rates = [1.0, 10.0];
        let found = |rate: f64| -(-rate * 0.1).exp_m1();
        // A fifth of the pages is hot, and has 2 of 2.8 accesses.
        let checks = [allowed(&rates, 0.1, 0.2 * found(10.0) + 0.8 * found(1.0))];
        let agreeing = Agreeing { rates: &rates, allowed: &checks };
        let is_close = |of_pages: f64, share: f64| {
            let [least, most] = agreeing.shares(of_pages).expect("that distribution agrees");
            assert!((least - share).abs() < 1e-3 && (most - share).abs() < 1e-3, "{least} {most} {share}");
        };
        is_close(0.2, 2.0 / 2.8);
        is_close(0.1, 1.0 / 2.8);
        is_close(0.6, 2.4 / 2.8);
        let [least, most] = agreeing.mean_rates().expect("that distribution agrees");
        assert!((least - 2.8).abs() < 1e-3 && (most - 2.8).abs() < 1e-3, "{least} {most}");
        assert!((agreeing.at_the_greatest_rate().expect("it agrees") - 2.0 / 2.8).abs() < 1e-3);
    }

    #[test]
    fn what_one_check_leaves_open_is_between_all_alike_and_the_most_different() {
        let rates = [0.0, 1.0, 1000.0];
        let checks = [allowed(&rates, 0.1, 1.0 - (-0.1f64).exp())];
        let agreeing = Agreeing { rates: &rates, allowed: &checks };
        // All pages have rate 1, or 9.5 % of them rate 1000 and the rest none.
        let [least, most] = agreeing.shares(0.5).expect("both agree");
        assert!((least - 0.5).abs() < 1e-3 && (most - 1.0).abs() < 1e-3, "{least} {most}");
        assert!(agreeing.at_the_greatest_rate().expect("both agree") < 1e-3);
        // No page can be found more often than at the greatest rate.
        let none = [allowed(&rates, 0.1, 1.1)];
        assert!(Agreeing { rates: &rates, allowed: &none }.shares(0.5).is_none());
    }
}
