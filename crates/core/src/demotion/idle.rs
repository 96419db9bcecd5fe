//! The idle time that demotion requires: far colder than the pages that wait for promotion, and
//! longer if demoted pages come back.
//!
//! * No page waits: [`idle_ms`](config::Demotion::idle_ms).
//! * Pages wait that are accessed once per *gap*: a page that has not been accessed for [`COLDER`]
//!   times as long is accessed that much less often, so the exchange pays. The idle time is at
//!   least `idle_min_ms`.
//! * If pages that we promoted are soon accessed on a lower tier again, the demoted pages were not
//!   cold: either time doubles.

use crate::config;
use crate::demand::COLDER;
use crate::units::Nanos;

/// Fewer pages that came back between two judgements lead to no conclusion.
const PAGES_MIN: u64 = 64;

/// The idle time, and the pages that came back since the last judgement.
#[derive(Debug)]
pub(super) struct Idle {
    least: Nanos,
    usual: Nanos,
    most: Nanos,
    again_percent: u64,
    /// A power of two.
    factor: u64,
    /// The idle time last requested, before the factor.
    wanted: Nanos,
    judge_at: Option<Nanos>,
    demoted: u64,
    back: u64,
}

impl Idle {
    pub(super) fn new(keys: &config::Demotion) -> Idle {
        let usual = Nanos::from_ms(keys.idle_ms);
        Idle {
            least: Nanos::from_ms(keys.idle_min_ms).min(usual),
            usual,
            most: Nanos::from_ms(keys.idle_max_ms).max(usual),
            again_percent: keys.again_percent.into(),
            factor: 1,
            wanted: usual,
            judge_at: None,
            demoted: 0,
            back: 0,
        }
    }

    /// Takes the bounds of `new`; what was learned and the current counts stay.
    pub(super) fn reload(&mut self, new: &Idle) {
        if self.wanted == self.usual {
            self.wanted = new.usual;
        }
        (self.least, self.usual, self.most) = (new.least, new.usual, new.most);
        self.again_percent = new.again_percent;
    }

    /// The idle time as last requested.
    pub(super) fn now(&self) -> Nanos {
        Nanos(self.wanted.0.saturating_mul(self.factor)).min(self.most)
    }

    /// The idle time if pages wait that are accessed once per `gap`, or if none wait.
    pub(super) fn wanted(&mut self, gap: Option<Nanos>) -> Nanos {
        let colder = |gap: Nanos| Nanos(gap.0.saturating_mul(COLDER)).max(self.least);
        self.wanted = gap.map_or(self.usual, colder);
        self.now()
    }

    /// The idle time after `halvings`, but not below the minimum.
    pub(super) fn hurried(&self, halvings: u32) -> Nanos {
        Nanos(self.now().0 >> halvings).max(self.least)
    }

    /// The idle time if nobody waits.
    pub(super) fn usual(&self) -> Nanos {
        Nanos(self.usual.0.saturating_mul(self.factor)).min(self.most)
    }

    /// The minimum idle time.
    pub(super) fn least(&self) -> Nanos {
        self.least
    }

    pub(super) fn demoted(&mut self, pages: u64) {
        self.demoted = self.demoted.saturating_add(pages);
    }

    pub(super) fn came_back(&mut self, pages: u64) {
        self.back = self.back.saturating_add(pages);
    }

    /// Judges once in twice the idle time, so that demoted pages have had time to come back.
    pub(super) fn tick(&mut self, now: Nanos) {
        let next = |idle: &Idle| now.plus(Nanos(idle.now().0.saturating_mul(2)));
        if now < *self.judge_at.get_or_insert(next(self)) {
            return;
        }
        let (again, demoted) = (u128::from(self.back) * 100, u128::from(self.demoted));
        let limit = demoted * u128::from(self.again_percent);
        if self.back >= PAGES_MIN && again > limit {
            // More would make no difference: it is capped.
            if self.now() < self.most {
                self.factor = self.factor.saturating_mul(2);
            }
        } else if again * 2 <= limit {
            self.factor = (self.factor / 2).max(1);
        }
        (self.demoted, self.back) = (0, 0);
        self.judge_at = Some(next(self));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> Idle {
        Idle::new(&config::Demotion {
            idle_ms: 1000,
            idle_min_ms: 200,
            idle_max_ms: 5000,
            ..config::Demotion::default()
        })
    }

    /// Ticks until the next judgement.
    fn judged(idle: &mut Idle, now: &mut Nanos, demoted: u64, again: u64) -> u64 {
        idle.tick(*now);
        idle.demoted(demoted);
        idle.came_back(again);
        *now = now.plus(Nanos(idle.now().0 * 2));
        idle.tick(*now);
        idle.wanted(None).ms()
    }

    #[test]
    fn the_idle_time_doubles_while_pages_come_back_and_is_halved_when_they_stay() {
        let (mut idle, mut now) = (idle(), Nanos(0));
        let mut course = Vec::new();
        for (demoted, again) in [(1000, 251), (1000, 400), (1000, 900), (1000, 900), (1000, 200)] {
            course.push(judged(&mut idle, &mut now, demoted, again));
        }
        assert_eq!(course, [2000, 4000, 5000, 5000, 5000]);
        for (demoted, again, expected) in [(1000, 125, 4000), (0, 0, 2000), (0, 0, 1000), (0, 0, 1000)] {
            assert_eq!(judged(&mut idle, &mut now, demoted, again), expected);
        }
    }

    #[test]
    fn a_few_pages_say_nothing() {
        let (mut idle, mut now) = (idle(), Nanos(0));
        assert_eq!(judged(&mut idle, &mut now, 10, 63), 1000);
        assert_eq!(judged(&mut idle, &mut now, 10, 64), 2000);
    }

    #[test]
    fn a_hurry_shortens_it_down_to_the_least() {
        let idle = idle();
        assert_eq!([0, 1, 2, 3, 16].map(|halvings| idle.hurried(halvings).ms()), [1000, 500, 250, 200, 200]);
    }

    #[test]
    fn what_goes_down_is_colder_by_far_than_what_comes_up_for_it() {
        let (mut idle, mut now) = (idle(), Nanos(0));
        let mut for_gap = |ms| idle.wanted(Some(Nanos::from_ms(ms))).ms();
        assert_eq!([100, 10, 249, 9000, 900].map(&mut for_gap), [400, 200, 996, 5000, 3600]);
        // And twice as cold when it comes back.
        assert_eq!(judged(&mut idle, &mut now, 1000, 900), 2000);
        assert_eq!(idle.wanted(Some(Nanos::from_ms(100))).ms(), 800);
    }
}
