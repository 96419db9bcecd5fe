//! Limits the processor time of a thread.

use std::time::Duration;

/// Time that must pass for each unit of processor time: the thread has a quarter of a processor.
const TIME_PER_CPU_TIME: u32 = 4;
/// Processor time that can be saved up, for a burst.
const BURST: Duration = Duration::from_millis(100);

/// What a thread has used of its share. Times are given since the thread began.
#[derive(Debug, Default)]
pub struct Budget {
    /// Processor time up to the last call.
    used: Duration,
    /// When the time used so far is paid for.
    paid_at: Duration,
}

impl Budget {
    /// How long the thread must pause, having used `cpu_time` by `now`.
    pub fn pause(&mut self, now: Duration, cpu_time: Duration) -> Duration {
        let cost = cpu_time.saturating_sub(self.used) * TIME_PER_CPU_TIME;
        self.used = cpu_time;
        let saved_up = BURST * TIME_PER_CPU_TIME;
        self.paid_at = self.paid_at.max(now.saturating_sub(saved_up)) + cost;
        self.paid_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_thread_that_always_has_work_gets_a_quarter_of_the_time() {
        let mut budget = Budget::default();
        let (mut now, mut cpu_time) = (Duration::from_secs(100), Duration::ZERO);
        let start = now;
        while now < start + Duration::from_secs(60) {
            now += 3 * MS;
            cpu_time += 3 * MS;
            now += budget.pause(now, cpu_time);
        }
        let allowed = (now - start) / TIME_PER_CPU_TIME;
        assert!(cpu_time <= allowed + BURST && cpu_time + 3 * MS >= allowed, "{cpu_time:?} in {now:?}");
    }

    #[test]
    fn bursts_are_short_and_need_no_pause() {
        let mut budget = Budget::default();
        // 5 ms each 15 s, as a scraper needs.
        for n in 1..100 {
            assert_eq!(budget.pause(Duration::from_secs(15 * n), 5 * MS * n as u32), Duration::ZERO);
        }
        // However long it was idle, it has saved up no more than a burst.
        let now = Duration::from_secs(10_000);
        assert_eq!(budget.pause(now, 495 * MS + BURST), Duration::ZERO);
        assert_eq!(budget.pause(now, 496 * MS + BURST), TIME_PER_CPU_TIME * MS);
    }
}
