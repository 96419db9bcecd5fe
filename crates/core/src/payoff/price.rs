//! The price of room in the top tier: what is lost by demoting a page for another one, in accesses
//! a second.
//!
//! * While there is more room than demotion makes, it costs nothing.
//! * What is demoted becomes a page of the lower tiers, so it is accessed as often as they are in
//!   the mean.
//! * If a share s of a node's pages has been idle for a time t, those are accessed at most
//!   -ln(s) / t times a second: were all pages alike, that would be the rate of all.
//!
//! The lesser bound counts. The mean alone is too high where what is hot is in the lower tiers
//! and what is in DRAM is idle. It is also too high where new pages turn hot all the time, because
//! these are part of the mean.

use super::classes::Passes;
use crate::demand::Supply;
use crate::units::Nanos;

/// Pages are worth an exchange if they stand out by so much from the mean: both are estimates.
const STANDS_OUT: f64 = 1.25;
/// Time for which the supply of cold pages counts.
const SUPPLY_LIFE: Nanos = Nanos::from_s(60);

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Price {
    room: bool,
    /// Pages of lower tiers, whatever is claimed of them.
    pub(super) lower: Passes,
    /// Accesses a second of idle pages in the top tier, at most, and when they were found.
    idle: Option<(f64, Nanos)>,
}

impl Price {
    /// Whether there is more room in top tiers than demotion makes.
    pub(super) fn see_room(&mut self, room: bool) {
        self.room = room;
    }

    /// A demand has ended on a node of so many pages. If it found all that it asked for, there may
    /// be more of them, so that a lower bound of before still counts.
    pub(super) fn see_supply(&mut self, supply: &Supply, node_pages: u64, now: Nanos) {
        let found = supply.asked.saturating_sub(supply.short);
        let share = (found as f64 / node_pages.max(1) as f64).min(1.0);
        let bound = -share.ln() / (supply.idle.0.max(1) as f64 / 1e9);
        let before = self
            .idle
            .filter(|(before, at)| supply.short == 0 && *before < bound && now.since(*at) < SUPPLY_LIFE);
        self.idle = before.or(Some((bound, now)));
    }

    /// Time passes.
    pub(super) fn tick(&mut self, now: Nanos, passed_s: f64) {
        self.lower.fade(passed_s);
        self.idle.take_if(|(_, at)| now.since(*at) >= SUPPLY_LIFE);
    }

    /// Accesses a second. Nothing while few pages of the lower tiers are known.
    pub(super) fn get(&self) -> f64 {
        if self.room || !self.lower.is_known() {
            return 0.0;
        }
        let mean = self.lower.rate(0.0) * STANDS_OUT;
        self.idle.map_or(mean, |(idle, _)| mean.min(idle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::DemandReason;
    use crate::units::NodeId;

    /// Pages of lower tiers that are all accessed some eight times a second.
    fn price() -> Price {
        let mut price = Price::default();
        price.lower.pass(1000.0);
        price.lower.fault(super::super::classes::octave(Nanos::from_ms(100)), 1000.0);
        price
    }

    fn supply(idle_s: u64, asked: u64, short: u64) -> Supply {
        Supply { node: NodeId(0), idle: Nanos::from_s(idle_s), reason: DemandReason::Goal, asked, short }
    }

    #[test]
    fn where_nothing_is_known_to_be_idle_room_costs_what_lower_pages_are_worth() {
        let price = price();
        assert!((price.get() - 7.6 * 1.25).abs() < 0.1, "{}", price.get());
    }

    #[test]
    fn free_room_costs_nothing() {
        let mut price = price();
        price.see_room(true);
        assert_eq!(price.get(), 0.0);
        price.see_room(false);
        assert!(price.get() > 9.0);
    }

    #[test]
    fn idle_pages_in_dram_make_it_cheap_for_a_minute() {
        let mut price = price();
        // A sixteenth of the node, idle for ten seconds: ln(16) / 10.
        price.see_supply(&supply(10, 1 << 16, 0), 1 << 20, Nanos::from_s(1));
        assert!((price.get() - 0.277).abs() < 0.001, "{}", price.get());
        // Less was asked for, and found: that says less, and nothing against it.
        price.see_supply(&supply(1, 1 << 10, 0), 1 << 20, Nanos::from_s(30));
        assert!((price.get() - 0.277).abs() < 0.001, "{}", price.get());
        price.tick(Nanos::from_s(61), 0.0);
        assert!(price.get() > 9.0);
    }

    #[test]
    fn when_idle_pages_are_found_no_more_it_is_dear_again() {
        let mut price = price();
        price.see_supply(&supply(10, 1 << 16, 0), 1 << 20, Nanos::from_s(1));
        // One page in 1024 has been idle for ten seconds: ln(1024) / 10.
        price.see_supply(&supply(10, 1 << 16, (1 << 16) - (1 << 10)), 1 << 20, Nanos::from_s(2));
        assert!((price.get() - 0.693).abs() < 0.001, "{}", price.get());
        price.see_supply(&supply(10, 1 << 16, 1 << 16), 1 << 20, Nanos::from_s(3));
        assert!(price.get() > 9.0, "{}", price.get());
    }

    #[test]
    fn pages_that_are_all_alike_make_room_no_cheaper_by_chance() {
        let mut price = price();
        // At eight accesses a second, one page in 3000 is idle for a second.
        price.see_supply(&supply(1, 1 << 16, (1 << 16) - 349), 1 << 20, Nanos::from_s(1));
        assert!(price.get() > 7.6, "{}", price.get());
    }
}
