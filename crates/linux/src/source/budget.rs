//! A rate limit with a small reserve.

use thermocline_core::units::Nanos;

/// Unused budget is saved for at most this long.
const SAVED: Nanos = Nanos::from_ms(250);

/// Pages that may be looked up in a second.
#[derive(Debug)]
pub(super) struct Budget {
    per_s: u64,
    /// Remaining budget, in billionths.
    saved: u64,
    /// When that was last computed.
    at: Option<Nanos>,
}

impl Budget {
    pub(super) fn new(per_s: u32) -> Budget {
        Budget { per_s: per_s.into(), saved: 0, at: None }
    }

    /// The number available now.
    pub(super) fn available(&mut self, now: Nanos) -> u64 {
        let since = self.at.map_or(SAVED, |at| now.since(at).min(SAVED));
        self.at = Some(now);
        let most = self.per_s.saturating_mul(SAVED.0);
        self.saved = self.saved.saturating_add(self.per_s.saturating_mul(since.0)).min(most);
        self.saved / 1_000_000_000
    }

    /// Takes `used` from the budget.
    pub(super) fn spend(&mut self, used: u64) {
        self.saved = self.saved.saturating_sub(used.saturating_mul(1_000_000_000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_a_second_is_saved_up_and_no_more() {
        let mut budget = Budget::new(400);
        assert_eq!(budget.available(Nanos::from_s(9)), 100);
        budget.spend(100);
        assert_eq!(budget.available(Nanos::from_s(9)), 0);
        assert_eq!(budget.available(Nanos::from_ms(9100)), 40);
        budget.spend(10);
        assert_eq!(budget.available(Nanos::from_s(60)), 100);
        budget.spend(1000);
        assert_eq!(budget.available(Nanos::from_s(60)), 0, "never in debt");
    }
}
