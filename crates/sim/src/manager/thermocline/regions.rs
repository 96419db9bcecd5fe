//! DAMON's regions: for each node a kdamond that moves nothing ([`Watch`]), read by the daemon.
//!
//! Pages of lower tiers are looked up within the budget of `[source.damon]`, regions with most
//! accesses first. The next look-up continues in a region where the last one stopped.

use std::cmp::Reverse;

use thermocline_core::access::{Evidence, Region, RegionPage, RegionSnapshot, RegionSpace};
use thermocline_core::config::{Config, DamonAddresses};
use thermocline_core::units::Nanos;

use crate::kernel::damon::watch::Watch;
use crate::machine::Machine;
use crate::memory::Page;
use crate::spec::SpecError;
use crate::system::{NEVER, System};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Watching {
    watches: Vec<Watch>,
    pages_per_s: u64,
    /// The page at which each node's next look-up begins.
    next: Vec<Page>,
}

impl Watching {
    /// Regions, if they are switched on.
    ///
    /// # Errors
    /// The configured kind of addresses is not simulated.
    pub(super) fn new(config: &Config, machine: &Machine) -> Result<Option<Watching>, SpecError> {
        let keys = &config.source.damon;
        if keys.enabled && keys.addresses == DamonAddresses::Virtual {
            let message = "\"virtual\" is not simulated";
            return Err(SpecError::new("config.source.damon.addresses", message, "use \"physical\""));
        }
        let nodes = machine.nodes.len();
        Ok(keys.enabled.then(|| Watching {
            watches: (0..nodes).map(|node| Watch::new(node as u8, keys)).collect(),
            pages_per_s: keys.pages_per_s.into(),
            next: vec![0; nodes],
        }))
    }

    pub(super) fn due(&self) -> Nanos {
        self.watches.iter().map(|w| w.due).min().unwrap_or(NEVER)
    }

    /// CPU time of the kdamonds in ns.
    pub(super) fn spent_ns(&self) -> f64 {
        self.watches.iter().map(|w| w.spent_ns).sum()
    }

    pub(super) fn run(&mut self, system: &mut System, observe: &mut dyn FnMut(Evidence<'_>)) {
        let mut snapshot = RegionSnapshot { time: system.now, regions: Vec::new() };
        let mut pages = Vec::new();
        for watch in &mut self.watches {
            if watch.due > system.now {
                continue;
            }
            let (node, check) = (watch.node(), watch.sample());
            let samples = u64::from(watch.samples().max(1));
            let Some(found) = watch.run(system) else { continue };
            let aggregation = Nanos(check.0 * samples);
            let space = RegionSpace::Physical(system.machine.nodes[usize::from(node)].id);
            let lower = !system.machine.is_top(node);
            let base = if lower { 0 } else { system.memory.pages() };
            let told = found.iter().map(|r| Region {
                space,
                start: base + u64::from(r.start),
                end: base + u64::from(r.end),
                access_rate_bp: (u64::from(r.nr).min(samples) * 10_000 / samples) as u16,
                age: Nanos(aggregation.0 * u64::from(r.age)),
                check,
            });
            let told: Vec<Region> = told.collect();
            if lower {
                let budget =
                    (u128::from(self.pages_per_s) * u128::from(aggregation.0) / 1_000_000_000) as u64;
                look_up(system, node, &told, budget, &mut self.next[usize::from(node)], &mut pages);
            }
            snapshot.regions.extend(told);
        }
        if !snapshot.regions.is_empty() {
            observe(Evidence::Regions(&snapshot));
            observe(Evidence::RegionPages(&pages));
        }
    }
}

/// Appends pages of a node's regions, as many as the budget allows.
fn look_up(
    system: &System,
    node: u8,
    regions: &[Region],
    budget: u64,
    next: &mut Page,
    out: &mut Vec<RegionPage>,
) {
    let mut hottest: Vec<&Region> = regions.iter().filter(|r| r.access_rate_bp > 0).collect();
    hottest.sort_by_key(|r| (Reverse(r.access_rate_bp), r.start));
    let mut left = budget;
    for region in hottest {
        let from = u64::from(*next);
        let from = if (region.start..region.end).contains(&from) { from } else { region.start };
        for page in (from..region.end).chain(region.start..from) {
            if left == 0 {
                *next = page as Page;
                return;
            }
            let page = page as Page;
            if system.memory.node(page) == Some(node) {
                left -= 1;
                out.push(RegionPage {
                    page: system.virt(page),
                    pfn: Some(system.pfn(page)),
                    order: 0,
                    node: system.machine.nodes[usize::from(node)].id,
                    region: *region,
                    time: system.now,
                });
            }
        }
    }
}
