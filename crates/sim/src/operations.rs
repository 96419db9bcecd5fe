//! How long an operation of a program takes: mean and percentiles.
//!
//! The modes count accesses, not operations. So once a simulated second some operations are tried:
//!
//! 1. Each draws its visits ([`crate::workload::operation`]), and for each the node of its page:
//!    in proportion to popularity and to where the pages are at that time. An access takes the mean
//!    time of one on that node.
//! 2. It draws stalls, as many as the program's accesses have met in that second on average: hint
//!    faults and samples with what they cost then, and scans by the serving thread.
//! 3. Of the requests in flight, those that no thread serves wait in turn. A request that is
//!    answered is followed by the next at once, so one that finds n ahead waits until n have been
//!    served: few are drawn, many follow from how many operations were done since, and a normal
//!    spread.
//!
//! A trial stands for its share of the second's operations: the threads' time without stalls, by
//! the mean time of an operation. Little's law and the patterns' own numbers of operations check
//! it. Not modelled: that the accesses of an operation affect each other, the network, and the
//! clients.

use std::sync::Arc;

use serde::Serialize;
use thermocline_core::units::Nanos;

use crate::random::Random;
use crate::stalls::Stalls;
use crate::system::System;
use crate::workload::{Distribution, Operation, Phase, Shape, Visits};

/// Minimum interval between two rounds of trials, as of the readings of where pages are.
const EVERY: Nanos = Nanos::from_s(1);
/// Operations tried in a round. A run of 140 s has 70 above its 99.9th percentile.
const TRIALS: usize = 512;
/// Up to this many requests ahead are drawn one by one.
const DRAWN_MAX: f64 = 64.0;

/// Times of a program's operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationTimes {
    /// Operations done.
    pub operations: u64,
    /// Operations a second.
    pub per_s: f64,
    /// Mean time from request to answer in us.
    pub mean_us: f64,
    /// Half of them take no longer, in us.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p99_9_us: f64,
}

/// Times, by the logarithm; each stands for a number of operations.
#[derive(Debug, Default)]
struct Histogram(Vec<f64>);

/// Classes of times for each factor of two: 0.5 % wide.
const CLASSES: f64 = 128.0;

impl Histogram {
    fn add(&mut self, ns: f64, operations: f64) {
        let class = (ns.max(1.0).log2() * CLASSES) as usize;
        if self.0.len() <= class {
            self.0.resize(class + 1, 0.0);
        }
        self.0[class] += operations;
    }

    /// The time that this share of the operations does not exceed, in us.
    fn percentile_us(&self, share: f64) -> f64 {
        let mut left = share * self.0.iter().sum::<f64>();
        let class = self.0.iter().position(|operations| {
            left -= operations;
            left <= 0.0
        });
        ((class.unwrap_or(self.0.len()) as f64 + 0.5) / CLASSES).exp2() / 1e3
    }
}

/// The kinds of operation in a round: share, and for each of its visits the cumulative shares of
/// the nodes.
type Places = Vec<(f64, Vec<Vec<f64>>)>;

/// The times of one process's operations, and how far they are known.
#[derive(Debug)]
pub struct Operations {
    operation: Operation,
    in_flight: f64,
    random: Random,
    /// How the threads pick pages at present.
    popularity: Option<Arc<Distribution>>,
    start: Nanos,
    since: Nanos,
    /// Ns from the start and operations done until then, at the end of each round.
    course: Vec<(f64, f64)>,
    histogram: Histogram,
    /// Sum of the operations' times in ns.
    sum_ns: f64,
    /// Time in which threads ran, in ns.
    ran_ns: f64,
}

impl Operations {
    /// No operation yet; clients keep `in_flight` requests in flight.
    pub fn new(operation: Operation, in_flight: u64, random: Random) -> Operations {
        Operations {
            operation,
            in_flight: in_flight as f64,
            random,
            popularity: None,
            start: Nanos(0),
            since: Nanos(0),
            course: vec![(0.0, 0.0)],
            histogram: Histogram::default(),
            sum_ns: 0.0,
            ran_ns: 0.0,
        }
    }

    /// The threads start.
    pub(crate) fn start(&mut self, now: Nanos) {
        (self.start, self.since) = (now, now);
    }

    /// A thread enters a phase.
    pub(crate) fn enter(&mut self, phase: &Phase) {
        if let Shape::Random(distribution) = &phase.shape {
            self.popularity = Some(distribution.clone());
        }
    }

    /// Tries operations for the time since the last round, if that is long enough or the run is
    /// over.
    pub(crate) fn note(&mut self, system: &mut System, process: usize, over: bool) {
        let (now, since) = (system.now, self.since);
        let span = now.since(since);
        let popularity = self.operation.popularity.as_ref().or(self.popularity.as_ref());
        let Some(popularity) = popularity.filter(|_| span.0 > 0 && (span >= EVERY || over)).cloned() else {
            return;
        };
        self.since = now;
        let stalls = system.processes[process].stalls.take().unwrap_or_default();
        system.processes[process].stalls = Some(Stalls::default());
        let of = &system.processes[process];
        let threads = &system.threads[of.threads.start as usize..of.threads.end as usize];
        let ran = threads.iter().map(|t| t.finished.map_or(now, |end| end.min(now)).since(since).0 as f64);
        let (all_ns, longest_ns) = ran.fold((0.0, 0.0f64), |(sum, max), ns| (sum + ns, max.max(ns)));
        let places = self.places(system, process, &popularity);
        let accesses = self.operation.accesses();
        let made_ns = self.mean_ns(&places, &of.access_ns);
        let stalled_ns = stalls.short.ns() + stalls.long.ns() + stalls.spread_ns;
        let operations = (all_ns - stalled_ns) / (made_ns + accesses * of.think_ns);
        if operations <= 0.0 || longest_ns == 0.0 {
            return;
        }
        let mut served = [0.0; TRIALS];
        for ns in &mut served {
            *ns = self.serve(&places, &of.access_ns, &stalls, operations) + stalls.spread_ns / operations;
        }
        let (then_ns, done) = *self.course.last().expect("it begins with one");
        self.course.push((then_ns + longest_ns, done + operations));
        self.ran_ns += longest_ns;
        let mean_ns = made_ns + stalled_ns / operations;
        let spread_ns = (served.iter().map(|ns| (ns - mean_ns).powi(2)).sum::<f64>() / TRIALS as f64).sqrt();
        let servers = (all_ns / longest_ns).max(1.0);
        let ahead = (self.in_flight - servers).max(0.0);
        let each = operations / TRIALS as f64;
        for i in 0..TRIALS {
            let waits_ns = if ahead <= DRAWN_MAX {
                let one = |_| served[self.random.below(TRIALS as u64) as usize];
                (0..ahead.round() as u32).map(one).sum::<f64>() / servers
            } else {
                let share = self.random.unit();
                let at = then_ns + share * longest_ns;
                let queued = at - self.when(done + share * operations - ahead);
                (queued + self.normal() * spread_ns * ahead.sqrt() / servers).max(0.0)
            };
            self.histogram.add(waits_ns + served[i], each);
            self.sum_ns += each * (waits_ns + mean_ns);
        }
    }

    /// Where the pages of each visit are.
    fn places(&self, system: &System, process: usize, popularity: &Distribution) -> Places {
        let space = &system.memory.spaces[process];
        let of = |visits: &Visits| {
            let mut sums = vec![0.0; system.machine.nodes.len()];
            for (cell, weight) in popularity.weights().iter().filter(|(c, _)| visits.cells.contains(c)) {
                let per_page = weight / f64::from(space.map.size(*cell));
                let on = system.memory.cells.count(space.first_cell + cell).on;
                sums.iter_mut().zip(on).for_each(|(sum, on)| *sum += per_page * f64::from(*on));
            }
            let all: f64 = sums.iter().sum();
            let mut below = 0.0;
            for sum in &mut sums {
                below += *sum / all.max(f64::MIN_POSITIVE);
                *sum = below;
            }
            sums
        };
        self.operation.kinds.iter().map(|(share, all)| (*share, all.iter().map(of).collect())).collect()
    }

    /// Mean time of an operation's accesses in ns.
    fn mean_ns(&self, places: &Places, access_ns: &[f64]) -> f64 {
        let visit = |visits: &Visits, below: &[f64]| {
            let mut last = 0.0;
            let mean = below.iter().zip(access_ns).map(|(b, ns)| (b - std::mem::replace(&mut last, *b)) * ns);
            visits.mean() * mean.sum::<f64>()
        };
        let kinds = self.operation.kinds.iter().zip(places);
        kinds
            .map(|((share, all), (_, of))| share * all.iter().zip(of).map(|(v, b)| visit(v, b)).sum::<f64>())
            .sum()
    }

    /// Draws the time that a thread takes for an operation, in ns.
    fn serve(&mut self, places: &Places, access_ns: &[f64], stalls: &Stalls, operations: f64) -> f64 {
        let random = &mut self.random;
        let mut left = random.unit();
        let kind = places.iter().position(|(share, _)| {
            left -= share;
            left < 0.0
        });
        let kind = kind.unwrap_or(places.len() - 1);
        let mut ns = 0.0;
        for (visits, below) in self.operation.kinds[kind].1.iter().zip(&places[kind].1) {
            for _ in 0..visits.draw(random) {
                let at = random.unit();
                let node = below.iter().position(|b| at < *b).unwrap_or(below.len() - 1);
                ns += visits.accesses * access_ns[node];
            }
        }
        for stalled in [&stalls.short, &stalls.long] {
            ns += stalled.draw(stalled.count() as f64 / operations, random);
        }
        ns
    }

    /// When this many operations were done, in ns from the start. Before the start they are taken
    /// to have been done as fast as in the first round: the program served for a while already.
    fn when(&self, done: f64) -> f64 {
        let after = self.course.partition_point(|(_, until)| *until < done).clamp(1, self.course.len() - 1);
        let ((from_ns, from), (to_ns, to)) = (self.course[after - 1], self.course[after]);
        from_ns + (done - from) / (to - from) * (to_ns - from_ns)
    }

    /// A normal number with mean 0 and deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        (2.0 * self.random.exponential()).sqrt() * (std::f64::consts::TAU * self.random.unit()).cos()
    }

    /// The times so far; `None` before the first round.
    pub(crate) fn times(&self) -> Option<OperationTimes> {
        let (_, operations) = *self.course.last()?;
        (operations > 0.0).then(|| OperationTimes {
            operations: operations.round() as u64,
            per_s: operations / self.ran_ns * 1e9,
            mean_us: self.sum_ns / operations / 1e3,
            p50_us: self.histogram.percentile_us(0.5),
            p99_us: self.histogram.percentile_us(0.99),
            p99_9_us: self.histogram.percentile_us(0.999),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_half_a_percent() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.add(f64::from(us) * 1e3, 2.5));
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let found = histogram.percentile_us(share);
            assert!((found / us - 1.0f64).abs() < 0.006, "{share}: {found}");
        }
    }
}
