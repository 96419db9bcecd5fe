//! The period of hardware samples: S1's formula, within a budget of CPU time.
//!
//! Every 250 samples of memory the period is adapted by the formula that S1 uses, within its
//! bounds. S1 adapts for each task; an event that samples a CPU has no task, so there is one period
//! for all. Samples of the top tier count as local, those of lower tiers as remote and shared: the
//! larger the share of samples on lower tiers, the shorter the period, and once hot pages are in
//! the top tier it grows to its maximum.
//!
//! Once a second the cost of sampling is compared with the budget. If it is above, the period gets
//! longer in proportion, beyond S1's bounds if necessary; if it is below, that is taken back, by at
//! most half per second.

use crate::config::HwSample;
use crate::published::scan_period::{Accesses, adapt};
use crate::units::Nanos;

/// Samples of memory between two adaptations (S1: `access_faults_threshold`).
const SAMPLES: u64 = 250;

/// Time between two checks of the budget.
const LOOK_EVERY: Nanos = Nanos::from_s(1);
/// Estimated CPU time of one sample on the CPU that it interrupts: registers, the walk for address
/// and page size, the record. It has not been measured on silicon; S1 reports 7.35 us for a sample
/// including its consequences, such as migration.
pub const INTERRUPT_NS: u64 = 2000;
/// Longest period that the budget asks for.
const PERIOD_MAX: u32 = 0x07ff_fff0;

/// Keeps the period.
#[derive(Clone, Debug)]
pub struct SamplePeriod {
    min: u32,
    max: u32,
    /// The period by S1's formula.
    adapted: u32,
    /// Lower bound required by the budget; 0 while the budget is kept.
    floor: u32,
    since: Accesses,
    /// Nanoseconds per second that sampling may take.
    budget_ns: u64,
    looked: Nanos,
    spent_ns: u64,
    throttled: bool,
}

impl SamplePeriod {
    /// The period as configured, for sampling on `cpus` CPUs from `now` on.
    pub fn new(config: &HwSample, cpus: usize, now: Nanos) -> SamplePeriod {
        let max = config.period_max.max(config.period_min);
        SamplePeriod {
            min: config.period_min,
            max,
            adapted: config.period.clamp(config.period_min, max),
            floor: 0,
            since: Accesses::default(),
            budget_ns: cpus as u64 * u64::from(config.cpu_budget_permille) * 1_000_000,
            looked: now,
            spent_ns: 0,
            throttled: false,
        }
    }

    /// The period now, in events.
    pub fn events(&self) -> u32 {
        self.adapted.max(self.floor)
    }

    /// Whether the budget makes it longer.
    pub fn budgeted(&self) -> bool {
        self.floor > self.adapted
    }

    /// Samples were read: `useful` of lower tiers, `local` of the top tier, among `taken`; reading
    /// took `cpu_ns`. Some CPUs were `throttled` by the kernel.
    pub fn read(&mut self, taken: u64, useful: u64, local: u64, cpu_ns: u64, throttled: bool) {
        self.spent_ns += cpu_ns + taken * INTERRUPT_NS;
        self.throttled |= throttled;
        self.since.local += local;
        self.since.remote += useful;
        self.since.shared += useful;
        if self.since.local + self.since.remote >= SAMPLES {
            self.adapted = adapt(self.adapted, self.min, self.max, &self.since);
            self.since = Accesses::default();
        }
    }

    /// Compares the cost with the budget, once a second.
    pub fn look(&mut self, now: Nanos) {
        let elapsed = now.since(self.looked);
        if elapsed < LOOK_EVERY {
            return;
        }
        let allowed = self.budget_ns as f64 * elapsed.0 as f64 / 1e9;
        // The kernel stops an event that interrupts too often: so its cost was too high in any
        // case.
        let least = if self.throttled { 2.0 } else { 0.0 };
        let load = (self.spent_ns as f64 / allowed.max(1.0)).max(least);
        if load > 1.0 || self.floor > 0 {
            let floor = f64::from(self.events()) * load.max(0.5);
            self.floor =
                if floor > f64::from(self.adapted) { floor.min(f64::from(PERIOD_MAX)) as u32 } else { 0 };
        }
        self.looked = now;
        self.spent_ns = 0;
        self.throttled = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On two CPUs with one percent each.
    fn period() -> SamplePeriod {
        SamplePeriod::new(&HwSample::default(), 2, Nanos(0))
    }

    #[test]
    fn it_starts_as_configured_and_follows_s1_within_its_bounds() {
        let mut p = period();
        assert_eq!(p.events(), 10_000);
        p.read(249, 249, 0, 0, false);
        assert_eq!(p.events(), 10_000, "250 samples first");
        p.read(1, 1, 0, 0, false);
        // All of them remote and shared: seven slots of a tenth shorter, no shorter than the bound.
        assert_eq!(p.events(), 5_000);
        for _ in 0..20 {
            p.read(2500, 250, 2250, 0, false);
        }
        assert_eq!(p.events(), 20_000, "nine of ten were local");
    }

    #[test]
    fn once_all_samples_are_local_it_grows_to_its_maximum() {
        let mut p = period();
        p.read(250, 250, 0, 0, false);
        assert_eq!(p.events(), 5_000);
        let mut periods = Vec::new();
        for _ in 0..6 {
            p.read(250, 0, 250, 0, false);
            periods.push(p.events());
        }
        // Three slots of a tenth each time.
        assert_eq!(periods, [6_500, 8_450, 10_985, 14_282, 18_569, 20_000]);
    }

    #[test]
    fn the_budget_makes_it_longer_and_is_taken_back() {
        let mut p = period();
        // 20 ms a second are allowed; 40,000 samples at 2 us and 0.2 us of reading are 88 ms.
        p.read(40_000, 0, 0, 8_000_000, false);
        p.look(Nanos::from_ms(500));
        assert_eq!(p.events(), 10_000, "not before the second is over");
        p.look(Nanos::from_s(1));
        assert_eq!((p.events(), p.budgeted()), (44_000, true));
        p.look(Nanos::from_s(2));
        assert_eq!(p.events(), 22_000);
        p.look(Nanos::from_s(3));
        assert_eq!((p.events(), p.budgeted()), (11_000, true));
        p.look(Nanos::from_s(4));
        assert_eq!((p.events(), p.budgeted()), (10_000, false));
    }

    #[test]
    fn at_the_budget_it_stays() {
        let mut p = period();
        p.read(20_000, 0, 0, 0, false);
        p.look(Nanos::from_s(1));
        assert_eq!(p.events(), 20_000);
        p.read(10_000, 0, 0, 0, false);
        p.look(Nanos::from_s(2));
        assert_eq!(p.events(), 20_000);
    }

    #[test]
    fn being_throttled_doubles_it_and_it_ends_somewhere() {
        let mut p = period();
        for s in 1..100 {
            p.read(1, 0, 0, 0, true);
            p.look(Nanos::from_s(s));
        }
        assert_eq!(p.events(), PERIOD_MAX);
    }
}
