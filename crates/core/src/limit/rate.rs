//! Check: the rate limit.
//!
//! The law: in any sliding second at most the limit, or one folio where that is larger, is issued.
//! Issued pages are kept in slots of about 8 ms, each dated by its latest part, so a slot leaves
//! the second no sooner than any of its parts. A folio larger than the limit is charged to as many
//! seconds as the limit needs for it.

use std::collections::VecDeque;

use crate::units::Nanos;

const SECOND: Nanos = Nanos::from_s(1);
/// log2 of a slot's length in ns.
const SLOT_SHIFT: u32 = 23;

/// Pages issued within the last second.
#[derive(Debug)]
pub(crate) struct Rate {
    limit_pages: u64,
    used_pages: u64,
    slots: VecDeque<(Nanos, u64)>,
}

impl Rate {
    pub(crate) fn new(limit_pages: u64) -> Rate {
        Rate { limit_pages: limit_pages.max(1), used_pages: 0, slots: VecDeque::new() }
    }

    /// Pages that may be issued in any second.
    pub(crate) fn limit(&self) -> u64 {
        self.limit_pages
    }

    /// Takes another limit; what was issued within the last second counts against it.
    pub(crate) fn set_limit(&mut self, limit_pages: u64) {
        self.limit_pages = limit_pages.max(1);
    }

    /// Whether `pages` may be issued `now`; time does not go backwards.
    pub(crate) fn fits(&mut self, now: Nanos, pages: u64) -> bool {
        self.advance(now);
        self.used_pages == 0 || self.used_pages.saturating_add(pages) <= self.limit_pages
    }

    /// Pages that may be issued `now`.
    pub(crate) fn room(&mut self, now: Nanos) -> u64 {
        self.advance(now);
        self.limit_pages.saturating_sub(self.used_pages)
    }

    /// Records that `pages` are issued `now`. Those that did not fit are charged to the following
    /// seconds.
    pub(crate) fn charge(&mut self, now: Nanos, mut pages: u64) {
        self.advance(now);
        let mut time = now;
        while pages > 0 {
            let part = pages.min(self.limit_pages);
            match self.slots.back_mut() {
                Some((last, sum)) if last.0 >> SLOT_SHIFT >= time.0 >> SLOT_SHIFT => {
                    *last = time.max(*last);
                    *sum += part;
                }
                _ => self.slots.push_back((time, part)),
            }
            self.used_pages += part;
            pages -= part;
            time = time.plus(SECOND);
        }
    }

    /// Drops slots that are a second old.
    fn advance(&mut self, now: Nanos) {
        while let Some(&(time, old)) = self.slots.front() {
            if time.plus(SECOND) > now {
                break;
            }
            self.slots.pop_front();
            self.used_pages -= old;
        }
    }

    /// Slots kept; a second of them, and one a second that large folios are charged to.
    #[cfg(test)]
    fn slots(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_takes_the_limit_and_no_more() {
        let mut rate = Rate::new(100);
        assert!(rate.fits(Nanos(0), 100));
        rate.charge(Nanos(0), 60);
        assert!(rate.fits(Nanos::from_ms(500), 40));
        assert!(!rate.fits(Nanos::from_ms(500), 41));
        rate.charge(Nanos::from_ms(500), 40);
        assert!(!rate.fits(Nanos(999_999_999), 1));
        assert!(rate.fits(Nanos::from_s(1), 60));
        assert!(!rate.fits(Nanos::from_s(1), 61));
    }

    #[test]
    fn a_folio_beyond_the_limit_is_paid_in_the_seconds_after() {
        let mut rate = Rate::new(100);
        assert!(rate.fits(Nanos(0), 512), "alone it may go, or it would never go");
        rate.charge(Nanos(0), 512);
        for s in 0..=4 {
            assert!(!rate.fits(Nanos::from_s(s), 100), "second {s} is taken");
        }
        assert!(rate.fits(Nanos::from_s(5), 88), "the sixth second has 12 pages of it");
        assert!(!rate.fits(Nanos::from_s(5), 89));
        assert!(rate.fits(Nanos::from_s(6), 100));
    }

    #[test]
    fn another_limit_counts_what_was_issued_before() {
        let mut rate = Rate::new(100);
        rate.charge(Nanos(0), 80);
        rate.set_limit(50);
        assert!(!rate.fits(Nanos::from_ms(999), 1));
        rate.set_limit(200);
        assert!(rate.fits(Nanos::from_ms(999), 120));
        assert!(!rate.fits(Nanos::from_ms(999), 121));
    }

    #[test]
    fn many_small_charges_take_few_slots() {
        let mut rate = Rate::new(u64::MAX / 2);
        for us in 0..3_000_000 {
            let now = Nanos(us * 1000);
            assert!(rate.fits(now, 1));
            rate.charge(now, 1);
            assert!(rate.slots() <= 121, "{} slots", rate.slots());
        }
    }
}
