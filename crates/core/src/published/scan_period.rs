//! The formula that adapts a period to how local and how private accesses are.
//!
//! Source: Linux 6.12 `kernel/sched/fair.c`, `update_task_scan_period`, where it sets the time
//! between two scans. S1 sets the hardware's sampling period with it, once every [`PLACEMENTS`].

use crate::units::Nanos;

/// Parts into which a period is divided for adjustment (`NUMA_PERIOD_SLOTS`).
const SLOTS: u64 = 10;
/// Slots of private or local accesses from which the period grows (`NUMA_PERIOD_THRESHOLD`).
const THRESHOLD: u64 = 7;

/// S1: placements of a task between two adaptations (`access_faults_threshold`). A useful sample is
/// a placement if the last one was at least [`placement_interval`] ago.
pub const PLACEMENTS: u32 = 250;
/// S1: sampling period at first, in micro-operations (`sample_period_def`).
pub const SAMPLE_PERIOD_UOPS: u32 = 10_000;
/// S1: shortest sampling period (`sample_period_min`).
pub const SAMPLE_PERIOD_MIN_UOPS: u32 = 5_000;
/// S1: longest sampling period (`sample_period_max`).
pub const SAMPLE_PERIOD_MAX_UOPS: u32 = 20_000;

/// S1: shortest time between two placements of a task that has a preferred node, which its first
/// [`PLACEMENTS`] give it: a sixteenth of its period taken as ms, at most 1 s (Linux 6.12
/// `numa_migrate_preferred`, where S1 has the sampling period in the field of the scan period).
pub const fn placement_interval(period_uops: u32) -> Nanos {
    let ms = period_uops as u64 / 16;
    Nanos::from_ms(if ms < 1000 { ms } else { 1000 })
}

/// A task's accesses since the last adaptation, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// To pages of the node of the CPU.
    pub local: u64,
    /// To pages of other nodes.
    pub remote: u64,
    /// To pages that the same task accessed before.
    pub private: u64,
    /// To pages that another task accessed before.
    pub shared: u64,
    /// Migrations that failed.
    pub failed: u64,
}

/// Whether there was nothing to do, or migration was too fast. Only then the process's next scan is
/// put off as well.
pub const fn is_idle(accesses: &Accesses) -> bool {
    accesses.local + accesses.shared == 0 || accesses.failed > 0
}

/// A task's faults, or the sum of a group's, by kind; older passes count less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// On pages that no other task faulted on before.
    pub private: u64,
    /// On pages that another task faulted on before.
    pub shared: u64,
}

impl Faults {
    /// After a pass with these accesses, everything before it counts half (Linux 6.12
    /// `task_numa_placement`).
    pub const fn after(self, pass: &Accesses) -> Faults {
        Faults { private: self.private / 2 + pass.private, shared: self.shared / 2 + pass.shared }
    }
}

/// Tasks that fault on each other's pages (`numa_group`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many they are.
    pub tasks: u64,
    /// The sum of their faults.
    pub faults: Faults,
}

impl Group {
    /// A task joins with the faults that it has so far.
    pub fn join(&mut self, faults: Faults) {
        self.tasks += 1;
        self.replace(Faults::default(), faults);
    }

    /// A member's faults have changed.
    pub fn replace(&mut self, then: Faults, now: Faults) {
        self.faults.private = self.faults.private - then.private + now.private;
        self.faults.shared = self.faults.shared - then.shared + now.shared;
    }

    /// The longest period of a member, in the unit of `max`, which is a lone task's (Linux 6.12
    /// `task_scan_max`). `task_scan_start` scales the shortest one likewise, but only for a task
    /// that starts or changes its node, and a task that starts has no group.
    pub fn max_ms(&self, max: u64) -> u64 {
        let Faults { private, shared } = self.faults;
        max.max(max.saturating_mul(self.tasks).saturating_mul(shared + 1) / (private + shared + 1))
    }
}

/// The next period, between `min` and `max`.
///
/// Without local and shared accesses (nothing to do), or with failed migrations (too fast), it
/// doubles. Mostly private or mostly local accesses make it longer; otherwise it gets shorter.
pub fn adapt(period: u32, min: u32, max: u32, accesses: &Accesses) -> u32 {
    if is_idle(accesses) {
        return period.saturating_mul(2).min(max);
    }
    let slot = i64::from(period.div_ceil(SLOTS as u32));
    let share = |part: u64, rest: u64| (part * SLOTS).checked_div(part + rest).unwrap_or(0);
    let local = share(accesses.local, accesses.remote);
    let private = share(accesses.private, accesses.shared);
    let slots = if private >= THRESHOLD {
        (private - THRESHOLD).max(1) as i64
    } else if local >= THRESHOLD {
        (local - THRESHOLD).max(1) as i64
    } else {
        -((THRESHOLD - local.max(private)) as i64)
    };
    (i64::from(period) + slots * slot).clamp(i64::from(min), i64::from(max)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ibs(period: u32, accesses: Accesses) -> u32 {
        adapt(period, SAMPLE_PERIOD_MIN_UOPS, SAMPLE_PERIOD_MAX_UOPS, &accesses)
    }

    #[test]
    fn it_doubles_when_there_is_nothing_to_do_and_when_migration_fails() {
        assert_eq!(ibs(5000, Accesses { remote: 250, private: 250, ..Accesses::default() }), 10_000);
        assert_eq!(ibs(15_000, Accesses::default()), 20_000);
        assert_eq!(ibs(10_000, Accesses { local: 9, shared: 9, failed: 1, ..Accesses::default() }), 20_000);
    }

    #[test]
    fn private_and_local_accesses_make_it_longer_by_slots() {
        // 10,000 in ten slots of 1,000: private 10 of 10 gives three slots, 7 of 10 and 8 of 10
        // one.
        let private = |private, shared| Accesses { local: 5, remote: 5, private, shared, failed: 0 };
        assert_eq!(ibs(10_000, private(10, 0)), 13_000);
        assert_eq!(ibs(10_000, private(9, 1)), 12_000);
        assert_eq!(ibs(10_000, private(8, 2)), 11_000);
        assert_eq!(ibs(10_000, private(7, 3)), 11_000);
        // Not private enough; local 9 of 10 gives two.
        let local = Accesses { local: 9, remote: 1, private: 0, shared: 10, failed: 0 };
        assert_eq!(ibs(10_000, local), 12_000);
    }

    #[test]
    fn remote_shared_accesses_make_it_shorter() {
        let accesses =
            |local, private| Accesses { local, remote: 10 - local, private, shared: 10 - private, failed: 0 };
        // The larger of the two shares counts: 6 of 10 is one slot less, 0 of 10 seven.
        assert_eq!(ibs(10_000, accesses(6, 3)), 9_000);
        assert_eq!(ibs(10_000, accesses(2, 6)), 9_000);
        assert_eq!(ibs(19_999, accesses(0, 0)), 19_999 - 7 * 2000);
        assert_eq!(ibs(10_000, accesses(0, 0)), 5_000);
    }

    #[test]
    fn a_group_that_shares_its_pages_is_scanned_less_often() {
        let group = |tasks, private, shared| Group { tasks, faults: Faults { private, shared } };
        // 8 GiB are 32 windows, so that a task's longest period is 1875 ms.
        assert_eq!(Group::default().max_ms(1875), 1875, "no group");
        assert_eq!(group(64, 0, 99).max_ms(1875), 64 * 1875);
        assert_eq!(group(64, 50, 49).max_ms(1875), 64 * 1875 * 50 / 100);
        assert_eq!(group(2, 99, 1).max_ms(1875), 1875, "never shorter than alone");
    }

    #[test]
    fn a_groups_faults_are_those_of_its_tasks_and_older_ones_count_half() {
        let pass = |private, shared| Accesses { private, shared, ..Accesses::default() };
        let first = Faults::default().after(&pass(101, 0));
        let second = first.after(&pass(1, 99));
        assert_eq!((first.private, second), (101, Faults { private: 51, shared: 99 }));
        let mut group = Group::default();
        group.join(first);
        group.join(first);
        group.replace(first, second);
        assert_eq!(group, Group { tasks: 2, faults: Faults { private: 152, shared: 99 } });
    }

    #[test]
    fn placements_are_up_to_a_second_apart() {
        assert_eq!(placement_interval(5000), Nanos::from_ms(312));
        assert_eq!(placement_interval(10_000), Nanos::from_ms(625));
        assert_eq!(placement_interval(20_000), Nanos::from_ms(1000));
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(
            period in 5000u32..=20_000, local in 0u64..1000, remote in 0u64..1000,
            private in 0u64..1000, shared in 0u64..1000, failed in 0u64..2,
        ) {
            let next = ibs(period, Accesses { local, remote, private, shared, failed });
            prop_assert!((5000..=20_000).contains(&next));
        }
    }
}
