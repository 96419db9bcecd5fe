//! Regions: ranges of frames that are accessed about equally often, as far as samples show.

use std::ops::Range;

use super::frames::Frame;
use crate::random::Random;

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first frame.
    pub start: Frame,
    /// The frame after its last.
    pub end: Frame,
    /// Samples of this aggregation that found it accessed.
    pub nr: u32,
    /// The same of the aggregation before.
    pub last: u32,
    /// Aggregations since it last changed.
    pub age: u32,
    /// The frame to check at the next sample.
    pub picked: Option<Frame>,
}

impl Region {
    /// A region without any observation.
    pub fn new(start: Frame, end: Frame) -> Region {
        Region { start, end, nr: 0, last: 0, age: 0, picked: None }
    }

    /// Its frames.
    pub fn len(&self) -> u64 {
        u64::from(self.end - self.start)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Its accesses over the last `samples` samples, of which `sampled` are of this aggregation:
    /// the kernel's pseudo moving sum.
    pub fn accesses(&self, sampled: u32, samples: u32) -> u32 {
        (u64::from(self.last) * u64::from(samples - sampled) / u64::from(samples.max(1))) as u32 + self.nr
    }
}

/// The regions of a node, ascending, without gaps.
#[derive(Clone, Debug)]
pub struct Regions {
    /// The regions.
    pub all: Vec<Region>,
    limits: Range<usize>,
    /// Their number at the last split.
    before: usize,
}

impl Regions {
    /// The minimum number of regions, of equal size.
    pub fn new(frames: u64, limits: Range<usize>) -> Regions {
        let n = (limits.start as u64).min(frames);
        let cut = |i: u64| (frames * i / n) as Frame;
        Regions { all: (0..n).map(|i| Region::new(cut(i), cut(i + 1))).collect(), limits, before: 0 }
    }

    fn frames(&self) -> u64 {
        self.all.last().map_or(0, |r| u64::from(r.end))
    }

    /// Ages regions and merges neighbours that are alike; an aggregation has `samples` samples.
    pub fn merge(&mut self, samples: u32) {
        let most = self.all.iter().map(|r| r.nr).max().unwrap_or(0);
        let size_max = (self.frames() / self.limits.start as u64).max(1);
        let mut threshold = most / 10;
        for region in &mut self.all {
            region.age = if region.nr.abs_diff(region.last) > threshold { 0 } else { region.age + 1 };
        }
        loop {
            self.merge_once(threshold, size_max);
            if self.all.len() <= self.limits.end || threshold > samples {
                return;
            }
            threshold = (2 * threshold).max(1);
        }
    }

    fn merge_once(&mut self, threshold: u32, size_max: u64) {
        let mut merged: Vec<Region> = Vec::with_capacity(self.all.len());
        for region in self.all.drain(..) {
            match merged.last_mut() {
                Some(last)
                    if last.nr.abs_diff(region.nr) <= threshold && last.len() + region.len() <= size_max =>
                {
                    let (a, b) = (last.len(), region.len());
                    let mean = |x: u32, y: u32| ((u64::from(x) * a + u64::from(y) * b) / (a + b)) as u32;
                    last.nr = mean(last.nr, region.nr);
                    last.last = mean(last.last, region.last);
                    last.age = mean(last.age, region.age);
                    last.end = region.end;
                }
                _ => merged.push(region),
            }
        }
        self.all = merged;
    }

    /// Splits every region in two, or in three where their number has not changed.
    pub fn split(&mut self, random: &mut Random) {
        let n = self.all.len();
        let pieces = if n == self.before && n < self.limits.end / 3 { 3 } else { 2 };
        self.before = n;
        if n > self.limits.end / 2 {
            return;
        }
        let mut split = Vec::with_capacity(n * pieces);
        for mut region in self.all.drain(..) {
            for _ in 1..pieces {
                let len = region.len();
                let cut = len * (1 + random.below(9)) / 10;
                if cut == 0 || cut >= len {
                    break;
                }
                let middle = region.start + cut as Frame;
                split.push(Region { end: middle, picked: None, ..region });
                region = Region { start: middle, picked: None, ..region };
            }
            split.push(region);
        }
        self.all = split;
    }

    /// Cuts a region so that it keeps its first frames; the others become a region after it.
    pub fn cut(&mut self, index: usize, frames: u64) {
        let region = self.all[index];
        let middle = region.start + frames as Frame;
        self.all[index].end = middle;
        self.all.insert(index + 1, Region { start: middle, picked: None, ..region });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    fn regions(counts: &[(Frame, u32)]) -> Regions {
        let mut regions = Regions::new(1, 100..10_000);
        regions.all.clear();
        let mut start = 0;
        for (end, nr) in counts {
            regions.all.push(Region { nr: *nr, last: *nr, ..Region::new(start, *end) });
            start = *end;
        }
        regions
    }

    #[test]
    fn neighbours_that_are_alike_merge_up_to_a_hundredth_of_memory() {
        let mut r = regions(&[(100, 10), (200, 11), (300, 20), (400, 0), (500, 1), (600, 1), (60_000, 20)]);
        r.merge(20);
        let found: Vec<(Frame, u32)> = r.all.iter().map(|r| (r.end, r.nr)).collect();
        // The threshold is a tenth of the maximum.
        assert_eq!(found, [(200, 10), (300, 20), (600, 0), (60_000, 20)]);
        let mut r = regions(&[(100, 0), (200, 0), (300, 0), (20_000, 9)]);
        r.merge(20);
        assert_eq!(r.all.len(), 3, "no region is above a hundredth");
        assert!(r.all.iter().all(|r| r.age == 1));
    }

    #[test]
    fn a_change_starts_the_age_anew() {
        let mut r = regions(&[(100, 10), (200, 0)]);
        (r.all[0].age, r.all[1].age, r.all[1].last) = (7, 7, 10);
        r.merge(20);
        assert_eq!(r.all.iter().map(|r| r.age).collect::<Vec<_>>(), [8, 0]);
    }

    #[test]
    fn splits_cover_what_was_there() {
        let mut r = regions(&[(1000, 3), (1001, 0), (5000, 1)]);
        r.split(&mut Random::new(1, Stream::Models));
        assert!(r.all.len() >= 5);
        r.cut(0, 10);
        assert_eq!((r.all[0].start, r.all[0].end, r.all.last().unwrap().end), (0, 10, 5000));
        assert!(r.all.windows(2).all(|w| w[0].end == w[1].start && w[0].start < w[0].end));
    }

    #[test]
    fn the_moving_sum_lets_go_of_the_aggregation_before() {
        let region = Region { nr: 3, last: 10, ..Region::new(0, 1) };
        assert_eq!((region.accesses(0, 20), region.accesses(10, 20), region.accesses(20, 20)), (13, 8, 3));
    }
}
