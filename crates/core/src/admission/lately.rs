//! How many pages were promoted of a scope in the last seconds.

use crate::units::Nanos;

/// What was promoted in this time is expected again in the next. Ours: as long as a candidate waits
/// by default (`queue.expire_ms`).
const WINDOW: Nanos = Nanos::from_s(10);

/// Pages in the window that is filling and in the full one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lately {
    begin: Nanos,
    filling: u64,
    before: u64,
}

impl Lately {
    pub(super) fn add(&mut self, now: Nanos, pages: u64) {
        let windows = now.since(self.begin).0 / WINDOW.0;
        if windows > 0 {
            self.before = if windows == 1 { self.filling } else { 0 };
            (self.begin, self.filling) = (Nanos(now.0 - now.0 % WINDOW.0), 0);
        }
        self.filling = self.filling.saturating_add(pages);
    }

    /// Pages in the last window's length of time: of the window before, its part that is not over.
    pub(super) fn pages(&self, now: Nanos) -> u64 {
        let part = |pages: u64, passed: u64| {
            let left = WINDOW.0.saturating_sub(passed);
            (u128::from(pages) * u128::from(left) / u128::from(WINDOW.0)) as u64
        };
        let passed = now.since(self.begin).0;
        match passed / WINDOW.0 {
            0 => self.filling.saturating_add(part(self.before, passed)),
            _ => part(self.filling, passed - WINDOW.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_count_for_a_window_and_fade_in_the_next() {
        let mut lately = Lately::default();
        let at = |ms| Nanos::from_ms(ms);
        assert_eq!(lately.pages(at(99_000)), 0);
        lately.add(at(21_000), 100);
        lately.add(at(29_000), 300);
        assert_eq!(
            [21_000, 29_999, 30_000, 35_000, 40_000, 90_000].map(|t| lately.pages(at(t))),
            [400, 400, 400, 200, 0, 0]
        );
        lately.add(at(35_000), 50);
        assert_eq!([35_000, 40_000, 45_000, 50_000].map(|t| lately.pages(at(t))), [250, 50, 25, 0]);
        lately.add(at(70_000), 8);
        assert_eq!([70_000, 75_000].map(|t| lately.pages(at(t))), [8, 8], "one long ago counts no more");
    }
}
