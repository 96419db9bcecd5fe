//! DAMON watching the frames of one node for a reader of its regions: no scheme, nothing moves.
//!
//! Frames are the engine's frame numbers, relative to the first: pages on other nodes are frames
//! without a page. The intervals, the regions' limits and the tuned sampling interval are those of
//! the configuration; merging and splitting are the kernel's ([`super`]).

use thermocline_core::config::DamonSource;
use thermocline_core::units::Nanos;

use super::regions::{Region, Regions};
use super::settings::Tuning;
use crate::machine::NodeIndex;
use crate::system::System;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Watch {
    node: NodeIndex,
    limits: std::ops::Range<usize>,
    regions: Option<Regions>,
    sample: Nanos,
    samples: u32,
    sampled: u32,
    tuning: Option<Tuning>,
    /// Accesses seen and accesses possible since the interval was last tuned, and aggregations
    /// since then.
    seen: (u64, u64, u32),
    /// When it runs next.
    pub due: Nanos,
    /// CPU time so far in ns.
    pub spent_ns: f64,
}

impl Watch {
    /// A kdamond for a node.
    pub fn new(node: NodeIndex, keys: &DamonSource) -> Watch {
        Watch {
            node,
            limits: keys.regions_min as usize..keys.regions_max as usize,
            regions: None,
            sample: Nanos::from_ms(keys.sample_ms),
            samples: keys.samples() as u32,
            sampled: 0,
            tuning: keys.access_goal_bp.map(|bp| Tuning::towards(bp.into())),
            seen: (0, 0, 0),
            due: Nanos(0),
            spent_ns: 0.0,
        }
    }

    /// The node.
    pub fn node(&self) -> NodeIndex {
        self.node
    }

    /// The sampling interval now.
    pub fn sample(&self) -> Nanos {
        self.sample
    }

    /// Samples of an aggregation.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Runs one sampling interval; returns the regions if it ends an aggregation.
    pub fn run(&mut self, system: &mut System) -> Option<Vec<Region>> {
        let (node, frames) = (self.node, system.memory.pages());
        let mut regions = self.regions.take().unwrap_or_else(|| Regions::new(frames, self.limits.clone()));
        let busy_ns = regions.all.len() as f64 * 2.0 * system.machine.spec.cost.reclaim_look_ns;
        for region in &mut regions.all {
            let page = region.picked.take().filter(|page| system.memory.node(*page) == Some(node));
            region.nr += page.map_or(0, |page| u32::from(system.memory.take_accessed(page)));
        }
        self.sampled += 1;
        let found = (self.sampled >= self.samples).then(|| {
            self.sampled = 0;
            regions.merge(self.samples);
            let found = regions.all.clone();
            self.tune(&found);
            for region in &mut regions.all {
                (region.last, region.nr) = (region.nr, 0);
            }
            regions.split(&mut system.random);
            found
        });
        for region in &mut regions.all {
            let page = region.start + system.random.below(region.len()) as u32;
            region.picked = Some(page);
            if system.memory.node(page) == Some(node) {
                system.memory.take_accessed(page);
            }
        }
        self.regions = Some(regions);
        self.spent_ns += busy_ns;
        system.aside_ns += busy_ns;
        let late = Nanos((busy_ns as u64).saturating_sub(self.sample.0));
        self.due = system.now.plus(self.sample).plus(late);
        found
    }

    fn tune(&mut self, found: &[Region]) {
        let Some(tuning) = &self.tuning else { return };
        let (seen, most, aggregations) = &mut self.seen;
        for region in found {
            *seen += region.len() * u64::from(region.nr);
            *most += region.len() * u64::from(self.samples);
        }
        *aggregations += 1;
        if *aggregations >= tuning.aggregations {
            self.sample = tuning.next(self.sample, *seen, *most);
            self.seen = (0, 0, 0);
        }
    }
}
