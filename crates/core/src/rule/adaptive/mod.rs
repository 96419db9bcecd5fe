//! Rule `adaptive`: pages that fault early after every scan.
//!
//! For the pages of lower tiers that would go to the same top-tier node:
//! 1. A page's wait is the time from the scan to its hint fault, times the base pages of its folio:
//!    the access rate per page of DRAM matters. A sample of pages keeps the last two waits of each.
//! 2. Ten times a second the cut is set where being below it at one fault predicts the page's next
//!    fault best (correlation at least 0.1, and beyond chance). Without such a cut nothing stands
//!    out.
//! 3. A page is proposed after `confirmations` (3) faults in a row below the cut, or one fewer
//!    where they are at least `slow_pass_ms` (5000) apart; the shorter the wait, the higher its
//!    score. One fault above the cut resets the count. So does a wait of `cut_max_ms` (60000) or
//!    more.
//! 4. When nothing stands out any more, because the hot pages have moved, the cut stays, but at
//!    most at the shortest tenth of the waits.
//! 5. Where the top tier is full, a page is promoted only in exchange for one that
//!    [demotion](crate::demotion) finds far colder, so a wrong guess costs little and waiting costs
//!    more. With `exchange`, a page is then proposed as soon as it is more likely hot than not,
//!    given how often pages stay below the cut; and while nothing stands out clearly, or what stood
//!    out has been promoted, the best quarter is proposed after a single fault. Unconfirmed pages
//!    are ranked by an estimate from their wait and from how much pages differ (`prior`).
//! 6. Where there is room, `settle_s` (10) after pages last stood out clearly (correlation at least
//!    0.3), if `fill` is set, the best of the others fill the target until a sixteenth of it is
//!    left: the cut is then set so that as many pages as there is room for would pass all
//!    confirmations by chance, and more popular pages pass sooner. That serves smooth popularity,
//!    without a line between hot and cold. Otherwise nothing is proposed.
//! 7. Where cold pages are demoted, nothing has to be left free for pages that stand out later. So
//!    with `fill`, memory that is free beyond demotion's goal is filled with the pages of the
//!    shortest waits, as many as there is room for, after a single fault. If at least three
//!    quarters of a demand for cold pages were found although nothing waited for the room, with
//!    `exchange` pages are promoted that are accessed four times as often as the demoted ones.
//! 8. Where there is room for all memory of lower tiers, there is nothing to choose: with `fill`, a
//!    page is proposed as soon as it is accessed.
//!
//! Accesses of other sources are judged as by the rule `frequency`, and by 8; regions as by
//! `regions`: a region says nothing about a single page, so it neither confirms a page nor counts
//! against it. Source: ours. It needs no threshold in ms and no model of the waits: faults slow a
//! program down, so short and long waits lie closer together than the access rates.

mod prior;
mod sample;
#[cfg(test)]
mod simulation;
mod target;

use std::collections::BTreeMap;

use crate::access::{Access, Detail, RegionPage, RegionSnapshot};
use crate::candidate::{Candidate, Candidates, Reason, score_of_rate};
use crate::config;
use crate::demand::Supply;
use crate::moves::{Move, Outcome};
use crate::record::Record;
use crate::rule::{Context, Frequency, Gauge, Regions, Rule};
use crate::topology::NodeState;
use crate::units::{Nanos, NodeId, Pfn, Pid, VirtPage};
use target::{Fault, Target, room};

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Adaptive {
    config: config::rule::Adaptive,
    frequency: Frequency,
    regions: Regions,
    life: Nanos,
    /// Only nodes of the topology get an entry, so the map is bounded.
    targets: BTreeMap<NodeId, Target>,
    /// The top tier as of when the last target was first seen: pages that find no room on one node
    /// go to another.
    top: Vec<NodeId>,
    /// The top tier has room for all memory of lower tiers.
    fits: bool,
    /// Base pages that lower tiers hold.
    held: u64,
}

impl Adaptive {
    /// The rule with its keys and those of `frequency` and `regions`, on records of this layout;
    /// candidates live for `life`.
    pub fn new(keys: &config::Rule, record: config::RecordLayout, life: Nanos) -> Adaptive {
        Adaptive {
            config: keys.adaptive.clone(),
            frequency: Frequency::new(&keys.frequency, record, life),
            regions: Regions::new(&keys.regions, life),
            life,
            targets: BTreeMap::new(),
            top: Vec::new(),
            fits: false,
            held: 0,
        }
    }

    /// Updates how much lower tiers hold, and whether the top tier has room for all of it.
    fn weigh(&mut self, nodes: &[NodeState]) {
        let (top, lower): (Vec<&NodeState>, Vec<&NodeState>) =
            nodes.iter().partition(|state| self.top.contains(&state.node));
        self.held = lower.iter().map(|s| s.managed_pages.saturating_sub(s.free_pages)).sum();
        let known = !top.is_empty() && !lower.is_empty();
        self.fits = self.config.fill && known && self.held <= top.iter().map(|state| room(state)).sum();
    }

    /// Judges a page by an access of a source other than hint faults.
    fn count(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        if self.top.is_empty() {
            self.top = top_tier(ctx);
        }
        self.frequency.on_access(access, record, ctx, out);
        let lower = ctx.topology.is_lower(access.node) && access.accessor != Some(access.node);
        if self.fits && lower && !record.ready {
            record.ready = true;
            let score = score_of_rate(access.detail.between_accesses(self.frequency.window()));
            out.push(Candidate::promotion(access, score, Reason::FreeRoom, self.life));
        }
    }

    /// Faults in a row below the cut that a page needs. In slow passes a cold page has fewer
    /// chances to be early, and a hot one has waited long enough.
    fn needed(&self, record: &Record) -> u8 {
        let slow = record.gap.is_none_or(|gap| gap >= Nanos::from_ms(self.config.slow_pass_ms));
        let all = self.config.confirmations;
        if slow { all.saturating_sub(1).max(1) } else { all }
    }
}

fn top_tier(ctx: &Context<'_>) -> Vec<NodeId> {
    ctx.topology.nodes.iter().map(|n| n.id).filter(|id| ctx.topology.is_top(*id)).collect()
}

/// The key of a page in the sample: its frame, or else its address.
fn key(pfn: Option<Pfn>, page: Option<VirtPage>) -> Option<u64> {
    match (pfn, page) {
        (Some(pfn), _) => Some(pfn.0),
        (None, Some(page)) => Some(!(page.vpn ^ (u64::from(page.pid.0) << 32))),
        (None, None) => None,
    }
}

impl Rule for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn window(&self) -> Nanos {
        Nanos::from_ms(self.config.slow_pass_ms).max(self.frequency.window())
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let Detail::HintFault { latency } = access.detail else {
            return self.count(access, record, ctx, out);
        };
        let (Some(latency), Some(node)) =
            (latency, ctx.topology.promotion_target(access.node, access.accessor))
        else {
            return;
        };
        let confirmed = self.needed(record);
        let target = self.targets.entry(node).or_insert_with(|| {
            self.top = top_tier(ctx);
            Target::new(access.time)
        });
        let wait = Nanos(latency.time.0.saturating_mul(access.pages()));
        let bin = sample::bin(wait);
        if let Some(key) = key(access.pfn, access.page) {
            target.faulted(key, bin, access.time);
        }
        let worth_moving = latency.time.ms() < self.config.cut_max_ms;
        if self.fits && worth_moving {
            record.ready = true;
            out.push(Candidate::promotion(access, score_of_rate(wait), Reason::FreeRoom, self.life));
            return;
        }
        let Some(below) = target.below_cut(bin) else { return };
        let times = if below && worth_moving { record.frequency.saturating_add(1) } else { 0 };
        // A layout that cannot count that far saturates.
        record.frequency = times.min(ctx.frequency_max);
        let confirmed = confirmed.min(ctx.frequency_max);
        let fault = Fault { wait, bin, pages: access.pages(), times: record.frequency, confirmed };
        let proposal = if worth_moving { target.judge(&fault, &self.config) } else { None };
        record.ready = proposal.is_some();
        if let Some((reason, gap)) = proposal {
            out.push(Candidate::promotion(access, score_of_rate(gap), reason, self.life));
        }
    }

    fn on_regions(&mut self, snapshot: &RegionSnapshot, ctx: &Context<'_>, out: &mut Candidates) {
        self.regions.on_regions(snapshot, ctx, out);
    }

    fn on_region_pages(&mut self, pages: &[RegionPage], ctx: &Context<'_>, out: &mut Candidates) {
        self.regions.on_region_pages(pages, ctx, out);
    }

    fn on_spare(&mut self, node: NodeId, pages: u64) {
        if let Some(target) = self.targets.get_mut(&node) {
            target.set_spare(pages);
        }
    }

    fn on_supply(&mut self, supply: &Supply) {
        if let Some(target) = self.targets.get_mut(&supply.node) {
            target.set_worth(supply);
        }
    }

    fn on_exit(&mut self, pid: Pid) {
        self.regions.on_exit(pid);
    }

    fn on_tick(&mut self, now: Nanos, nodes: &[NodeState], out: &mut Candidates) {
        self.regions.on_tick(now, nodes, out);
        for state in nodes {
            if let Some(target) = self.targets.get_mut(&state.node) {
                target.set_room(state);
            }
        }
        // A node without a reported state is not known to be full.
        let mut top = nodes.iter().filter(|state| self.top.contains(&state.node)).peekable();
        let full = top.peek().is_some() && top.all(|state| room(state) == 0);
        self.weigh(nodes);
        for target in self.targets.values_mut() {
            target.set_full(full);
            target.tick(now, self.held, &self.config);
        }
    }

    fn on_outcome(&mut self, done: &Move, outcome: Outcome, _out: &mut Candidates) {
        if matches!(outcome, Outcome::Moved | Outcome::AlreadyThere | Outcome::Gone)
            && let Some(key) = key(done.pfn, Some(done.page))
        {
            for target in self.targets.values_mut() {
                target.moved(key);
            }
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        let targets = self.targets.iter().flat_map(|(node, target)| target.gauges(*node));
        targets.chain(self.regions.gauges()).collect()
    }
}
