//! DAMON on the memory of one node, with one scheme: what a kdamond does.
//!
//! 1. The node's frames are divided into [`regions`]. Every sampling interval a frame of each is
//!    checked: whether its page has been accessed since it was picked an interval ago.
//! 2. Every aggregation interval neighbours that were accessed about as often are merged, counts
//!    restart, and regions are split at random, so that borders adapt.
//! 3. The [`scheme`] is applied each aggregation or by its own clock: it takes regions whose
//!    accesses and age fit its pattern, those with the best score first, as long as the quota
//!    lasts. The quota is a size, derived from the CPU time that it may use and its throughput so
//!    far, or from a goal. The size tried is charged to it. The pages of a region that pass the
//!    second check ([`settings::Recheck`]) move; a page that was never checked counts as accessed.
//!
//! Source: Linux 6.12 `mm/damon/core.c`, `mm/damon/paddr.c`, `mm/damon/ops-common.c`; S3 for the
//! second check of its time. Not modelled: watermarks and filters by cgroup (S3 used neither), the
//! temporal tuner of goals, several schemes per node.

pub mod frames;
pub mod regions;
pub mod scheme;
pub mod settings;
pub mod watch;

use thermocline_core::units::Nanos;

use crate::machine::NodeIndex;
use crate::memory::{Page, lru};
use crate::system::{System, Way};
use frames::{Frame, Frames};
use regions::{Region, Regions};
use scheme::Scheme;
use settings::{Action, Recheck, Settings, Tuning};

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Damon {
    node: NodeIndex,
    target: NodeIndex,
    regions: Option<Regions>,
    limits: std::ops::Range<usize>,
    scheme: Scheme,
    /// Sampling interval now, and intervals of an aggregation.
    sample: Nanos,
    samples: u32,
    sampled: u32,
    tuning: Option<Tuning>,
    /// Accesses seen and accesses possible since the interval was last tuned, in frames times
    /// samples, and aggregations since then.
    seen: (u64, u64, u32),
    /// When it runs next.
    pub due: Nanos,
    /// CPU time so far in ns.
    pub spent_ns: f64,
    /// Pages moved.
    pub moved: u64,
    /// Frames tried.
    pub tried: u64,
    /// Pages tried that had been accessed since they were last checked.
    pub accessed: u64,
}

impl Damon {
    /// A kdamond for a node, whose scheme moves pages to `target`.
    pub fn new(node: NodeIndex, target: NodeIndex, action: Action, settings: &Settings) -> Damon {
        let scheme = match action {
            Action::Promote => &settings.promote,
            Action::Demote => &settings.demote,
        };
        Damon {
            node,
            target,
            regions: None,
            limits: settings.regions.clone(),
            scheme: Scheme::new(scheme.clone()),
            sample: settings.sample,
            samples: settings.samples,
            sampled: 0,
            tuning: settings.tuning.clone(),
            seen: (0, 0, 0),
            due: Nanos(0),
            spent_ns: 0.0,
            moved: 0,
            tried: 0,
            accessed: 0,
        }
    }

    /// Regions now.
    pub fn regions(&self) -> usize {
        self.regions.as_ref().map_or(0, |r| r.all.len())
    }

    /// The sampling interval now.
    pub fn sample(&self) -> Nanos {
        self.sample
    }

    /// One sampling interval.
    pub fn run(&mut self, system: &mut System, frames: &mut Frames) {
        let capacity = system.memory.nodes[usize::from(self.node)].capacity;
        let mut regions = self.regions.take().unwrap_or_else(|| Regions::new(capacity, self.limits.clone()));
        let look_ns = system.machine.spec.cost.reclaim_look_ns;
        let mut busy_ns = regions.all.len() as f64 * 2.0 * look_ns;
        for region in &mut regions.all {
            let page = region.picked.take().and_then(|frame| frames.page(self.node, frame));
            region.nr += page.map_or(0, |page| u32::from(system.memory.take_accessed(page)));
        }
        self.sampled += 1;
        let aggregated = self.sampled == self.samples;
        if aggregated {
            regions.merge(self.samples);
        }
        let apply = match self.scheme.settings.apply_every {
            Some(every) => {
                let due = system.now >= self.scheme.due;
                if due {
                    self.scheme.due = system.now.plus(every);
                }
                due
            }
            None => aggregated,
        };
        if apply {
            busy_ns += self.apply(system, frames, &mut regions);
        }
        if aggregated {
            self.tune(&regions);
            self.sampled = 0;
            for region in &mut regions.all {
                (region.last, region.nr) = (region.nr, 0);
            }
            regions.split(&mut system.random);
        }
        for region in &mut regions.all {
            let frame = region.start + system.random.below(region.len()) as Frame;
            region.picked = Some(frame);
            if let Some(page) = frames.page(self.node, frame) {
                system.memory.take_accessed(page);
            }
        }
        self.regions = Some(regions);
        self.spent_ns += busy_ns;
        system.aside_ns += busy_ns;
        let late = Nanos((busy_ns as u64).saturating_sub(self.sample.0));
        self.due = system.now.plus(self.sample).plus(late);
    }

    /// Tunes the intervals to the accesses seen.
    fn tune(&mut self, regions: &Regions) {
        let Some(tuning) = &self.tuning else { return };
        let (seen, most, aggregations) = &mut self.seen;
        for region in &regions.all {
            *seen += region.len() * u64::from(region.nr);
            *most += region.len() * u64::from(self.samples);
        }
        *aggregations += 1;
        if *aggregations >= tuning.aggregations {
            self.sample = tuning.next(self.sample, *seen, *most);
            self.seen = (0, 0, 0);
        }
    }

    /// Applies the scheme; returns the time in ns.
    fn apply(&mut self, system: &mut System, frames: &mut Frames, regions: &mut Regions) -> f64 {
        let (sampled, samples) = (self.sampled, self.samples);
        let aggregation = Nanos(self.sample.0 * u64::from(samples));
        let of = |scheme: &Scheme, region: &Region| {
            let accesses = region.accesses(sampled, samples);
            let fits = scheme.fits(region, accesses);
            fits.then(|| scheme.score(region, accesses, samples, aggregation))
        };
        let scheme = self.scheme.clone();
        self.scheme.allow(system, regions.all.iter().filter_map(|r| Some((of(&scheme, r)?, r.len()))));
        let mut spent_ns = 0.0;
        let mut resume = self.scheme.resume.take();
        let mut i = 0;
        while i < regions.all.len() && self.scheme.left() > 0 {
            let region = regions.all[i];
            i += 1;
            if let Some(from) = resume {
                if region.end <= from {
                    continue;
                }
                if region.start < from {
                    regions.cut(i - 1, u64::from(from - region.start));
                    continue;
                }
                resume = None;
            }
            if !of(&self.scheme, &region).is_some_and(|score| self.scheme.takes(score)) {
                continue;
            }
            if region.len() > self.scheme.left() {
                regions.cut(i - 1, self.scheme.left());
            }
            let region = &mut regions.all[i - 1];
            region.age = 0;
            let region = *region;
            let ns = self.try_frames(system, frames, region.start..region.end);
            self.scheme.charge(region.len(), ns, region.end);
            self.tried += region.len();
            spent_ns += ns;
        }
        if self.scheme.left() == 0 && self.scheme.resume.is_none() {
            self.scheme.resume = resume;
        }
        spent_ns
    }

    /// Tries the pages of a range of frames; returns the time in ns.
    fn try_frames(&mut self, system: &mut System, frames: &mut Frames, range: std::ops::Range<Frame>) -> f64 {
        let costs = system.machine.spec.cost;
        let floor = system.machine.nodes[usize::from(self.target)].watermarks.low_pages;
        let (mut looked, mut moved) = (0u64, 0u64);
        for frame in range.start..range.end.min(frames.used_end(self.node)) {
            let Some(page) = frames.page(self.node, frame) else { continue };
            looked += 1;
            if !self.passes(system, page) || system.memory.free(self.target) <= floor {
                continue;
            }
            match system.move_page(page, self.target) {
                Way::Up => system.counters.other_promoted += 1,
                Way::Down => system.counters.pgdemote_other += 1,
                Way::Within => {}
            }
            frames.moved(self.node, frame, self.target);
            moved += 1;
        }
        self.moved += moved;
        looked as f64 * costs.reclaim_look_ns + moved as f64 * costs.kthread_page_ns
    }

    /// Whether a page of a region that the scheme takes passes the second check.
    fn passes(&mut self, system: &mut System, page: Page) -> bool {
        let accessed = system.memory.take_accessed(page);
        self.accessed += u64::from(accessed);
        match (self.scheme.settings.action, self.scheme.settings.recheck) {
            (Action::Demote, _) => !accessed,
            (Action::Promote, Recheck::Young) => accessed,
            (Action::Promote, Recheck::References) => {
                let before = system.memory.lru(page) & lru::REFERENCED != 0;
                let (set, clear) = if accessed { (lru::REFERENCED, 0) } else { (0, lru::REFERENCED) };
                system.memory.set_lru(page, set, clear);
                accessed && before
            }
        }
    }
}
