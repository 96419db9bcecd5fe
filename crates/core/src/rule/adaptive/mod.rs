//! Rule `adaptive`: pages that are early at every scan.
//!
//! For the pages of lower tiers that would go to the same top-tier node:
//! 1. A page's wait is the time from the scan to its hint fault, times the base pages of its folio: what counts is the
//!    access rate per page of DRAM. A sample of pages remembers the last two waits of each.
//! 2. Ten times a second the cut is set where the sampled pages agree best with themselves: where being below it at one fault
//!    says most about the next (correlation at least 0.1, and beyond chance). Without such a cut nothing stands out.
//! 3. A page is proposed after `confirmations` (3) faults in a row below the cut, or one fewer where they are at least
//!    `slow_pass_ms` (5000) apart; the shorter the wait, the higher its score. One fault above starts again at nothing. So does a
//!    wait of `cut_max_ms` (60000) or more.
//! 4. When nothing stands out any more, because the hot pages have moved, the cut stays, but at most at the best tenth of the waits.
//! 5. Where the top tier is full, a page goes up only for another one that [demotion](crate::demotion) finds to be colder by far, so that a wrong guess costs little and
//!    waiting costs more. With `exchange`, a page is then proposed as soon as it is more likely hot than not, given how often pages stay below the cut; and
//!    while nothing stands out clearly, the best quarter is, after a single fault. What was not confirmed is ranked by its wait and the average wait together.
//! 6. Where there is room, `settle_s` (10) after pages last stood out clearly (correlation at least 0.3), if `fill` is set, the best of the others fill the target
//!    until a sixteenth of it is left: the cut is then where as many pages as there is room for would pass all confirmations by chance, and
//!    those that are accessed more often pass sooner. Smooth popularity, without a line between hot and cold, is served that way. Else nothing
//!    is proposed.
//! 7. Where cold pages go down, nothing has to be left free for what may stand out later. So with `fill`, whatever is free beyond what demotion keeps free is filled with the pages that wait
//!    least, as many as there is room for, after a single fault. And where a demand for cold pages was met although nothing waited for the room (three quarters of it at least), with
//!    `exchange` pages go up that are accessed four times as often as what went down.
//! 8. Where there is room for all that the lower tiers hold, there is nothing to choose: with `fill`, a page is proposed as soon as it is accessed.
//!
//! Accesses of other sources are judged as by the rule `frequency`, and by 8; regions as by `regions`: a region says nothing of one page alone, so that it neither
//! confirms a page nor counts against it. Source: ours. It needs no threshold in ms and no model of the
//! waits: faults slow a program down, so that early and late lie closer together than the access rates do.

mod sample;
#[cfg(test)]
mod simulation;

use std::collections::BTreeMap;

use crate::access::{Access, Detail, RegionPage, RegionSnapshot};
use crate::config;
use crate::demotion::{COLDER, Supply};
use crate::moves::{Move, Outcome};
use crate::rule::{
    Candidate, Candidates, Context, Frequency, Gauge, Reason, Record, Regions, Rule, score_of_rate,
};
use crate::topology::NodeState;
use crate::units::{Nanos, NodeId, Pfn, Pid, VirtPage};
use sample::{Bin, Cut, Sample};

/// Time between two looks at the sample while pages fault: some within the second or so in which a marked program's
/// faults come, because waits shrink as soon as the hot pages have gone.
const LOOK_EVERY: Nanos = Nanos::from_ms(100);
/// Time between two looks while no page faults.
const LOOK_IDLE: Nanos = Nanos::from_s(1);
/// Correlation, squared, of waits where hot and cold pages are two kinds. Where it is less, popularity falls off smoothly.
const CLEAR: f64 = 0.1;
/// Share of the pages below the cut while nothing is known, in percent.
const BEST_PERCENT: u32 = 25;
/// Where the top tier is full, a page is proposed that is hot with this probability: it goes up only for one that is colder by far.
const CERTAIN_ENOUGH: f64 = 0.5;

/// A demand for cold pages is met where no more than this part of it was not found.
const ENOUGH: u64 = 4;
/// Share of the pages below the cut while room is filled, at most, in percent: the slowest are cold whatever there is room for.
const FILL_PERCENT_MAX: u32 = 90;

/// What the waits of one target's pages say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Too few pages so far.
    Unknown,
    /// Pages are alike, as far as can be seen.
    Alike,
    /// Some pages are early again and again.
    StandOut(Cut),
}

/// Why pages below the cut are proposed, if they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Faults are counted, so that there is something to go by once hot pages are seen to stand out.
    Counting,
    /// They are hot.
    Hot,
    /// There is room to fill.
    Fill,
    /// They are among the better ones, and the target may hold what is colder by far.
    Exchange,
}

/// The pages that compete for the DRAM of one node.
#[derive(Clone, Debug)]
struct Target {
    sample: Sample,
    looked: Nanos,
    pages: u32,
    state: State,
    /// Waits of this bin and below count for a page.
    cut: Option<Bin>,
    /// The cut when pages last stood out.
    last_cut: Option<Bin>,
    purpose: Purpose,
    /// Faults in a row below the cut that are enough where a page can only go up in exchange for another one.
    enough: Option<u8>,
    /// When pages were last seen to stand out, or the first fault.
    stood_out: Nanos,
    /// Base pages that may be filled.
    room: u64,
    /// Nor is there room on any other node of the top tier.
    full: bool,
    /// What a page of no known heat waits on average.
    mean: Nanos,
    /// A page that is accessed so often is worth what the target gives although nobody waits for it; 0 where it gives nothing by itself.
    worth: Nanos,
    /// Base pages that are free beyond what demotion keeps free.
    spare: u64,
    /// As many pages as are spare have waits of this bin and below.
    spare_cut: Option<Bin>,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Adaptive {
    config: config::rule::Adaptive,
    frequency: Frequency,
    regions: Regions,
    life: Nanos,
    /// Only nodes of the topology get an entry, so the map is bounded.
    targets: BTreeMap<NodeId, Target>,
    /// The top tier, as it was when the last of them was first seen: pages that find no room on one go to another.
    top: Vec<NodeId>,
    /// The top tier has room for all that the others hold.
    fits: bool,
    /// Base pages that the others hold.
    held: u64,
}

impl Adaptive {
    /// The rule with its keys and those of `frequency` and `regions`; candidates live for `life`.
    pub fn new(keys: &config::Rule, life: Nanos) -> Adaptive {
        Adaptive {
            config: keys.adaptive.clone(),
            frequency: Frequency::new(&keys.frequency, life),
            regions: Regions::new(&keys.regions, life),
            life,
            targets: BTreeMap::new(),
            top: Vec::new(),
            fits: false,
            held: 0,
        }
    }

    /// Takes note of what lower tiers hold, and whether the top tier has room for all of it.
    fn weigh(&mut self, nodes: &[NodeState]) {
        let (top, lower): (Vec<&NodeState>, Vec<&NodeState>) =
            nodes.iter().partition(|state| self.top.contains(&state.node));
        self.held = lower.iter().map(|s| s.managed_pages.saturating_sub(s.free_pages)).sum();
        let known = !top.is_empty() && !lower.is_empty();
        self.fits = self.config.fill && known && self.held <= top.iter().map(|state| room(state)).sum();
    }

    /// Judges a page by what other sources than hint faults know.
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

    /// Faults in a row below the cut that a page needs. Slow passes bring fewer chances for a cold page to be early by
    /// chance, and a hot one has waited long enough.
    fn needed(&self, record: &Record) -> u8 {
        let slow = record.gap.is_none_or(|gap| gap >= Nanos::from_ms(self.config.slow_pass_ms));
        let all = self.config.confirmations;
        if slow { all.saturating_sub(1).max(1) } else { all }
    }
}

fn top_tier(ctx: &Context<'_>) -> Vec<NodeId> {
    ctx.topology.nodes.iter().map(|n| n.id).filter(|id| ctx.topology.is_top(*id)).collect()
}

/// Base pages of a node that may be filled: those free above the high watermark and a sixteenth of the node.
fn room(state: &NodeState) -> u64 {
    let spare = state.watermarks.high_pages.saturating_add(state.managed_pages / 16);
    state.free_pages.saturating_sub(spare)
}

/// What a page is known by in the sample: its frame, or else its address.
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
            target.sample.fault(key, bin, access.time);
        }
        let worth_moving = latency.time.ms() < self.config.cut_max_ms;
        if self.fits && worth_moving {
            record.ready = true;
            out.push(Candidate::promotion(access, score_of_rate(wait), Reason::FreeRoom, self.life));
            return;
        }
        let Some(cut) = target.cut else { return };
        let below = bin <= cut && worth_moving;
        record.frequency = if below { record.frequency.saturating_add(1).min(ctx.frequency_max) } else { 0 };
        // A layout that cannot count so far is full at its maximum.
        let needed = target.enough.map_or(confirmed, |enough| enough.min(confirmed)).min(ctx.frequency_max);
        let hot = record.frequency >= needed && target.purpose != Purpose::Counting;
        // One wait alone says little: taken together with a prior one of average length, it says how hot the page may be.
        let likely = Nanos(wait.0 / 2).plus(Nanos(target.mean.0 / 2));
        let exchanged = self.config.exchange && likely <= target.worth;
        record.ready = worth_moving
            && (hot || exchanged || (self.config.fill && target.takes_spare(bin, access.pages())));
        if record.ready {
            let reason = match target.purpose {
                _ if exchanged && !hot => Reason::Exchange,
                _ if !hot => Reason::FreeRoom,
                Purpose::Fill => Reason::FreeRoom,
                Purpose::Exchange => Reason::Exchange,
                Purpose::Hot | Purpose::Counting => Reason::HighRate,
            };
            let sure = hot
                && record.frequency >= confirmed.min(ctx.frequency_max)
                && target.purpose != Purpose::Exchange;
            let gap = if sure { wait } else { likely };
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
            target.spare = pages;
        }
    }

    fn on_supply(&mut self, supply: &Supply) {
        if let Some(target) = self.targets.get_mut(&supply.node) {
            let idle_by_itself = !supply.waited && supply.short <= supply.asked / ENOUGH;
            target.worth = if idle_by_itself { Nanos(supply.idle.0 / COLDER) } else { Nanos(0) };
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
        // Of a node whose state is not told nothing is known, and least of all that it is full.
        let mut top = nodes.iter().filter(|state| self.top.contains(&state.node)).peekable();
        let full = top.peek().is_some() && top.all(|state| room(state) == 0);
        self.weigh(nodes);
        for target in self.targets.values_mut() {
            target.full = full;
            let since = now.since(target.looked);
            if since >= LOOK_IDLE || (since >= LOOK_EVERY && target.sample.changed()) {
                target.looked = now;
                target.look(now, self.held, &self.config);
            }
        }
    }

    fn on_outcome(&mut self, done: &Move, outcome: Outcome, _out: &mut Candidates) {
        if matches!(outcome, Outcome::Moved | Outcome::AlreadyThere | Outcome::Gone)
            && let Some(key) = key(done.pfn, Some(done.page))
        {
            for target in self.targets.values_mut() {
                target.sample.moved(key);
            }
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        let targets = self.targets.iter().flat_map(|(node, target)| target.gauges(*node));
        targets.chain(self.regions.gauges()).collect()
    }
}

impl Target {
    fn new(now: Nanos) -> Target {
        Target {
            sample: Sample::new(),
            looked: now,
            pages: 0,
            state: State::Unknown,
            cut: None,
            last_cut: None,
            purpose: Purpose::Counting,
            enough: None,
            stood_out: now,
            room: 0,
            full: false,
            mean: Nanos(0),
            worth: Nanos(0),
            spare: 0,
            spare_cut: None,
        }
    }

    /// Takes note of the node's free memory, and stops filling where it runs out.
    fn set_room(&mut self, state: &NodeState) {
        self.room = room(state);
        if self.purpose == Purpose::Fill && self.room == 0 {
            self.purpose = Purpose::Counting;
        }
    }

    /// Whether a page with such a wait is among the best for which there is spare memory; if so, that is taken.
    fn takes_spare(&mut self, bin: Bin, pages: u64) -> bool {
        let takes = self.spare >= pages && self.spare_cut.is_some_and(|cut| bin <= cut);
        if takes {
            self.spare -= pages;
        }
        takes
    }

    /// Looks at the sample and sets the cut.
    fn look(&mut self, now: Nanos, held: u64, config: &config::rule::Adaptive) {
        let waits = self.sample.waits(now);
        self.pages = waits.pages();
        // Of what lower tiers hold, not of what was seen so far: the first to fault are not all there are.
        let spare_percent = (self.spare * 100 / self.sample.population(now).max(held).max(1)).min(100) as u32;
        self.spare_cut = (spare_percent > 0).then(|| waits.quantile(spare_percent));
        // Of exponential waits the median is ln 2 of the mean.
        self.mean = Nanos((sample::wait(waits.quantile(50)).0 as f64 / std::f64::consts::LN_2) as u64);
        self.state = match waits.cut() {
            _ if self.pages < config.pages_min => State::Unknown,
            Some(cut) => State::StandOut(cut),
            None => State::Alike,
        };
        if let State::StandOut(cut) = self.state
            && cut.agreement >= CLEAR
        {
            self.stood_out = now;
        }
        let settled = now.since(self.stood_out) >= Nanos::from_s(config.settle_s);
        let fill = config.fill && settled && self.room > 0 && waits.can_tell();
        self.enough = match self.state {
            _ if !config.exchange || !self.full => None,
            State::StandOut(cut) if cut.agreement >= CLEAR => {
                (1..=config.confirmations).find(|times| cut.certainty(*times) >= CERTAIN_ENOUGH)
            }
            State::StandOut(_) | State::Alike => Some(1),
            State::Unknown => None,
        };
        match (self.state, self.last_cut) {
            (State::StandOut(_) | State::Alike, _) if fill => {
                // So that by chance alone as many pages pass as there is room for.
                let share = self.room as f64 / self.sample.population(now).max(1) as f64;
                let percent = 100.0 * share.powf(1.0 / f64::from(config.confirmations));
                self.purpose = Purpose::Fill;
                self.cut = Some(waits.quantile((percent as u32).clamp(BEST_PERCENT, FILL_PERCENT_MAX)));
            }
            (State::StandOut(cut), _) => {
                self.purpose = Purpose::Hot;
                // What is less hot than what stands out clearly goes up only for what is colder by far.
                let widened = config.exchange && self.full && cut.agreement < CLEAR;
                let best = if widened { waits.quantile(BEST_PERCENT) } else { 0 };
                self.cut = Some(cut.bin.max(best));
                self.last_cut = self.cut;
            }
            (State::Unknown, Some(_)) => {}
            (State::Unknown, None) => {
                self.purpose = Purpose::Counting;
                self.cut = None;
            }
            (State::Alike, Some(last)) if !settled => self.cut = Some(last.min(waits.quantile(10))),
            (State::Alike, _) => {
                self.last_cut = None;
                self.purpose =
                    if config.exchange && self.full { Purpose::Exchange } else { Purpose::Counting };
                self.cut = Some(waits.quantile(BEST_PERCENT));
            }
        }
    }

    fn gauges(&self, node: NodeId) -> Vec<Gauge> {
        let gauge = |name, value| Gauge { name, node: Some(node), value };
        let agreement = match self.state {
            State::StandOut(cut) => (cut.agreement * 100.0) as u64,
            State::Unknown | State::Alike => 0,
        };
        // The cut includes its bin: it ends where the next one begins.
        let cut_us = match (self.purpose, self.cut) {
            (Purpose::Counting, _) | (_, None) => 0,
            (_, Some(bin)) => sample::wait(bin + 1).0 / 1000,
        };
        vec![
            gauge("cut_us", cut_us),
            gauge("agreement_percent", agreement),
            gauge("filling", u64::from(self.purpose == Purpose::Fill)),
            gauge("pages_sampled", self.pages.into()),
        ]
    }
}
