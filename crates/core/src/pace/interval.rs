//! The time between two scan steps of a process, measured.

use std::collections::VecDeque;

use crate::units::Nanos;

/// The median of this many intervals counts, so that a single sleep of the process does not look
/// like rare scanning.
const STEPS: usize = 7;

/// Measures the time between two steps: the median of the last seven. A process that sleeps is not
/// scanned, so the time until its next step does not count.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    last: Option<Nanos>,
    /// Times between the last steps, the latest first.
    intervals: VecDeque<Nanos>,
}

impl Interval {
    /// A step begins.
    pub fn step(&mut self, at: Nanos) {
        if let Some(last) = self.last {
            self.intervals.truncate(STEPS - 1);
            self.intervals.push_front(at.since(last));
        }
        self.last = Some(at);
    }

    /// When the last step began; `None` before the first.
    pub fn last_step(&self) -> Option<Nanos> {
        self.last
    }

    /// The time between two steps; `None` before the third.
    pub fn median(&self) -> Option<Nanos> {
        let mut intervals: Vec<Nanos> = self.intervals.iter().copied().collect();
        intervals.sort_unstable();
        intervals.get(intervals.len() / 2).copied().filter(|_| intervals.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_sleep_does_not_make_a_process_seldom_scanned() {
        let mut interval = Interval::default();
        let mut at = 0;
        let mut step = |after_ms: u64| {
            at += after_ms;
            interval.step(Nanos::from_ms(at));
            interval.median().map(Nanos::ms)
        };
        assert_eq!([0, 100].map(&mut step), [None, None], "two steps are one interval");
        assert_eq!([100, 9000, 100].map(&mut step), [Some(100), Some(100), Some(100)]);
        // Four of seven decide.
        assert_eq!([500, 500, 500].map(&mut step), [Some(100), Some(500), Some(500)]);
    }
}
