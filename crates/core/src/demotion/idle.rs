//! How cold is cold enough: the idle time follows what comes back.

use crate::config;
use crate::units::Nanos;

/// Pages promoted again within a look, below which nothing is concluded.
const PAGES_MIN: u64 = 64;

/// The idle time and what came back since it was last judged.
#[derive(Debug)]
pub(super) struct Idle {
    least: Nanos,
    most: Nanos,
    again_percent: u64,
    now: Nanos,
    judge_at: Option<Nanos>,
    demoted: u64,
    again: u64,
}

impl Idle {
    pub(super) fn new(keys: &config::Demotion) -> Idle {
        let least = Nanos::from_ms(keys.idle_ms);
        Idle {
            least,
            most: Nanos::from_ms(keys.idle_max_ms).max(least),
            again_percent: keys.again_percent.into(),
            now: least,
            judge_at: None,
            demoted: 0,
            again: 0,
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    pub(super) fn demoted(&mut self, pages: u64) {
        self.demoted = self.demoted.saturating_add(pages);
    }

    pub(super) fn promoted_again(&mut self, pages: u64) {
        self.again = self.again.saturating_add(pages);
    }

    /// Judges once in twice the idle time: what went down has then had the time to come back.
    pub(super) fn tick(&mut self, now: Nanos) {
        let span = Nanos(self.now.0.saturating_mul(2));
        if now < *self.judge_at.get_or_insert(now.plus(span)) {
            return;
        }
        let (again, demoted) = (u128::from(self.again) * 100, u128::from(self.demoted));
        let limit = demoted * u128::from(self.again_percent);
        if self.again >= PAGES_MIN && again > limit {
            self.now = Nanos(self.now.0.saturating_mul(2)).min(self.most);
        } else if again * 2 <= limit {
            self.now = Nanos(self.now.0 / 2).max(self.least);
        }
        (self.demoted, self.again) = (0, 0);
        self.judge_at = Some(now.plus(Nanos(self.now.0.saturating_mul(2))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> Idle {
        Idle::new(&config::Demotion { idle_ms: 1000, idle_max_ms: 5000, ..config::Demotion::default() })
    }

    /// Ticks until the next judgement.
    fn judged(idle: &mut Idle, now: &mut Nanos, demoted: u64, again: u64) -> u64 {
        idle.tick(*now);
        idle.demoted(demoted);
        idle.promoted_again(again);
        *now = now.plus(Nanos(idle.now().0 * 2));
        idle.tick(*now);
        idle.now().ms()
    }

    #[test]
    fn the_idle_time_doubles_while_pages_come_back_and_is_halved_when_they_stay() {
        let (mut idle, mut now) = (idle(), Nanos(0));
        let mut course = Vec::new();
        for (demoted, again) in [(1000, 251), (1000, 400), (1000, 900), (1000, 200), (1000, 125), (0, 0)] {
            course.push(judged(&mut idle, &mut now, demoted, again));
        }
        assert_eq!(course, [2000, 4000, 5000, 5000, 2500, 1250]);
        assert_eq!(judged(&mut idle, &mut now, 0, 0), 1000);
    }

    #[test]
    fn a_few_pages_say_nothing() {
        let (mut idle, mut now) = (idle(), Nanos(0));
        assert_eq!(judged(&mut idle, &mut now, 10, 63), 1000);
        assert_eq!(judged(&mut idle, &mut now, 10, 64), 2000);
    }
}
