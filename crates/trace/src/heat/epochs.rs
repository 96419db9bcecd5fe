//! Time in epochs of equal length.

use thermocline_core::units::Nanos;

use super::evidence::Count;

/// The epochs of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Epochs {
    /// The first time.
    pub start: Nanos,
    /// The last.
    pub end: Nanos,
    /// How many there are.
    pub number: usize,
}

impl Epochs {
    fn length(&self) -> f64 {
        (self.end.since(self.start).0 as f64 / self.number as f64).max(1.0)
    }

    /// The epoch of a time; times outside belong to the first or the last.
    pub fn at(&self, time: Nanos) -> usize {
        ((time.since(self.start).0 as f64 / self.length()) as usize).min(self.number - 1)
    }

    /// Adds the time between two times, times `factor`, to the quiet time of the epochs in which it
    /// lies.
    pub fn spread(&self, from: Nanos, to: Nanos, factor: f64, counts: &mut [Count]) {
        let within = |time: Nanos| time.max(self.start).min(self.end).since(self.start).0 as f64;
        let (from, to) = (within(from), within(to));
        if from >= to {
            return;
        }
        let length = self.length();
        let first = (from / length) as usize;
        for (epoch, count) in counts.iter_mut().enumerate().take(self.number).skip(first) {
            let (start, end) = (length * epoch as f64, length * (epoch + 1) as f64);
            if start >= to {
                break;
            }
            count.quiet_s += (to.min(end) - from.max(start)).max(0.0) / 1e9 * factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_the_epochs_in_which_it_lies() {
        let epochs = Epochs { start: Nanos::from_s(10), end: Nanos::from_s(30), number: 4 };
        let mut counts = [Count::default(); 4];
        epochs.spread(Nanos::from_s(12), Nanos::from_s(21), 1.0, &mut counts);
        assert_eq!(counts.map(|c| c.quiet_s), [3.0, 5.0, 1.0, 0.0]);
        epochs.spread(Nanos::from_s(0), Nanos::from_s(11), 2.0, &mut counts);
        epochs.spread(Nanos::from_s(29), Nanos::from_s(99), 1.0, &mut counts);
        epochs.spread(Nanos::from_s(22), Nanos::from_s(21), 1.0, &mut counts);
        assert_eq!(counts.map(|c| c.quiet_s), [5.0, 5.0, 1.0, 1.0]);
        assert_eq!([9, 10, 15, 29, 30, 99].map(|s| epochs.at(Nanos::from_s(s))), [0, 0, 1, 3, 3, 3]);
    }
}
