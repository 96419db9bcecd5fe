//! DAMON on the memory of one node, with one scheme: what a kdamond does.
//!
//! 1. Memory is divided into regions. Every sampling interval a page of each is looked at: whether it has been accessed since
//!    it was picked an interval ago.
//! 2. Every aggregation interval neighbours that were accessed about as often are merged; then the scheme is applied; then counts start
//!    anew and regions are split at random, so that borders find their place.
//! 3. The scheme takes regions whose accesses and age fit its pattern, those with the best score first, as long as the quota
//!    lasts: a size, from the CPU time that it may use and from how fast it has been. Charged is the size that is tried.
//!    Of each region the pages go that pass the young filter: a page looked at for the first time counts as young.
//!
//! Source: Linux 6.12 `mm/damon/core.c`, `mm/damon/paddr.c`, `mm/damon/ops-common.c`; the schemes are HMSDK's (S3's tool,
//! `gen_migpol.py`). Regions are ranges of page numbers here, not of frames: what was allocated together is together, and a page that
//! moves keeps its place in the order. What is not modelled: the scheme's watermarks (HMSDK uses none), and that reclaim and DAMON
//! see each other's accessed bits.

use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use crate::machine::NodeIndex;
use crate::memory::Page;
use crate::random::Random;
use crate::system::{System, Way};

/// HMSDK: sampling interval.
pub const SAMPLE: Nanos = Nanos::from_ms(100);
/// HMSDK: sampling intervals of an aggregation.
pub const SAMPLES: u32 = 20;
/// HMSDK: regions at least and at most.
const REGIONS: std::ops::Range<usize> = 100..10_000;
/// HMSDK: time for which a quota is given.
const RESET: Nanos = Nanos::from_s(20);
/// HMSDK: size that may be tried in it.
const SIZE_PAGES: u64 = 50 * 1024 * PAGES_PER_MIB;
/// Throughput that is assumed before there is any experience (Linux 6.12 `damos_set_effective_quota`): 4 MiB a ms.
const FIRST_PAGES_PER_MS: f64 = 1024.0;
/// Time to look at a page that does not move, in ns.
const LOOK_NS: f64 = 60.0;
/// Draws until a page of a region is found that is on the node.
const DRAWS: u32 = 8;

/// What a scheme does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Pages that are accessed go up.
    Promote,
    /// Pages that have long not been accessed go down.
    Demote,
}

/// A scheme and its quota.
#[derive(Clone, Debug)]
struct Scheme {
    action: Action,
    /// CPU time of a window, in ms.
    time_ms: f64,
    window: Nanos,
    /// Pages that may be tried in the window; found when it begins.
    allowed: u64,
    charged: u64,
    /// Pages tried and time spent so far, for the throughput.
    all_pages: u64,
    all_ns: f64,
    /// Lowest score that is tried in the window.
    score_min: u32,
    /// Page at which the last window ran out.
    resume: Page,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    start: Page,
    end: Page,
    nr: u32,
    last: u32,
    /// Aggregations for which it has been as it is.
    age: u32,
    picked: Option<Page>,
}

impl Region {
    fn new(start: Page, end: Page) -> Region {
        Region { start, end, nr: 0, last: 0, age: 0, picked: None }
    }

    fn len(&self) -> u64 {
        u64::from(self.end - self.start)
    }
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Damon {
    node: NodeIndex,
    target: NodeIndex,
    regions: Vec<Region>,
    scheme: Scheme,
    sampled: u32,
    regions_before: usize,
    /// When it works next.
    pub due: Nanos,
    /// CPU time so far in ns.
    pub spent_ns: f64,
    /// Pages moved.
    pub moved: u64,
    /// Pages tried.
    pub tried: u64,
}

impl Damon {
    /// A kdamond for a node, whose scheme moves pages to `target`; HMSDK's quotas.
    pub fn new(node: NodeIndex, target: NodeIndex, action: Action) -> Damon {
        let time_ms = match action {
            Action::Promote => 2000.0,
            Action::Demote => 1000.0,
        };
        let scheme = Scheme {
            action,
            time_ms,
            window: Nanos(0),
            allowed: 0,
            charged: 0,
            all_pages: 0,
            all_ns: 0.0,
            score_min: 0,
            resume: 0,
        };
        Damon {
            node,
            target,
            regions: Vec::new(),
            scheme,
            sampled: 0,
            regions_before: 0,
            due: Nanos(0),
            spent_ns: 0.0,
            moved: 0,
            tried: 0,
        }
    }

    /// Regions now.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// One sampling interval.
    pub fn run(&mut self, system: &mut System) {
        let pages = system.memory.pages();
        if self.regions.is_empty() {
            let n = (REGIONS.start as u64).min(pages);
            let cut = |i: u64| (pages * i / n) as Page;
            self.regions = (0..n).map(|i| Region::new(cut(i), cut(i + 1))).collect();
        }
        let mut busy_ns = self.regions.len() as f64 * 2.0 * LOOK_NS;
        for region in &mut self.regions {
            if let Some(page) = region.picked.take() {
                region.nr += u32::from(system.memory.take_accessed(page));
            }
        }
        self.sampled += 1;
        if self.sampled == SAMPLES {
            self.sampled = 0;
            self.merge(pages);
            busy_ns += self.apply(system);
            for region in &mut self.regions {
                (region.last, region.nr) = (region.nr, 0);
            }
            let mut random = system.random.clone();
            self.split(&mut random);
            system.random = random;
        }
        for region in &mut self.regions {
            let drawn = (0..DRAWS)
                .map(|_| region.start + system.random.below(region.len()) as Page)
                .find(|page| system.memory.node(*page) == Some(self.node));
            region.picked = drawn;
            if let Some(page) = drawn {
                system.memory.take_accessed(page);
            }
        }
        self.spent_ns += busy_ns;
        self.due = system.now.plus(SAMPLE).plus(Nanos((busy_ns as u64).saturating_sub(SAMPLE.0)));
    }

    /// Ages regions and merges neighbours that are alike.
    fn merge(&mut self, pages: u64) {
        let most = self.regions.iter().map(|r| r.nr).max().unwrap_or(0);
        let size_max = (pages / REGIONS.start as u64).max(1);
        let mut threshold = most / 10;
        for region in &mut self.regions {
            region.age = if region.nr.abs_diff(region.last) > threshold { 0 } else { region.age + 1 };
        }
        loop {
            let mut merged: Vec<Region> = Vec::with_capacity(self.regions.len());
            for region in self.regions.drain(..) {
                match merged.last_mut() {
                    Some(last)
                        if last.end == region.start
                            && last.nr.abs_diff(region.nr) <= threshold
                            && last.len() + region.len() <= size_max =>
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
            self.regions = merged;
            if self.regions.len() <= REGIONS.end || threshold > SAMPLES {
                return;
            }
            threshold = (2 * threshold).max(1);
        }
    }

    /// Splits every region in two, or in three where their number has not changed.
    fn split(&mut self, random: &mut Random) {
        let n = self.regions.len();
        if n > REGIONS.end / 2 {
            self.regions_before = n;
            return;
        }
        let pieces = if n == self.regions_before && n < REGIONS.end / 3 { 3 } else { 2 };
        self.regions_before = n;
        let mut split = Vec::with_capacity(n * pieces);
        for mut region in self.regions.drain(..) {
            for _ in 1..pieces {
                let len = region.len();
                let cut = len * (1 + random.below(9)) / 10;
                if cut == 0 || cut >= len {
                    break;
                }
                let middle = region.start + cut as Page;
                split.push(Region { end: middle, picked: None, ..region });
                region = Region { start: middle, picked: None, ..region };
            }
            split.push(region);
        }
        self.regions = split;
    }

    /// Whether the scheme is meant for such regions.
    fn fits(&self, region: &Region) -> bool {
        match self.scheme.action {
            // HMSDK: accessed in 5 % of the samples or more.
            Action::Promote => region.nr >= 1,
            // HMSDK: not accessed for 30 s.
            Action::Demote => region.nr == 0 && region.age >= 15,
        }
    }

    /// The score by which regions are preferred, 0 to 99; HMSDK weighs age only.
    fn score(&self, region: &Region) -> u32 {
        let seconds = u64::from(region.age) * u64::from(SAMPLES) * SAMPLE.0 / 1_000_000_000;
        let log = (64 - seconds.leading_zeros()).min(32) as i32;
        let log = if region.nr == 0 { -log } else { log };
        let hot = ((log + 32) * 100 / 64 * 99 / 100).clamp(0, 99) as u32;
        match self.scheme.action {
            Action::Promote => hot,
            Action::Demote => 99 - hot,
        }
    }

    /// Begins a window of the quota, if it is time.
    fn allow(&mut self, now: Nanos) {
        if self.scheme.window.0 > 0 && now.since(self.scheme.window).0 < RESET.0 {
            return;
        }
        let scheme = &self.scheme;
        let per_ms = if scheme.all_ns > 0.0 {
            scheme.all_pages as f64 / scheme.all_ns * 1e6
        } else {
            FIRST_PAGES_PER_MS
        };
        let allowed = ((per_ms * scheme.time_ms) as u64).clamp(1, SIZE_PAGES);
        let mut sizes = [0u64; 100];
        for region in self.regions.iter().filter(|r| self.fits(r)) {
            sizes[self.score(region) as usize] += region.len();
        }
        let (mut sum, mut score_min) = (0, 0);
        for (score, size) in sizes.iter().enumerate().rev() {
            sum += size;
            if sum >= allowed {
                score_min = score as u32;
                break;
            }
        }
        let scheme = &mut self.scheme;
        (scheme.window, scheme.allowed, scheme.charged, scheme.score_min) = (now, allowed, 0, score_min);
    }

    /// Applies the scheme; returns the time in ns.
    fn apply(&mut self, system: &mut System) -> f64 {
        self.allow(system.now);
        let mut spent_ns = 0.0;
        // From where the quota ran out, once around.
        let first = self.regions.partition_point(|r| r.end <= self.scheme.resume);
        let n = self.regions.len();
        for i in (first..n).chain(0..first) {
            let region = self.regions[i];
            if !self.fits(&region) || self.score(&region) < self.scheme.score_min {
                continue;
            }
            let left = self.scheme.allowed.saturating_sub(self.scheme.charged);
            if left == 0 {
                self.scheme.resume = region.start;
                break;
            }
            let end = region.start + region.len().min(left) as Page;
            let (mut tried, mut ns) = (0, 0.0);
            for page in region.start..end {
                if system.memory.node(page) == Some(self.node) {
                    tried += 1;
                    ns += self.consider(system, page);
                }
            }
            self.scheme.charged += tried;
            self.scheme.all_pages += tried;
            self.scheme.all_ns += ns;
            self.tried += tried;
            spent_ns += ns;
            self.scheme.resume = end;
            self.regions[i].age = 0;
        }
        spent_ns
    }

    /// A page of a region that the scheme takes; returns the time in ns.
    fn consider(&mut self, system: &mut System, page: Page) -> f64 {
        let young = system.memory.take_accessed(page);
        let marks = system.machine.nodes[usize::from(self.target)].watermarks;
        let (wanted, floor) = match self.scheme.action {
            Action::Promote => (young, marks.low_pages),
            Action::Demote => (!young, marks.low_pages),
        };
        if !wanted || system.memory.free(self.target) <= floor {
            return LOOK_NS;
        }
        match system.move_page(page, self.target) {
            Way::Up => system.counters.other_promoted += 1,
            Way::Down => system.counters.pgdemote_other += 1,
            Way::Within => {}
        }
        self.moved += 1;
        system.machine.spec.cost.kthread_page_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    fn damon(counts: &[(Page, u32)]) -> Damon {
        let mut damon = Damon::new(1, 0, Action::Promote);
        let mut start = 0;
        for (end, nr) in counts {
            damon.regions.push(Region { nr: *nr, last: *nr, ..Region::new(start, *end) });
            start = *end;
        }
        damon
    }

    #[test]
    fn neighbours_that_are_alike_merge_up_to_a_hundredth_of_memory() {
        let mut d = damon(&[(100, 10), (200, 11), (300, 20), (400, 0), (500, 1), (600, 1)]);
        d.merge(60_000);
        let found: Vec<(Page, u32)> = d.regions.iter().map(|r| (r.end, r.nr)).collect();
        // The threshold is a tenth of the most.
        assert_eq!(found, [(200, 10), (300, 20), (600, 0)]);
        let mut d = damon(&[(100, 0), (200, 0), (300, 0)]);
        d.merge(20_000);
        assert_eq!(d.regions.len(), 2, "no region is above a hundredth");
        assert!(d.regions.iter().all(|r| r.age == 1));
    }

    #[test]
    fn a_change_starts_the_age_anew() {
        let mut d = damon(&[(100, 10), (200, 0)]);
        d.regions[0].age = 7;
        d.regions[1].age = 7;
        d.regions[1].last = 10;
        d.merge(1_000_000);
        assert_eq!(d.regions.iter().map(|r| r.age).collect::<Vec<_>>(), [8, 0]);
    }

    #[test]
    fn splits_cover_what_was_there() {
        let mut d = damon(&[(1000, 3), (1001, 0), (5000, 1)]);
        d.split(&mut Random::new(1, Stream::Models));
        assert!(d.regions.len() >= 5);
        assert_eq!((d.regions[0].start, d.regions.last().unwrap().end), (0, 5000));
        assert!(d.regions.windows(2).all(|w| w[0].end == w[1].start && w[0].start < w[0].end));
    }

    #[test]
    fn the_longer_the_better() {
        let d = damon(&[]);
        let scored = |nr, age| d.score(&Region { nr, age, ..Region::new(0, 1) });
        assert!(scored(1, 100) > scored(20, 10), "frequency does not rank");
        let demote = Damon::new(0, 1, Action::Demote);
        let cold = |age| demote.score(&Region { age, ..Region::new(0, 1) });
        assert!(cold(1000) > cold(20));
        assert!(!demote.fits(&Region { age: 14, ..Region::new(0, 1) }));
        assert!(demote.fits(&Region { age: 15, ..Region::new(0, 1) }));
    }
}
