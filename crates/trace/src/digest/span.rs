//! Time in intervals of equal length.

use thermocline_core::units::Nanos;

use crate::reader::Recording;

/// Intervals that the time of a recording is divided into.
pub const BINS: usize = 96;

/// The time of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its first step.
    pub start: Nanos,
    /// Its last.
    pub end: Nanos,
}

impl Span {
    /// The time from one moment to another.
    pub fn between(start: Nanos, end: Nanos) -> Span {
        Span { start, end: end.max(start) }
    }

    /// The time of a recording, as its parts say.
    pub fn of(recording: &Recording) -> Span {
        let parts = recording.parts();
        let start = parts.iter().map(|part| part.first_ns).min().unwrap_or_default();
        let start = start.max(recording.from().unwrap_or_default());
        let end = parts.iter().map(|part| part.last_ns).max().unwrap_or_default();
        Span::between(start, end)
    }

    /// The interval of a moment; moments outside belong to the first and the last.
    pub fn bin(&self, time: Nanos) -> usize {
        let length = u128::from(self.end.since(self.start).0);
        let at = u128::from(time.since(self.start).0);
        match length {
            0 => 0,
            _ => ((at * BINS as u128 / length) as usize).min(BINS - 1),
        }
    }

    /// Its length, in seconds.
    pub fn seconds(&self) -> f64 {
        self.end.since(self.start).0 as f64 / 1e9
    }

    /// The length of an interval, in seconds.
    pub fn bin_s(&self) -> f64 {
        self.seconds() / BINS as f64
    }
}

/// A count by interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bins(Vec<u64>);

impl Default for Bins {
    fn default() -> Bins {
        Bins(vec![0; BINS])
    }
}

impl Bins {
    /// Adds to an interval; there is no interval beyond the last.
    pub fn add(&mut self, bin: usize, n: u64) {
        if let Some(count) = self.0.get_mut(bin) {
            *count = count.saturating_add(n);
        }
    }

    /// The counts, [`BINS`] of them.
    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// All of them.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_moment_has_an_interval_and_time_goes_on(
            start in any::<u64>(), end in any::<u64>(), mut times in prop::collection::vec(any::<u64>(), 1..20),
        ) {
            let span = Span::between(Nanos(start), Nanos(end));
            times.sort_unstable();
            let bins: Vec<usize> = times.iter().map(|time| span.bin(Nanos(*time))).collect();
            prop_assert!(bins.is_sorted() && bins.iter().all(|bin| *bin < BINS));
        }
    }

    #[test]
    fn the_first_moment_is_in_the_first_interval_and_the_last_in_the_last() {
        let span = Span::between(Nanos::from_s(1), Nanos::from_s(97));
        let at = |s| span.bin(Nanos::from_s(s));
        assert_eq!([0, 1, 2, 96, 97, 99].map(at), [0, 0, 1, 95, 95, 95]);
        assert!((span.bin_s() - 1.0).abs() < 1e-9);
    }
}
