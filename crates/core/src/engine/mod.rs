//! The engine: evidence in, batches out, outcomes in. [`crate::driver`] calls it for the owner of a
//! [`crate::machine::Machine`], and nothing in it blocks.
//!
//! Equal inputs give equal decisions, to the byte of the journal. Time is the argument of
//! [`Engine::tick`] and never goes back. Invalid evidence is counted and ignored. All state is
//! bounded.

mod batches;
mod demote;
mod explain;
mod explain_scope;
mod gauges;
mod issue;
mod ledger;
mod outcome;
mod propose;
mod reload;
mod worth;

#[cfg(test)]
mod tests;

pub use explain::{Explanation, PageState, Remembered, Said};
pub use explain_scope::ScopeExplanation;
pub use gauges::Status;
pub use ledger::ScopeLedger;
pub use reload::{ReloadError, reloadable};
pub use worth::{LeftBelow, MovedPage, RefusedPage, Worth};

use std::collections::BTreeMap;

use crate::access::{
    Access, Detail, Evidence, Mappings, NoMappings, Region, RegionPage, RegionSnapshot, Source,
};
use crate::admission::far_nodes::{self, FarNodes};
use crate::admission::preferred::NoTop;
use crate::admission::{Admission, Admitted, Braking, ORDER_MAX, Standing};
use crate::candidate::Candidates;
use crate::config::{Config, ConfigError, RuleName, SharesExceed};
use crate::counters::Counters;
use crate::demotion::Demotion;
use crate::journal::{Decision, Journal, What};
use crate::label::Label;
use crate::moves::Batch;
use crate::pace::{PASS, Pace, Pacing, ScanPace};
use crate::payoff::{Payoff, Room};
use crate::queue::Queue;
use crate::record::{Record, RecordError, RecordParams, RecordTable};
use crate::refusal::RefusalReason;
use crate::rule::{self, Context, Rule};
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, PAGE_SHIFT, Pfn, Pid, ScopeId, VirtPage};
use crate::weigh::Weights;

/// Why an engine cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A value is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The record cannot hold what this machine needs.
    #[error(transparent)]
    FarNodes(#[from] FarNodes),
    /// A `target_nid` is no node of the top tier.
    #[error(transparent)]
    NoTop(#[from] NoTop),
    /// The shares come to more than the machine has.
    #[error(transparent)]
    Shares(#[from] SharesExceed),
    /// The records cannot be created.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Decides which pages move between tiers.
#[derive(Debug)]
pub struct Engine {
    /// The configuration in use.
    config: Box<Config>,
    topology: Topology,
    table: RecordTable,
    rule: Box<dyn Rule>,
    out: Candidates,
    out_dropped: u64,
    queue: Queue,
    admission: Admission,
    demotion: Demotion,
    /// `None` if the kernel's scans are left as configured.
    pace: Option<Pace>,
    /// `None` if pages move whatever that gains.
    payoff: Option<Payoff>,
    journal: Journal,
    counters: Counters,
    ledgers: ledger::Ledgers,
    /// The time of the latest tick; none before the first.
    now: Option<Nanos>,
    next_batch: u64,
    batch_pages: u64,
    retries: u8,
    retry_delay: Nanos,
    life: Nanos,
    fence: Option<reload::Fence>,
}

/// One in this many pages is looked up when it is accessed on a lower tier: a look-up costs as much
/// as all other work for an access.
const BACK_SAMPLED: u64 = 16;
/// Pages whose look-ups are prepared while others are decided on: enough to hide the latency of
/// DRAM.
const LOOK_AHEAD: usize = 8;
/// How far ahead of the latest tick evidence may be dated.
const AHEAD_MAX: Nanos = Nanos::from_s(60);
/// log2 of the base pages in a section of 128 MiB.
const SECTION_SHIFT: u32 = 27 - PAGE_SHIFT;
/// Sections that may have records at least: 1 TiB of address space, so that small machines may
/// grow.
const SECTIONS_MIN: u64 = 1 << 13;

impl Engine {
    /// An engine with the rule that the configuration names.
    ///
    /// # Errors
    /// A value out of its range, or a record that does not suit the machine.
    pub fn new(config: &Config, topology: Topology) -> Result<Engine, EngineError> {
        Engine::with_rule(config, topology, rule::build(config))
    }

    /// An engine with a custom rule.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn with_rule(
        config: &Config,
        topology: Topology,
        rule: Box<dyn Rule>,
    ) -> Result<Engine, EngineError> {
        config.check()?;
        config.check_shares_fit(topology.top_mib())?;
        far_nodes::check(&config.engine, &topology)?;
        Ok(Engine {
            config: Box::new(config.clone()),
            table: table(config, &topology, rule.window())?,
            rule,
            out: Candidates::new(config.queue.capacity as usize),
            out_dropped: 0,
            queue: Queue::new(config.queue.capacity, Weights::new(&config.source)),
            admission: Admission::new(config, &topology)?,
            demotion: Demotion::new(config),
            pace: Pace::new(config),
            payoff: is_weighed(config).then(|| Payoff::new(&config.payoff, &topology)),
            journal: Journal::new(config.journal.capacity),
            counters: Counters::default(),
            ledgers: ledger::Ledgers::default(),
            now: None,
            next_batch: 1,
            batch_pages: u64::from(config.admission.batch_pages),
            retries: config.queue.retries,
            retry_delay: Nanos::from_ms(config.queue.retry_delay_ms),
            life: Nanos::from_ms(config.queue.expire_ms),
            fence: None,
            topology,
        })
    }

    /// Takes evidence from the machine.
    pub fn observe(&mut self, evidence: Evidence<'_>) {
        match evidence {
            Evidence::Accesses { batch, mappings } => self.accesses(batch, mappings),
            Evidence::Regions(snapshot) => self.regions(snapshot),
            Evidence::RegionPages(pages) => self.region_pages(pages),
            // Records of new frames are created at their first access.
            Evidence::MemoryOnline { .. } => {}
            Evidence::MemoryOffline { start, end } => self.offline(start, end),
            Evidence::Topology(topology) => self.set_topology(topology),
            Evidence::Process { pid, membership } => match self.admission.assign(pid, membership) {
                // Waiting candidates keep the scope that they joined with.
                Some(true) => self.drop_waiting(pid),
                Some(false) => {}
                None => self.counters.evidence_invalid += 1,
            },
            Evidence::Exec { pid } => {
                self.admission.exec(pid);
                self.drop_waiting(pid);
            }
            Evidence::Exit { pid } => {
                self.admission.exit(pid);
                self.drop_waiting(pid);
            }
            Evidence::Outcome(outcome) => self.settle(outcome),
            Evidence::Demoted(done) => self.settle_demand(done),
            Evidence::Holding(holding) => {
                self.look_at_fence();
                self.counters.evidence_invalid += u64::from(!self.admission.tell(&holding));
            }
            Evidence::Pressure(pressure) => self.admission.feel(&pressure),
            Evidence::Scans(scans) => {
                if let Some(pace) = &mut self.pace {
                    pace.see(scans);
                }
            }
            Evidence::Programs(programs) => {
                if let Some(payoff) = &mut self.payoff {
                    payoff.programs(&programs);
                }
            }
        }
        self.accept_proposals();
    }

    /// Advances time to `now` and returns the batches to move. `nodes` has the states of the nodes
    /// at about `now`; a node without a state receives no pages.
    pub fn tick(&mut self, now: Nanos, nodes: &[NodeState]) -> Vec<Batch> {
        let now = self.now.map_or(now, |before| before.max(now));
        self.now = Some(now);
        self.counters.ticks += 1;
        if let Some(payoff) = &mut self.payoff {
            let lower = nodes.iter().filter(|state| self.topology.is_lower(state.node));
            let held = lower.map(|state| state.managed_pages.saturating_sub(state.free_pages)).sum();
            let mut top = nodes.iter().filter(|state| self.topology.is_top(state.node));
            payoff.see_room(top.any(|state| state.free_pages > self.demotion.enough(state)));
            let best_room = if self.admission.anyone_lacks_share(now) { Room::Owed } else { Room::Priced };
            payoff.tick(now, self.pace.as_ref().map_or((PASS, None), Pace::pass), held, best_room);
        }
        self.rule.on_tick(now, nodes, &mut self.out);
        self.accept_proposals();
        self.give_up_overdue(now);
        self.queue.wake(now);
        for (admitted, held) in self.queue.sweep(now) {
            self.expire(&admitted, held);
        }
        self.issue(now, nodes)
    }

    /// How the kernel should scan from `now` on, given the nodes' states, as far as `pacing`
    /// allows; `None` if that is left to the configuration.
    pub fn pace(&mut self, now: Nanos, nodes: &[NodeState], pacing: Pacing) -> Option<ScanPace> {
        let now = now.max(self.clock());
        let affordable = self.payoff.as_ref().and_then(Payoff::faults_affordable);
        self.pace.as_mut()?.look(now, nodes, &self.topology, pacing, affordable)
    }

    /// The machine as the engine knows it.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The latest decisions.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The candidates that wait.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Moves that the machine was asked for and whose outcome it has not reported.
    pub fn moves_in_flight(&self) -> usize {
        self.admission.moves_in_flight()
    }

    /// The state of each scope whose holding counts: those with a floor, a cap or a share, and all
    /// as soon as one has a share.
    pub fn standings(&self) -> Vec<Standing> {
        self.admission.standings(self.clock(), &self.wanting())
    }

    /// What scopes would hold more if they could. Where none has a share, nobody asks.
    fn wanting(&self) -> BTreeMap<ScopeId, u64> {
        if self.admission.has_shares() { self.queue.wanting() } else { BTreeMap::new() }
    }

    /// The brakes of the scopes whose memory may move; empty where `brake.enabled` is false.
    pub fn brakes(&self) -> Vec<Braking> {
        self.admission.brakes(self.clock())
    }

    /// Scopes that were braked, stopped or freed, from change number `from` on (the run's first is
    /// number 0), as far as they are kept, and the number to pass next time.
    pub fn brake_changes(&self, from: u64) -> (Vec<Braking>, u64) {
        self.admission.brake_changes(from)
    }

    /// The record of a frame, as of the latest tick.
    pub fn record(&self, pfn: Pfn) -> Option<Record> {
        self.table.get(pfn, self.clock())
    }

    /// The rule that decides.
    pub fn rule(&self) -> &dyn Rule {
        &*self.rule
    }

    /// Whether every candidate and every move is accounted for.
    ///
    /// # Errors
    /// The sum that does not balance, with its terms.
    pub fn check_balance(&self) -> Result<(), String> {
        self.counters.check_balance(self.queue.len() as u64, self.admission.moves_in_flight() as u64)?;
        self.counters.check_demotion(self.demotion.pending_pages())
    }

    fn clock(&self) -> Nanos {
        self.now.unwrap_or_default()
    }

    /// Evidence dated later is invalid: it would stay in effect until then.
    fn horizon(&self) -> Nanos {
        self.now.map_or(Nanos(u64::MAX), |now| now.plus(AHEAD_MAX))
    }

    fn accesses(&mut self, batch: &[Access], mappings: &dyn Mappings) {
        let horizon = self.horizon();
        let believable =
            |a: &Access| a.order <= ORDER_MAX && a.time <= horizon && self.topology.tier(a.node).is_some();
        let mut believed = [0; Source::ALL.len()];
        // One pass without a branch: it runs for every access.
        for access in batch {
            believed[access.detail.source().index()] += u64::from(believable(access));
        }
        let sound: u64 = believed.iter().sum();
        for source in Source::all() {
            self.counters.evidence.add(source, believed[source.index()]);
        }
        self.counters.numa_hint_faults += believed[Source::HintFault.index()];
        let invalid = batch.len() as u64 - sound;
        if invalid == 0 {
            self.show(batch, mappings);
        } else {
            self.counters.evidence_invalid += invalid;
            let sound: Vec<Access> = batch.iter().copied().filter(believable).collect();
            self.show(&sound, mappings);
        }
    }

    /// Counts pages that we promoted and that are accessed on a lower tier again after a wait as
    /// short as those of the pages promoted in their place: they were not cold. A moderately hot
    /// page comes back too, but after a longer wait it was still worth less than its replacement.
    fn count_back(&mut self, batch: &[Access]) {
        let early = batch.iter().filter_map(|access| {
            let Detail::HintFault { latency: Some(latency) } = access.detail else { return None };
            // Rarely true, and cheap to ask, so first.
            let page = access.page.filter(|page| is_sampled(*page))?;
            let wait = Nanos(latency.time.0.saturating_mul(access.pages()));
            let early = self.demotion.is_early(wait) && !self.topology.is_top(access.node);
            early.then_some((page, access)).inspect(|(page, _)| self.admission.prefetch(*page))
        });
        // All of them, so that their look-ups are prepared before the first is made.
        for (page, access) in early.collect::<Vec<_>>() {
            if self.admission.came_back(page, access.time) {
                let pages = access.pages() * BACK_SAMPLED;
                self.counters.came_back += pages;
                if let Some(scope) = self.admission.scope_of(page.pid) {
                    self.ledgers.came_back(scope, pages);
                }
                self.demotion.came_back(pages);
            }
        }
    }

    fn show(&mut self, batch: &[Access], mappings: &dyn Mappings) {
        self.count_back(batch);
        if let Some(payoff) = &mut self.payoff {
            payoff.see(batch);
        }
        let frequency_max = self.table.frequency_max();
        let ctx = Context { topology: &self.topology, frequency_max, mappings };
        self.rule.on_batch(batch, &mut self.table, &ctx, &mut self.out);
    }

    fn regions(&mut self, snapshot: &RegionSnapshot) {
        let believed = snapshot.time <= self.horizon();
        let sound = snapshot.regions.iter().filter(|r| believed && r.start < r.end).count();
        let invalid = snapshot.regions.len() - sound;
        self.counters.evidence.add(Source::Damon, sound as u64);
        self.counters.evidence_invalid += invalid as u64;
        let mappings = &NoMappings;
        let ctx = Context { topology: &self.topology, frequency_max: self.table.frequency_max(), mappings };
        if invalid == 0 {
            self.rule.on_regions(snapshot, &ctx, &mut self.out);
        } else {
            let sound = |r: &Region| believed && r.start < r.end;
            let regions = snapshot.regions.iter().copied().filter(sound).collect();
            let snapshot = RegionSnapshot { time: snapshot.time, regions };
            self.rule.on_regions(&snapshot, &ctx, &mut self.out);
        }
    }

    fn region_pages(&mut self, pages: &[RegionPage]) {
        let horizon = self.horizon();
        let believable = |p: &RegionPage| {
            p.order <= ORDER_MAX && p.time <= horizon && self.topology.tier(p.node).is_some()
        };
        let sound: Vec<RegionPage> = pages.iter().copied().filter(believable).collect();
        self.counters.evidence_invalid += (pages.len() - sound.len()) as u64;
        self.counters.region_pages += sound.len() as u64;
        let mappings = &NoMappings;
        let ctx = Context { topology: &self.topology, frequency_max: self.table.frequency_max(), mappings };
        self.rule.on_region_pages(&sound, &ctx, &mut self.out);
    }

    fn set_topology(&mut self, topology: &Topology) {
        self.table.set_topology(topology);
        self.admission.set_topology(topology);
        if let Some(payoff) = &mut self.payoff {
            payoff.set_topology(topology);
        }
        self.topology = topology.clone();
        for (admitted, not_before) in self.queue.drain() {
            match self.admission.route(topology, &admitted.candidate) {
                // There is room: its place has just become free.
                Ok(route) => drop(self.queue.offer(&Admitted { route, ..admitted }, not_before)),
                Err(reason) => self.refuse(&admitted.candidate, reason),
            }
        }
    }

    fn offline(&mut self, start: Pfn, end: Pfn) {
        if start < end {
            self.table.offline(start, end);
        } else {
            self.counters.evidence_invalid += 1;
        }
    }

    /// Drops the waiting candidates of a process, and its moves that fail from now on.
    fn drop_waiting(&mut self, pid: Pid) {
        self.admission.revoke(pid);
        if let Some(payoff) = &mut self.payoff {
            payoff.forget(pid);
        }
        self.rule.on_exit(pid);
        for admitted in self.queue.remove_process(pid) {
            self.counters.exited += 1;
            self.note(&admitted, What::Exited);
        }
    }

    fn expire(&mut self, admitted: &Admitted, held: Option<RefusalReason>) {
        self.counters.expired.add(held.unwrap_or(RefusalReason::Expired), 1);
        self.note(admitted, What::Expired { held });
    }

    fn note(&mut self, admitted: &Admitted, what: What) {
        self.journal.write(Decision::on(admitted, self.clock(), what));
    }
}

/// Whether moves have to be worth it. The published rules decide as published.
fn is_weighed(config: &Config) -> bool {
    config.payoff.enabled && config.rule.name == RuleName::Adaptive
}

/// Empty records, with time in the form that the rule needs.
fn table(config: &Config, topology: &Topology, window: Nanos) -> Result<RecordTable, RecordError> {
    // Frames have holes between them, and memory may be added: twice what is there now.
    let capacity_pages: u64 = topology.nodes.iter().map(|n| n.capacity_pages).sum();
    let sections = (capacity_pages >> SECTION_SHIFT).saturating_mul(2).max(SECTIONS_MIN);
    let mut table = RecordTable::new(RecordParams {
        layout: config.engine.record,
        hz: config.engine.hz,
        node_per_block: config.engine.record_node_per_block,
        window,
        sections_max: u32::try_from(sections).unwrap_or(u32::MAX),
    })?;
    table.set_topology(topology);
    Ok(table)
}

/// Whether a page is one of those that are looked up, independently of its address pattern.
fn is_sampled(page: VirtPage) -> bool {
    (page.vpn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(BACK_SAMPLED)
}
