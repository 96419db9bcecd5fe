//! What may still be spent, in CPU time.

use crate::access::Programs;
use crate::pace::Affordable;
use crate::units::Nanos;

/// Time between two bookings of income: with less, the programs' CPU time is too coarse.
const BOOK_EVERY: Nanos = Nanos::from_ms(500);
/// Time in which the mean of what is spent follows.
const MEAN_S: f64 = 2.0;
/// Credit at most, in seconds of income: what was gained long ago pays for nothing.
const MOST_S: f64 = 60.0;
/// What is left is spread over so much time.
const SPREAD_S: f64 = 20.0;
/// Share of the income that is spent even in debt, and where there is nothing to gain, so that
/// changes are noticed.
const LEAST: f64 = 0.25;

/// An account. As long as the programs' CPU time is unknown, nothing is limited.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// Share of the programs' CPU time.
    share: f64,
    loan_s: f64,
    booked: Option<Programs>,
    /// In ns a second; `None` while it is unknown.
    income: Option<f64>,
    /// In ns. Debts are kept in full.
    credit: f64,
    /// Since the last booking, ns.
    spent: f64,
    /// Mean of the last seconds, ns a second.
    spending: f64,
}

impl Account {
    pub(super) fn new(share: f64, loan_s: u64) -> Account {
        let loan_s = loan_s as f64;
        Account { share, loan_s, booked: None, income: None, credit: 0.0, spent: 0.0, spending: 0.0 }
    }

    /// Books income for the CPU time used since the last booking.
    pub(super) fn programs(&mut self, programs: &Programs) {
        let Some(last) = self.booked else {
            self.booked = Some(*programs);
            return;
        };
        let passed = programs.time.since(last.time);
        if passed < BOOK_EVERY {
            return;
        }
        self.booked = Some(*programs);
        let passed_s = passed.0 as f64 / 1e9;
        let earned = programs.cpu.since(last.cpu).0 as f64 * self.share;
        self.income = Some(earned / passed_s);
        self.earn(earned);
        self.spending += (self.spent / passed_s - self.spending) * (passed_s / MEAN_S).min(1.0);
        self.spent = 0.0;
    }

    pub(super) fn earn(&mut self, ns: f64) {
        self.credit = (self.credit + ns).min(self.income.unwrap_or(0.0) * MOST_S).max(self.credit);
    }

    pub(super) fn spend(&mut self, ns: f64) {
        self.spent += ns;
        self.credit -= ns;
    }

    pub(super) fn has_credit(&self) -> bool {
        self.income.is_none_or(|income| self.credit + income * self.loan_s > 0.0)
    }

    /// Credit and what is left of the loan.
    pub(super) fn left(&self) -> Nanos {
        Nanos((self.credit + self.income.unwrap_or(0.0) * self.loan_s).max(0.0) as u64)
    }

    /// What of that will be spent while the loan is paid back, at the rate at which it is now: it
    /// falls with what is left.
    fn due(&self, ordered: f64) -> f64 {
        let rate = self.spending / ordered.max(1.0);
        ordered * -(-rate * self.loan_s).exp_m1()
    }

    /// How many times as much as at the last booking may be spent; `None` while the income is
    /// unknown. To `watch` only is to notice a change. Up to `ordered` ns will be spent in any
    /// case, sooner or later.
    pub(super) fn affordable(&self, watch: bool, ordered: f64) -> Option<Affordable> {
        let (income, booked) = self.income.zip(self.booked)?;
        let all = income + (self.credit + income * self.loan_s - self.due(ordered)) / SPREAD_S;
        let rate = if watch { 0.0 } else { all };
        let factor = rate.max(income * LEAST) / self.spending.max(1.0);
        Some(Affordable { measured: booked.time, factor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An account with one percent of one CPU and a loan of 10 s, after its first second.
    fn account() -> Account {
        let mut account = Account::new(0.01, 10);
        book(&mut account, 0);
        book(&mut account, 1);
        account
    }

    fn book(account: &mut Account, s: u64) {
        account.programs(&Programs { time: Nanos::from_s(s), cpu: Nanos::from_s(s) });
    }

    #[test]
    fn the_loan_and_the_income_can_be_spent_and_no_more() {
        let mut account = account();
        // 10 ms of income, and a loan of 100.
        assert_eq!(account.left(), Nanos::from_ms(110));
        account.spend(109e6);
        assert!(account.has_credit());
        account.spend(2e6);
        assert!(!account.has_credit() && account.left() == Nanos(0));
        book(&mut account, 2);
        assert!(account.has_credit());
    }

    #[test]
    fn debts_are_paid_back_in_full() {
        let mut account = account();
        account.spend(1000e6);
        for s in 2..90 {
            book(&mut account, s);
            assert!(!account.has_credit(), "{s} s");
        }
        book(&mut account, 91);
        assert!(account.has_credit());
    }

    #[test]
    fn what_was_gained_long_ago_pays_for_nothing() {
        let mut account = account();
        account.earn(1e12);
        assert_eq!(account.left(), Nanos::from_ms(700), "60 s of income, and the loan");
    }

    #[test]
    fn while_the_programs_time_is_unknown_nothing_is_limited() {
        let mut account = Account::new(0.01, 10);
        account.spend(1e15);
        assert!(account.has_credit() && account.affordable(false, 0.0).is_none());
        book(&mut account, 0);
        assert!(account.has_credit());
    }

    #[test]
    fn spending_is_to_follow_what_is_left() {
        let mut account = account();
        account.spend(20e6);
        book(&mut account, 2);
        // 20 ms in one of two seconds are 10 a second. Left are 100, to be spread over 20 s.
        let Affordable { measured, factor } = account.affordable(false, 0.0).unwrap();
        assert_eq!(measured, Nanos::from_s(2));
        assert!((factor - (10.0 + 5.0) / 10.0).abs() < 1e-9, "{account:?}");
        // Of 100 ms that were ordered 10 a second come at first, and 63 within the loan's 10 s.
        let Affordable { factor, .. } = account.affordable(false, 100e6).unwrap();
        assert!((factor - (10.0 + (100.0 - 63.2) / 20.0) / 10.0).abs() < 1e-3, "{account:?}");
        account.spend(1e9);
        book(&mut account, 3);
        assert!(account.affordable(false, 0.0).unwrap().factor < 0.01, "{account:?}");
    }

    #[test]
    fn where_there_is_nothing_to_gain_a_quarter_of_the_income_is_spent() {
        let mut account = account();
        account.spend(20e6);
        book(&mut account, 2);
        // A mean of 10 ms a second, of which 2.5 are left.
        let Affordable { factor, .. } = account.affordable(true, 0.0).unwrap();
        assert!((factor - 0.25).abs() < 1e-9, "{account:?}");
    }
}
