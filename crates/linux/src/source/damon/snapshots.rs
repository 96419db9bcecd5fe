//! Assembles snapshots from regions that arrive one by one.

use thermocline_core::access::{Region, RegionSnapshot, RegionSpace};
use thermocline_core::config::DamonSource as Keys;
use thermocline_core::units::{Nanos, PAGE_SHIFT, PAGE_SIZE};

use super::event::Aggregated;

/// Accepted number of regions of a snapshot, as a multiple of the configured maximum: the kernel
/// may exceed it a little for a while.
const SLACK: u64 = 2;
/// Longer intervals are not aggregation intervals: reports in between are missing.
const INTERVAL_MAX: Nanos = Nanos::from_s(1200);

/// Assembles the regions of one kdamond.
#[derive(Debug)]
pub(super) struct Collector {
    space: RegionSpace,
    /// Samples of an aggregation.
    samples: u64,
    regions_max: usize,
    /// The aggregation interval.
    interval: Nanos,
    /// Time of the snapshot before the open one.
    before: Option<Nanos>,
    /// The open snapshot: its time is that of its first region.
    open: Option<RegionSnapshot>,
    malformed: u64,
    /// Regions are dropped.
    paused: bool,
}

impl Collector {
    pub(super) fn new(space: RegionSpace, keys: &Keys) -> Collector {
        Collector {
            space,
            samples: keys.samples(),
            // At most 200,000: it fits.
            regions_max: (keys.regions_max * SLACK) as usize,
            interval: Nanos::from_ms(keys.aggregation_ms),
            before: None,
            open: None,
            malformed: 0,
            paused: false,
        }
    }

    /// The intervals of the kdamond are about to change: what comes until [`go_on`](Self::go_on) is
    /// counted by one of them or the other.
    pub(super) fn pause(&mut self) {
        (self.paused, self.open) = (true, None);
    }

    /// The intervals are those of `keys` from now on.
    pub(super) fn go_on(&mut self, keys: &Keys) {
        let malformed = self.malformed;
        *self = Collector { malformed, ..Collector::new(self.space, keys) };
    }

    /// Takes the next region. A snapshot is delivered when its last region has arrived, or when the
    /// first one of another arrives: then some were lost.
    pub(super) fn take(
        &mut self,
        time: Nanos,
        told: &Aggregated,
        mut tell: impl FnMut(&RegionSnapshot, bool),
    ) {
        if self.paused {
            return;
        }
        let (start, end) = (told.start >> PAGE_SHIFT, told.end.div_ceil(PAGE_SIZE));
        if start >= end || told.target != 0 {
            self.malformed += 1;
            return;
        }
        let last = self.open.as_ref().and_then(|open| open.regions.last());
        if last.is_some_and(|last| start < last.end) {
            self.close(|snapshot| tell(snapshot, false));
        }
        if self.open.is_none() {
            self.begin(time);
        }
        let region = self.region(start, end, told);
        let Some(open) = &mut self.open else { return };
        if open.regions.len() < self.regions_max {
            open.regions.push(region);
        } else {
            self.malformed += 1;
        }
        if open.regions.len() as u64 >= told.regions {
            self.close(|snapshot| tell(snapshot, true));
        }
    }

    /// An aggregation has ended. Measures the interval since the last one, unless that is too long,
    /// or so short that both belong to one aggregation.
    fn begin(&mut self, time: Nanos) {
        let since = self.before.map(|before| time.since(before));
        if let Some(since) = since.filter(|since| *since <= INTERVAL_MAX && since.0 > self.samples * 1000) {
            self.interval = since;
        }
        self.before = Some(time);
        self.open = Some(RegionSnapshot { time, regions: Vec::new() });
    }

    fn region(&self, start: u64, end: u64, told: &Aggregated) -> Region {
        let rate = told.accesses.min(self.samples) * 10_000 / self.samples;
        Region {
            space: self.space,
            start,
            end,
            // At most 10,000: it fits.
            access_rate_bp: rate as u16,
            age: Nanos(told.age.saturating_mul(self.interval.0)),
            check: Nanos(self.interval.0 / self.samples),
        }
    }

    fn close(&mut self, tell: impl FnOnce(&RegionSnapshot)) {
        if let Some(snapshot) = self.open.take() {
            tell(&snapshot);
        }
    }

    /// The aggregation interval as last measured.
    pub(super) fn interval(&self) -> Nanos {
        self.interval
    }

    /// Regions that were invalid.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thermocline_core::units::NodeId;

    use super::*;

    const SPACE: RegionSpace = RegionSpace::Physical(NodeId(2));

    fn collector() -> Collector {
        Collector::new(SPACE, &Keys::default())
    }

    /// A region of `regions` that begins at MiB `at` and is one MiB long.
    fn told(regions: u64, at: u64, accesses: u64, age: u64) -> Aggregated {
        Aggregated { target: 0, regions, start: at << 20, end: (at + 1) << 20, accesses, age }
    }

    fn take(collector: &mut Collector, time_ms: u64, told: &Aggregated) -> Vec<(RegionSnapshot, bool)> {
        let mut out = Vec::new();
        collector.take(Nanos::from_ms(time_ms), told, |snapshot, whole| out.push((snapshot.clone(), whole)));
        out
    }

    #[test]
    fn a_snapshot_is_told_when_its_last_region_has_come() {
        let mut collector = collector();
        assert!(take(&mut collector, 100, &told(2, 4, 20, 0)).is_empty());
        let snapshots = take(&mut collector, 101, &told(2, 6, 5, 30));
        let [(snapshot, true)] = &snapshots[..] else { panic!("{snapshots:?}") };
        assert_eq!(snapshot.time, Nanos::from_ms(100));
        let [first, second] = &snapshot.regions[..] else { panic!("{snapshot:?}") };
        assert_eq!((first.space, first.start, first.end), (SPACE, 1024, 1280));
        assert_eq!((first.access_rate_bp, second.access_rate_bp), (10_000, 2_500));
        assert_eq!((first.age, second.age), (Nanos(0), Nanos::from_s(3)));
        assert_eq!(first.check, Nanos::from_ms(5));
    }

    #[test]
    fn the_interval_is_measured_because_a_busy_kernel_is_late() {
        let mut collector = collector();
        take(&mut collector, 100, &told(1, 4, 20, 0));
        let (late, _) = take(&mut collector, 300, &told(1, 4, 20, 5)).remove(0);
        assert_eq!(late.regions[0].check, Nanos::from_ms(10));
        assert_eq!(late.regions[0].age, Nanos::from_s(1));
        assert_eq!(collector.interval(), Nanos::from_ms(200));
    }

    #[test]
    fn while_the_intervals_change_nothing_is_told() {
        let mut collector = collector();
        take(&mut collector, 100, &told(2, 4, 20, 0));
        collector.pause();
        assert!(take(&mut collector, 101, &told(1, 5, 20, 0)).is_empty());
        let keys = Keys { sample_lengths: 3, ..Keys::default() };
        collector.go_on(&keys.in_turn(2));
        // Two samples of 80 ms. How long ago the last aggregation ended does not matter.
        let (snapshot, _) = take(&mut collector, 500, &told(1, 4, 1, 0)).remove(0);
        assert_eq!(snapshot.regions[0].access_rate_bp, 5000);
        assert_eq!(snapshot.regions[0].check, Nanos::from_ms(80));
    }

    #[test]
    fn what_was_lost_leaves_an_incomplete_snapshot() {
        let mut collector = collector();
        take(&mut collector, 100, &told(3, 4, 1, 0));
        take(&mut collector, 100, &told(3, 5, 1, 0));
        let snapshots = take(&mut collector, 200, &told(2, 4, 1, 0));
        assert_eq!(
            snapshots.iter().map(|(s, whole)| (s.regions.len(), *whole)).collect::<Vec<_>>(),
            [(2, false)]
        );
        assert!(take(&mut collector, 200, &told(2, 5, 1, 0))[0].1);
    }

    #[test]
    fn nonsense_is_counted() {
        let mut collector = collector();
        take(&mut collector, 1, &Aggregated { regions: 1, start: 8192, end: 8192, ..Aggregated::default() });
        take(&mut collector, 1, &Aggregated { target: 1, ..told(1, 4, 1, 0) });
        assert_eq!(collector.malformed(), 2);
    }

    proptest! {
        #[test]
        fn whatever_is_told_memory_is_bounded_and_regions_are_in_order(
            all in prop::collection::vec((0u64..3, 0u64..9, 0u64..64, 0u64..64, any::<u32>(), any::<u64>()), 0..200)
        ) {
            let mut collector = Collector::new(SPACE, &Keys { regions_max: 3, regions_min: 3, ..Keys::default() });
            for (n, (target, regions, start, end, accesses, age)) in all.into_iter().enumerate() {
                let told = Aggregated {
                    target: target / 2, regions, start: start << 12, end: end << 12, accesses: accesses.into(), age,
                };
                collector.take(Nanos(n as u64), &told, |snapshot, _| {
                    assert!(!snapshot.regions.is_empty() && snapshot.regions.len() <= 6);
                    assert!(snapshot.regions.windows(2).all(|w| w[0].end <= w[1].start));
                    assert!(snapshot.regions.iter().all(|r| r.access_rate_bp <= 10_000));
                });
            }
        }
    }
}
