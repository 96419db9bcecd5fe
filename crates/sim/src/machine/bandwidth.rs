//! Bandwidth with queueing: the more of a node's bandwidth is used, the longer an access to it
//! takes.
//!
//! Every [`PERIOD`] the lines that a node has served since the last time are compared with what it
//! can serve. The latency is the idle one times a factor: 1 / (1 - u / 2) while the utilisation u
//! is below 90 % (half of the time in a queue with regular service, M/D/1), and above that the
//! factor that holds the utilisation there. Threads wait for their accesses, so the rate follows
//! from the latency (Little's law: threads = rate x latency) and the factor settles.

use thermocline_core::units::Nanos;

/// Time between two measurements of the traffic.
pub const PERIOD: Nanos = Nanos::from_ms(1);
/// Utilisation from which the factor no longer follows the queue's formula, but keeps the
/// utilisation from growing.
const FULL: f64 = 0.9;
/// The factor at that utilisation.
const QUEUE_MAX: f64 = 1.0 / (1.0 - FULL / 2.0);
/// Upper bound of the factor: no queue is longer than the threads that wait in it.
const FACTOR_MAX: f64 = 1000.0;

/// The load of a node.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    /// Bytes a second.
    limit: f64,
    factor: f64,
}

impl Bandwidth {
    /// An idle node that can serve `limit` bytes a second.
    pub fn new(limit: f64) -> Bandwidth {
        Bandwidth { limit, factor: 1.0 }
    }

    /// The factor on the idle latency.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// `bytes` were served within `span`; returns the factor from now on.
    pub fn served(&mut self, bytes: f64, span: Nanos) -> f64 {
        let used = bytes * 1e9 / span.0.max(1) as f64 / self.limit;
        let queue = 1.0 / (1.0 - used.min(FULL) / 2.0);
        // Above the formula's range, adjust the factor to hold the utilisation; come down the same
        // way.
        let above = self.factor * (used / FULL).clamp(0.5, 2.0);
        let wanted = if used > FULL || self.factor > QUEUE_MAX { queue.max(above) } else { queue };
        // Half of the way each time: the rate responds to the factor only in the next period.
        self.factor = ((self.factor + wanted) / 2.0).clamp(1.0, FACTOR_MAX);
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate in lines a second and the latency in ns that `threads` threads settle at.
    fn settle(threads: f64, idle_ns: f64, limit: f64) -> (f64, f64) {
        let mut node = Bandwidth::new(limit);
        let mut rate = 0.0;
        for _ in 0..200 {
            rate = threads / (idle_ns * node.factor()) * 1e9;
            node.served(rate * 64.0 * PERIOD.0 as f64 / 1e9, PERIOD);
        }
        (rate, idle_ns * node.factor())
    }

    #[test]
    fn few_threads_see_the_idle_latency() {
        let (_, latency) = settle(1.0, 100.0, 50e9);
        assert!((latency - 100.0).abs() < 2.0, "{latency}");
    }

    #[test]
    fn many_threads_share_what_there_is_and_obey_little() {
        for threads in [64.0, 256.0, 1024.0] {
            let (rate, latency) = settle(threads, 100.0, 12.8e9);
            assert!((rate * 64.0 / 12.8e9 - FULL).abs() < 0.01, "{threads} threads: {rate}");
            assert!((rate * latency / 1e9 / threads - 1.0).abs() < 1e-9, "{threads} threads");
        }
    }

    #[test]
    fn latency_grows_with_the_load() {
        let mut last = 0.0;
        for threads in 1..100 {
            let (_, latency) = settle(f64::from(threads), 100.0, 12.8e9);
            assert!(latency >= last * 0.999, "{threads}");
            last = latency;
        }
    }
}
