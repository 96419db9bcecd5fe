//! What happened in a scope in one period.

use crate::access::Pressure;
use crate::units::Nanos;

/// Base pages in flight from which a period counts as one with moves; fewer do not allow a
/// judgement.
pub(super) const MOVING_PAGES: u64 = 64;

/// Shares of the time in which tasks waited for memory, in 1/10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    /// Some of the tasks.
    pub(super) some_bp: u32,
    /// All of them at once.
    pub(super) full_bp: u32,
}

/// See the module's description.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// The latest totals reported before the period, and those reported in it.
    before: Option<Pressure>,
    last: Option<Pressure>,
    /// Base pages of batches in flight now.
    in_flight: u64,
    /// Base pages of batches in flight when the period began.
    carried: u64,
    /// Base pages that were issued in batches.
    issued: u64,
    /// Base pages demoted by a demand.
    demoted: u64,
    /// Base pages that batches have moved, and those of them that had been moved before.
    moved: u64,
    again: u64,
}

impl Tally {
    /// Takes totals. Those of a recreated cgroup start again at 0.
    pub(super) fn tell(&mut self, pressure: &Pressure) {
        if let Some(last) = self.last {
            if pressure.time <= last.time {
                return;
            }
            if pressure.some_us < last.some_us || pressure.full_us < last.full_us {
                self.before = None;
            }
        }
        self.before = self.before.or(Some(*pressure));
        self.last = Some(*pressure);
    }

    pub(super) fn issue(&mut self, pages: u64) {
        self.issued = self.issued.saturating_add(pages);
        self.in_flight = self.in_flight.saturating_add(pages);
    }

    pub(super) fn land(&mut self, pages: u64) {
        self.in_flight = self.in_flight.saturating_sub(pages);
    }

    pub(super) fn moved(&mut self, pages: u64, again: bool) {
        self.moved = self.moved.saturating_add(pages);
        self.again = self.again.saturating_add(if again { pages } else { 0 });
    }

    pub(super) fn demoted(&mut self, pages: u64) {
        self.demoted = self.demoted.saturating_add(pages);
    }

    /// Whether enough pages were moving for harm to be possible.
    pub(super) fn is_moving(&self) -> bool {
        self.carried.saturating_add(self.issued).saturating_add(self.demoted) >= MOVING_PAGES
    }

    /// How much tasks waited, if that was reported.
    pub(super) fn stall(&self) -> Option<Stall> {
        let (before, last) = (self.before?, self.last?);
        let span_us = last.time.since(before.time).0 / 1000;
        let share_bp = |us: u64| (u128::from(us) * 10_000).checked_div(u128::from(span_us));
        let of = |us| share_bp(us).map(|bp| bp.min(10_000) as u32);
        let some_bp = of(last.some_us.saturating_sub(before.some_us))?;
        Some(Stall { some_bp, full_bp: of(last.full_us.saturating_sub(before.full_us))? })
    }

    /// Pages that had been moved before, of those moved, in 1/10000, where enough have moved.
    pub(super) fn again_bp(&self) -> Option<u32> {
        let bp = u128::from(self.again) * 10_000 / u128::from(self.moved.max(1));
        (self.moved >= MOVING_PAGES).then_some(bp as u32)
    }

    /// Share of the limits that batches and demands used, in 1/10000: the larger of the two.
    pub(super) fn used_bp(&self, batch_limit_pages: u64, demand_limit_pages: u64, span: Nanos) -> u64 {
        let used = |pages: u64, limit_pages: u64| {
            let most = u128::from(limit_pages.max(1)) * u128::from(span.0.max(1));
            u64::try_from(u128::from(pages) * 10_000 * 1_000_000_000 / most).unwrap_or(u64::MAX)
        };
        used(self.issued, batch_limit_pages).max(used(self.demoted, demand_limit_pages))
    }

    /// The next period begins.
    pub(super) fn next(&mut self) {
        *self = Tally {
            before: self.last,
            last: self.last,
            in_flight: self.in_flight,
            carried: self.in_flight,
            ..Tally::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ScopeId;

    fn told(tally: &mut Tally, ms: u64, some_us: u64, full_us: u64) {
        tally.tell(&Pressure { scope: ScopeId(1), time: Nanos::from_ms(ms), some_us, full_us });
    }

    #[test]
    fn stalls_are_shares_of_the_time_between_two_tellings() {
        let mut t = Tally::default();
        told(&mut t, 1000, 500_000, 0);
        assert_eq!(t.stall(), None, "one telling is no span");
        told(&mut t, 2000, 700_000, 100_000);
        assert_eq!(t.stall(), Some(Stall { some_bp: 2000, full_bp: 1000 }));
        t.next();
        assert_eq!(t.stall(), None, "nothing was told in this period");
        told(&mut t, 2000, 900_000, 100_000);
        assert_eq!(t.stall(), None, "what is not newer says nothing");
        told(&mut t, 6000, 90_000_000, 1_100_000);
        assert_eq!(t.stall(), Some(Stall { some_bp: 10_000, full_bp: 2500 }));
        t.next();
        told(&mut t, 7000, 10, 10);
        assert_eq!(t.stall(), None, "the cgroup is another one");
        told(&mut t, 8000, 100_010, 10);
        assert_eq!(t.stall(), Some(Stall { some_bp: 1000, full_bp: 0 }));
    }

    #[test]
    fn what_is_on_its_way_makes_the_next_period_one_with_moves() {
        let mut t = Tally::default();
        t.issue(40);
        assert!(!t.is_moving(), "a few pages");
        t.demoted(24);
        assert!(t.is_moving());
        t.issue(60);
        t.land(40);
        t.next();
        assert!(!t.is_moving());
        t.issue(4);
        assert!(t.is_moving(), "60 are still on their way");
        t.land(64);
        t.next();
        assert!(!t.is_moving());
    }

    #[test]
    fn shares_of_pages_and_of_rates() {
        let mut t = Tally::default();
        t.moved(63, true);
        assert_eq!(t.again_bp(), None);
        t.moved(63, false);
        assert_eq!(t.again_bp(), Some(5000));
        t.issue(512);
        t.demoted(1024);
        assert_eq!(t.used_bp(1024, 4096, Nanos::from_s(2)), 2500);
        assert_eq!(t.used_bp(8192, 4096, Nanos::from_s(2)), 1250);
        assert_eq!(Tally::default().used_bp(0, 0, Nanos(0)), 0);
    }
}
