//! Whether the loop runs: it sets a deadline for its next turn, and other threads see when it
//! misses it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thermocline_core::units::Nanos;
use thermocline_linux::machine::now;

/// How late it may be before this is reported, because a busy machine is late as well.
const LATE: Duration = Duration::from_secs(2);

/// When the loop's next turn is due, as ns of the monotonic clock.
#[derive(Debug)]
pub struct Pulse(AtomicU64);

impl Default for Pulse {
    /// Without a deadline.
    fn default() -> Pulse {
        Pulse(AtomicU64::new(u64::MAX))
    }
}

impl Pulse {
    /// Sets the deadline of the loop's next turn.
    pub fn promise(&self, by: Nanos) {
        self.0.store(by.0, Ordering::Relaxed);
    }

    /// For how long the loop has been late, if that is more than a busy machine explains.
    pub fn late(&self) -> Option<Duration> {
        let late = Duration::from_nanos(now().0.saturating_sub(self.0.load(Ordering::Relaxed)));
        (late >= LATE).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_come_back_is_late() {
        let pulse = Pulse::default();
        assert_eq!(pulse.late(), None);
        pulse.promise(now().plus(Nanos::from_s(60)));
        assert_eq!(pulse.late(), None);
        pulse.promise(Nanos(0));
        assert!(pulse.late().is_some_and(|late| late >= LATE));
    }
}
