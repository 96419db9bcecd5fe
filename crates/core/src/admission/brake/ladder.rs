//! How far a scope is braked: harm halves its rate, a period without harm doubles it. The lowest
//! level is a standstill of limited duration.

use crate::units::Nanos;

/// The slowest that a scope moves is 1/2^6 of its rate: at the default limit 4 MB/s.
const SLOWEST_MAX: u8 = 6;
/// The share of its rate that a free scope has, in 1/10000.
const FREE_BP: u64 = 10_000;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder {
    /// 0: free; n: 1/2^n of the rate; above the slowest, nothing moves.
    level: u8,
    slowest: u8,
    /// When a standstill ends.
    until: Nanos,
    /// How long the next one is.
    stop: Nanos,
    stop_least: Nanos,
    stop_most: Nanos,
}

impl Ladder {
    /// For a rate that allows `most` pages in a period; harm can be judged from `least` pages on.
    pub(super) fn new(most: u64, least: u64, stop_least: Nanos, stop_most: Nanos) -> Ladder {
        let halvings = (most / least.max(1)).checked_ilog2().unwrap_or(0);
        let slowest = SLOWEST_MAX.min(u8::try_from(halvings).unwrap_or(SLOWEST_MAX));
        Ladder { level: 0, slowest, until: Nanos(0), stop: stop_least, stop_least, stop_most }
    }

    /// Takes the bounds of `new`: a stop runs to its end, and the next keeps to them.
    pub(super) fn reload(&mut self, new: &Ladder) {
        let stopped = self.is_stopped();
        (self.slowest, self.stop_least, self.stop_most) = (new.slowest, new.stop_least, new.stop_most);
        self.level = if stopped { self.slowest + 1 } else { self.level.min(self.slowest) };
        self.stop = self.stop.clamp(self.stop_least, self.stop_most.max(self.stop_least));
    }

    pub(super) fn is_free(&self) -> bool {
        self.level == 0
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.level > self.slowest
    }

    /// Share of its rate that the scope has, in 1/10000.
    pub(super) fn rate_bp(&self) -> u64 {
        self.of(FREE_BP)
    }

    /// The scope's part of `limit` pages a second; at least one page, unless it is stopped.
    pub(super) fn of(&self, limit: u64) -> u64 {
        if self.is_stopped() { 0 } else { (limit >> self.level).max(1) }
    }

    /// A period did harm in which the scope used `used_bp` of its rate. To have an effect, the new
    /// rate is below the rate used.
    pub(super) fn harm(&mut self, now: Nanos, used_bp: u64) {
        if self.is_stopped() {
            return self.calm(now);
        }
        self.level += 1;
        while self.level < self.slowest && self.rate_bp() >= used_bp {
            self.level += 1;
        }
        if self.is_stopped() {
            self.until = now.plus(self.stop);
            self.stop = Nanos(self.stop.0.saturating_mul(2)).min(self.stop_most.max(self.stop_least));
        }
    }

    /// A period did no harm.
    pub(super) fn calm(&mut self, now: Nanos) {
        if self.is_free() || self.is_stopped() && now < self.until {
            return;
        }
        self.level -= 1;
        if self.is_free() {
            self.stop = self.stop_least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Nanos = Nanos::from_s(2);

    fn ladder() -> Ladder {
        Ladder::new(1 << 20, 1, Nanos::from_s(8), Nanos::from_s(20))
    }

    #[test]
    fn harm_halves_and_calm_doubles() {
        let mut l = ladder();
        let mut course = Vec::new();
        for harm in [true, true, true, false, true, false, false, false, false] {
            if harm {
                l.harm(Nanos(0), 20_000)
            } else {
                l.calm(Nanos(0))
            }
            course.push(l.rate_bp());
        }
        assert_eq!(course, [5000, 2500, 1250, 2500, 1250, 2500, 5000, 10_000, 10_000]);
        assert_eq!((l.of(65_536), l.is_free()), (65_536, true));
    }

    #[test]
    fn a_scope_that_uses_little_of_its_rate_feels_it_too() {
        for (used_bp, rate_bp) in [(10_000, 5000), (5001, 5000), (5000, 2500), (700, 625), (3, 156)] {
            let mut l = ladder();
            l.harm(Nanos(0), used_bp);
            assert_eq!(l.rate_bp(), rate_bp, "{used_bp}");
        }
    }

    #[test]
    fn a_rate_at_which_harm_would_not_show_is_not_tried() {
        for (most, least, steps) in
            [(1023, 128, 2), (1024, 128, 3), (127, 128, 0), (0, 0, 0), (u64::MAX, 1, 6)]
        {
            let mut l = Ladder::new(most, least, PERIOD, PERIOD);
            let mut taken = 0;
            loop {
                l.harm(Nanos(0), u64::MAX);
                if l.is_stopped() {
                    break;
                }
                taken += 1;
            }
            assert_eq!((taken, l.rate_bp()), (steps, 0), "{most} by {least}");
        }
    }

    /// Time until something may move again, from the harm at the least rate on.
    fn standstill(l: &mut Ladder, now: &mut Nanos) -> Nanos {
        l.harm(*now, 0);
        while !l.is_stopped() {
            l.harm(*now, 0);
        }
        let start = *now;
        while l.is_stopped() {
            assert_eq!(l.of(1 << 40), 0);
            *now = now.plus(PERIOD);
            l.calm(*now);
        }
        now.since(start)
    }

    #[test]
    fn a_standstill_ends_and_is_longer_each_time_until_the_scope_was_free() {
        let (mut l, mut now) = (ladder(), Nanos(0));
        let spans: Vec<u64> = (0..4).map(|_| standstill(&mut l, &mut now).0 / 1_000_000_000).collect();
        assert_eq!(spans, [8, 16, 20, 20]);
        assert_eq!(l.of(64), 1, "the least rate is tried first");
        for _ in 0..SLOWEST_MAX {
            l.calm(now);
        }
        assert!(l.is_free());
        assert_eq!(standstill(&mut l, &mut now), Nanos::from_s(8));
    }
}
