//! The scanner's state of tasks and processes, and how its period follows from their size.

use thermocline_core::pace;
use thermocline_core::published::scan_period::{Accesses, Faults, Group};
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use crate::settings::KernelSettings;

/// MAX_SCAN_WINDOW: the kernel never scans more than this per second.
const MAX_SCAN_MB_PER_S: u64 = 2560;

/// The kernel's state of a task.
#[derive(Clone, Debug, Default)]
pub struct TaskScan {
    /// Milliseconds of CPU time from one scan to the next.
    pub period_ms: u64,
    /// CPU time at which the last period ended.
    pub(crate) stamp: Nanos,
    /// Passes for which the task has adapted its period.
    pub(crate) passes: u64,
    /// Pages recorded since.
    pub(crate) accesses: Accesses,
    /// Its faults in the passes before.
    pub(crate) faults: Faults,
    /// It belongs to the group of its process.
    pub(crate) grouped: bool,
    /// It will compute its period from its process's size at its first due tick: a forked task
    /// before that tick.
    pub(crate) fresh: bool,
}

impl TaskScan {
    /// The only thread of a forked process, which has used `cpu` of CPU time and had touched
    /// `rss_then` pages at the end of its first period, the scan delay.
    pub fn forked(settings: &KernelSettings, cpu: Nanos, rss_then: u64) -> TaskScan {
        let delay = Nanos::from_ms(settings.scan_delay_ms);
        if cpu < delay {
            return TaskScan { period_ms: settings.scan_delay_ms, fresh: true, ..TaskScan::default() };
        }
        TaskScan { period_ms: period_min_ms(settings, rss_then), stamp: cpu, ..TaskScan::default() }
    }

    /// One of several threads: it keeps the scan delay as its period.
    pub fn thread(settings: &KernelSettings, cpu: Nanos) -> TaskScan {
        TaskScan { period_ms: settings.scan_delay_ms, stamp: cpu, ..TaskScan::default() }
    }
}

/// The kernel's state of a process.
#[derive(Clone, Debug, Default)]
pub struct MmScan {
    /// No scan before this time.
    pub next: Nanos,
    /// The page, from the process's first, at which the next scan begins.
    pub(crate) offset: u64,
    /// Complete passes.
    pub passes: u64,
    /// Its threads that have faulted on each other's pages.
    pub(crate) group: Group,
    /// Hint faults of the process (S0's count).
    pub faults: u32,
    /// Time of each scan, and the faults until then.
    pub(crate) history: Vec<(u32, u32)>,
    /// Where in it the latest look-up ended: pages that fault one after the other were mostly
    /// marked by the same scan.
    found: usize,
    /// How scans pass over it, as the pace sees it.
    pub(crate) pace: pace::Passes,
}

impl MmScan {
    /// A process whose first scan is at `next`.
    pub fn new(next: Nanos) -> MmScan {
        MmScan { next, ..MmScan::default() }
    }

    /// Hint faults that the process had had when a scan at this time marked a page.
    pub fn faults_at(&mut self, time: u32) -> u32 {
        let begins = |scan: Option<&(u32, u32)>| scan.is_some_and(|(at, _)| *at <= time);
        if !begins(self.history.get(self.found)) || begins(self.history.get(self.found + 1)) {
            let after = self.history.partition_point(|(at, _)| *at <= time);
            match after.checked_sub(1) {
                Some(last) => self.found = last,
                None => return 0,
            }
        }
        self.history[self.found].1
    }
}

/// Pages of a block; ranges that are scanned end at its borders, or with the process.
pub(crate) const BLOCK_PAGES: u64 = 512;

/// Number of scan-size windows of a process of `rss` pages.
fn windows(settings: &KernelSettings, rss: u64) -> u64 {
    rss.max(1).div_ceil(settings.scan_size_mb * PAGES_PER_MIB).max(1)
}

/// The shortest period in ms for a process of `rss` pages.
pub fn period_min_ms(settings: &KernelSettings, rss: u64) -> u64 {
    let floor = 1000u64.checked_div(MAX_SCAN_MB_PER_S / settings.scan_size_mb).unwrap_or(1000);
    floor.max(settings.scan_period_min_ms / windows(settings, rss))
}

/// The longest.
pub fn period_max_ms(settings: &KernelSettings, rss: u64) -> u64 {
    period_min_ms(settings, rss).max(settings.scan_period_max_ms / windows(settings, rss))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * PAGES_PER_MIB;

    #[test]
    fn periods_follow_the_size_as_in_the_kernel() {
        let settings = KernelSettings::default();
        let limits = |rss| (period_min_ms(&settings, rss), period_max_ms(&settings, rss));
        assert_eq!(limits(GIB / 8), (1000, 60_000));
        assert_eq!(limits(5 * GIB / 2), (100, 6000));
        assert_eq!(limits(8 * GIB), (100, 1875));
        assert_eq!(limits(64 * GIB), (100, 234));
        assert_eq!(limits(192 * GIB), (100, 100));
    }

    #[test]
    fn a_scans_faults_are_found_by_its_time() {
        let mut mm = MmScan::new(Nanos(0));
        mm.history = vec![(10, 100), (20, 250)];
        assert_eq!([9, 10, 15, 20, 99].map(|t| mm.faults_at(t)), [0, 100, 100, 250, 250]);
        assert_eq!([19, 19, 20, 9, 15].map(|t| mm.faults_at(t)), [100, 100, 250, 0, 100]);
    }
}
