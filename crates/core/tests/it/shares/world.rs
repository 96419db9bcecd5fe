//! A machine whose scopes heat up, cool down, allocate and free, where moves and demands take their
//! time, fail, or are not answered.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use thermocline_core::access::{Access, Detail, Evidence, Holding, Membership, NoMappings};
use thermocline_core::candidate::{Candidate, Candidates, Reason};
use thermocline_core::config::{Config, Scope};
use thermocline_core::demand::{Demand, Demoted};
use thermocline_core::demotion::{Allowances, OVER_PAGES, Reach, reach};
use thermocline_core::engine::Engine;
use thermocline_core::moves::{Batch, BatchOutcome, Outcome};
use thermocline_core::published::threshold::rate_limit_pages;
use thermocline_core::record::Record;
use thermocline_core::rule::{Context, Rule};
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, PAGES_PER_MIB, Pid, ScopeId, TierId, VirtPage};

pub const FOLIO: u64 = 512;
const ORDER: u8 = 9;
const TOP_MIB: u64 = 1024;
/// What promotions leave free: a hundredth of the node.
pub const RESERVE: u64 = TOP_MIB * PAGES_PER_MIB / 100;
const TICK: Nanos = Nanos::from_ms(100);
/// Time between two accesses of a page of each kind, in ms; the coldest is never accessed.
const GAPS_MS: [u64; 3] = [20, 3000, 1_000_000];
pub const HOT: usize = 0;
pub const WARM: usize = 1;
pub const COLD: usize = 2;
/// What may be missing of a share: less than a folio, and what a command may take beyond.
const NEARLY: u64 = FOLIO;
/// Until a lost outcome is given up.
pub const GIVEN_UP: Nanos = Nanos::from_s(2);
/// How long a candidate waits.
const WAITS: Nanos = Nanos::from_s(2);
/// Seven rounds until no idle time is asked for, with half a second's rest after each.
pub const SETTLE: Nanos = Nanos::from_s(8);

/// Proposes every page that is accessed on the lower node.
#[derive(Debug)]
struct Eager;

impl Rule for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn on_access(&mut self, access: &Access, _: &mut Record, _: &Context<'_>, out: &mut Candidates) {
        // Those of the last scope are hotter than all others.
        let score = 1000 * access.page.map_or(0, |page| page.pid.0 as u16);
        out.push(Candidate::promotion(access, score, Reason::Frequent, WAITS));
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Folios of a scope on the lower node become hot.
    Heat {
        scope: usize,
        folios: u64,
    },
    /// All that a scope has turns cold.
    Cool {
        scope: usize,
    },
    /// It allocates memory of a kind, as far as there is room in the top tier.
    Grow {
        scope: usize,
        kind: usize,
        folios: u64,
    },
    /// It frees half of what it has there.
    Free {
        scope: usize,
    },
    Wait {
        ticks: u64,
    },
}

/// What goes wrong with the next batch, demand or report.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// No folio of the batch moves.
    Busy,
    /// It moves, and nobody says so.
    Silent,
    /// The demand finds nothing.
    Nothing,
    /// It is carried out, and nobody says so.
    Unanswered,
    /// No holding is reported for some ticks.
    Blind(u64),
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..3, 1u64..200).prop_map(|(scope, folios)| Step::Heat { scope, folios }),
        1 => (0usize..3).prop_map(|scope| Step::Cool { scope }),
        3 => (0usize..3, 0usize..3, 1u64..200)
            .prop_map(|(scope, kind, folios)| Step::Grow { scope, kind, folios }),
        1 => (0usize..3).prop_map(|scope| Step::Free { scope }),
        3 => (1u64..40).prop_map(|ticks| Step::Wait { ticks }),
    ]
}

pub fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Busy),
        Just(Fault::Silent),
        Just(Fault::Nothing),
        Just(Fault::Unanswered),
        (1u64..80).prop_map(Fault::Blind),
    ]
}

pub struct World {
    pub engine: Engine,
    reach: Reach,
    shares: [u64; 3],
    pub now: Nanos,
    /// Base pages in the top tier by scope and kind.
    pub held: [[u64; 3]; 3],
    /// Hot folios on the lower node, and hot base pages there that are not a folio yet.
    below: [BTreeSet<u64>; 3],
    loose: [u64; 3],
    /// Until when what has turned cold there waits for promotion nevertheless, and how much that
    /// is.
    cooled: [(Nanos, u64); 3],
    next: u64,
    demands: VecDeque<(Nanos, Demand)>,
    batches: VecDeque<(Nanos, Batch)>,
    /// When pages were asked of one scope, and how many.
    asked: Vec<(Nanos, u64)>,
    pub faults: VecDeque<Fault>,
    blind: u64,
    pub slow: u64,
    judges: bool,
    /// A scope whose memory cannot be demoted.
    pub locked: Option<usize>,
}

fn scopes(shares_mib: [u64; 2]) -> Vec<Scope> {
    let scope = |path: &str, share_mib| Scope {
        cgroup: Some(path.to_owned()),
        top_tier_share_mib: share_mib,
        ..Scope::default()
    };
    vec![scope("/a", shares_mib[0]), scope("/b", shares_mib[1]), scope("/", 0)]
}

impl World {
    pub fn new(shares_mib: [u64; 2], faults: Vec<Fault>) -> World {
        World::with(shares_mib, faults, |_| {})
    }

    /// The same, configured otherwise.
    pub fn with(shares_mib: [u64; 2], faults: Vec<Fault>, change: impl Fn(&mut Config)) -> World {
        let mut config = Config { scope: scopes(shares_mib), ..Config::default() };
        config.brake.enabled = false;
        // What is held out, or not worth its move, claims nothing.
        config.payoff.enabled = false;
        config.admission.residency_ms = 0;
        config.admission.ping_pong_moves = 255;
        config.admission.outcome_timeout_ms = GIVEN_UP.ms();
        config.admission.quarantine_ms = 1000;
        change(&mut config);
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(id as u8),
            cpus: Vec::new(),
            capacity_pages: TOP_MIB * PAGES_PER_MIB * (1 + 3 * u64::from(id)),
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: if id == 0 { vec![10, 20] } else { vec![20, 10] },
        };
        let topology = Topology::new(vec![node(0), node(1)]).expect("two nodes");
        let mut world = World {
            engine: Engine::with_rule(&config, topology, Box::new(Eager)).expect("a sound configuration"),
            reach: reach(&config).expect("cgroups"),
            shares: [shares_mib[0] * PAGES_PER_MIB, shares_mib[1] * PAGES_PER_MIB, 0],
            now: Nanos::from_s(1),
            held: Default::default(),
            below: Default::default(),
            loose: [0; 3],
            cooled: [(Nanos(0), 0); 3],
            next: 0,
            demands: VecDeque::new(),
            batches: VecDeque::new(),
            asked: Vec::new(),
            judges: faults.is_empty(),
            faults: faults.into(),
            blind: 0,
            slow: 0,
            locked: None,
        };
        for scope in 0..3 {
            let membership = Membership::Managed(ScopeId::of_place(scope));
            world.engine.observe(Evidence::Process { pid: pid(scope), membership });
        }
        world
    }

    pub fn holds(&self, scope: usize) -> u64 {
        self.held[scope].iter().sum()
    }

    pub fn free(&self) -> u64 {
        TOP_MIB * PAGES_PER_MIB - (0..3).map(|scope| self.holds(scope)).sum::<u64>()
    }

    /// What a scope lacks of its share and would use.
    pub fn lacks(&self, scope: usize) -> u64 {
        let waits = self.below[scope].len() as u64 * FOLIO;
        self.shares[scope].saturating_sub(self.holds(scope)).min(waits)
    }

    pub fn heat(&mut self, scope: usize, folios: u64) {
        for _ in 0..folios {
            self.below[scope].insert(self.next);
            self.next += 1;
        }
    }

    pub fn happen(&mut self, step: Step) {
        match step {
            Step::Heat { scope, folios } => self.heat(scope, folios),
            Step::Cool { scope } => {
                let pages = self.cooled[scope].1 + self.below[scope].len() as u64 * FOLIO;
                self.cooled[scope] = (self.now.plus(WAITS), pages);
                self.below[scope].clear();
                self.held[scope] = [0, 0, self.holds(scope)];
            }
            Step::Grow { scope, kind, folios } => {
                let free = self.free().saturating_sub(self.on_the_way());
                self.held[scope][kind] += (folios * FOLIO).min(free);
            }
            Step::Free { scope } => self.held[scope].iter_mut().for_each(|pages| *pages /= 2),
            Step::Wait { ticks } => (0..ticks).for_each(|_| self.tick()),
        }
    }

    fn on_the_way(&self) -> u64 {
        self.batches.iter().map(|(_, batch)| batch.moves.len() as u64 * FOLIO).sum()
    }

    fn next_fault(&mut self, of: fn(&Fault) -> bool) -> Option<Fault> {
        self.faults.pop_front_if(|fault| of(fault))
    }

    pub fn tick(&mut self) {
        self.now = self.now.plus(TICK);
        self.cooled.iter_mut().filter(|(until, _)| *until < self.now).for_each(|(_, pages)| *pages = 0);
        self.land();
        self.end_demands();
        if let Some(Fault::Blind(ticks)) = self.next_fault(|fault| matches!(fault, Fault::Blind(_))) {
            self.blind = ticks;
        }
        self.blind = self.blind.saturating_sub(1);
        for scope in (0..3).filter(|_| self.blind == 0) {
            let holding =
                Holding { scope: ScopeId::of_place(scope), time: self.now, pages: self.holds(scope) };
            self.engine.observe(Evidence::Holding(holding));
        }
        let accesses: Vec<Access> = (0..3)
            .flat_map(|scope| self.below[scope].iter().map(move |folio| (scope, *folio)))
            .map(|(scope, folio)| Access {
                time: self.now,
                pfn: None,
                page: Some(VirtPage { pid: pid(scope), vpn: folio * FOLIO }),
                order: ORDER,
                node: NodeId(1),
                accessor: None,
                detail: Detail::HintFault { latency: None },
            })
            .collect();
        self.engine.observe(Evidence::Accesses { batch: &accesses, mappings: &NoMappings });
        let free = self.free();
        let state = |id: u16, free_pages| NodeState {
            node: NodeId(id),
            free_pages,
            managed_pages: self.engine.topology().nodes[usize::from(id)].capacity_pages,
            ..NodeState::default()
        };
        let states = [state(0, free), state(1, 2 * TOP_MIB * PAGES_PER_MIB)];
        let batches = self.engine.tick(self.now, &states);
        for batch in batches {
            let done = self.now.plus(Nanos(TICK.0 * (batch.id.0 % (self.slow + 1))));
            self.batches.push_back((done, batch));
        }
        for demand in self.engine.demote(self.now, &states) {
            self.judge(&demand);
            let takes = 1 + demand.id % (self.slow + 1);
            self.demands.push_back((self.now.plus(Nanos(TICK.0 * takes)), demand));
        }
        self.engine.check_balance().expect("the sums balance");
    }

    fn land(&mut self) {
        let (due, later) = self.batches.drain(..).partition(|(end, _)| *end <= self.now);
        self.batches = later;
        let due: VecDeque<(Nanos, Batch)> = due;
        for (_, batch) in due {
            let fault = self.next_fault(|fault| matches!(fault, Fault::Busy | Fault::Silent));
            let scope = batch.pid.0 as usize - 1;
            let outcomes = batch.moves.iter().map(|m| {
                if matches!(fault, Some(Fault::Busy)) {
                    return Outcome::Busy;
                }
                // One that has cooled down meanwhile comes as well.
                let kind = if self.below[scope].remove(&(m.page.vpn / FOLIO)) { HOT } else { COLD };
                if self.free() < FOLIO {
                    return Outcome::NodeFull;
                }
                self.held[scope][kind] += FOLIO;
                Outcome::Moved
            });
            let outcomes = outcomes.collect();
            let outcome = BatchOutcome { id: batch.id, time: self.now, outcomes };
            if !matches!(fault, Some(Fault::Silent)) {
                self.engine.observe(Evidence::Outcome(&outcome));
            }
        }
    }

    fn end_demands(&mut self) {
        let (due, later) = self.demands.drain(..).partition(|(end, _)| *end <= self.now);
        self.demands = later;
        let due: VecDeque<(Nanos, Demand)> = due;
        for (_, demand) in due {
            let fault = self.next_fault(|fault| matches!(fault, Fault::Nothing | Fault::Unanswered));
            let done = match fault {
                Some(Fault::Nothing) => demand.done(0, Nanos(0)),
                _ => self.carry_out(&demand),
            };
            if !matches!(fault, Some(Fault::Unanswered)) {
                self.engine.observe(Evidence::Demoted(&done));
            }
        }
    }

    /// Takes what is idle for long enough, of whom the demand allows, the coldest first.
    fn carry_out(&mut self, demand: &Demand) -> Demoted {
        let mut left = Allowances::of(demand);
        let mut done = demand.done(0, Nanos(0));
        for kind in (0..3).rev().filter(|kind| Nanos::from_ms(GAPS_MS[*kind]) >= demand.idle) {
            let locked = self.locked;
            for scope in (0..3).filter(|scope| locked != Some(*scope)) {
                let id = ScopeId::of_place(scope);
                let subtree = self.reach.only.iter().find(|subtree| subtree.scope == id);
                let taken = left.left(subtree).min(self.held[scope][kind]).min(demand.pages - done.pages);
                self.held[scope][kind] -= taken;
                left.take(id, taken);
                done.pages += taken;
                done.by_scope.push((id, taken));
                if kind == HOT {
                    self.loose[scope] += taken;
                    let folios = self.loose[scope] / FOLIO;
                    self.loose[scope] %= FOLIO;
                    self.heat(scope, folios);
                }
            }
        }
        done
    }

    /// Demands for one scope are for claims of others here, because nobody has a cap.
    fn judge(&mut self, demand: &Demand) {
        let Some(only) = demand.only else { return self.judge_of_node(demand) };
        let scope = usize::from(only.0) - 1;
        self.asked.push((self.now, demand.pages));
        let second = self.now.0 - 1_000_000_000;
        self.asked.retain(|(time, _)| time.0 > second);
        let sum: u64 = self.asked.iter().map(|(_, pages)| pages).sum();
        assert!(sum <= self.pace(), "{sum} pages in a second");
        let claim = |other: usize| {
            let waits = self.below[other].len() as u64 * FOLIO + self.cooled[other].1;
            self.shares[other].saturating_sub(self.holds(other)).min(waits)
        };
        let claimed: u64 = (0..3).filter(|other| *other != scope).map(claim).sum();
        let under_way: u64 =
            self.demands.iter().filter(|(_, d)| d.only.is_some()).map(|(_, d)| d.pages).sum();
        // With faults the engine may have heard late of what scopes hold.
        if self.judges {
            let keeps = if self.shares[scope] > 0 { self.shares[scope] + OVER_PAGES } else { 0 };
            assert!(
                self.holds(scope) >= keeps + demand.pages,
                "scope {scope} holds {} and keeps {keeps}: {demand:?}",
                self.holds(scope)
            );
            let new = demand.pages + under_way;
            assert!(new <= claimed, "{new} pages are asked for, and {claimed} claimed");
        }
    }

    /// Nobody takes of a scope what it would claim again at once.
    fn judge_of_node(&self, demand: &Demand) {
        let room = self.free().saturating_sub(RESERVE + self.on_the_way());
        let others = |scope| (0..3).any(|other| other != scope && self.above(other) > 0);
        for scope in (0..2).filter(|scope| self.judges && self.shares[*scope] > 0) {
            let claims = self.lacks(scope) > self.arriving(scope) && (room > 0 || others(scope));
            if claims || demand.idle < Nanos::from_s(10) {
                let subtree = &self.reach.only[scope];
                let left = Allowances::of(demand).left(Some(subtree));
                let beyond = self.holds(scope).saturating_sub(self.shares[scope] + OVER_PAGES);
                assert!(left <= beyond, "scope {scope} claims, and {left} are taken of {beyond}: {demand:?}");
            }
        }
    }

    /// What is on its way up of a scope.
    fn arriving(&self, scope: usize) -> u64 {
        let its = self.batches.iter().filter(|(_, batch)| batch.pid == pid(scope));
        its.map(|(_, batch)| batch.moves.len() as u64 * FOLIO).sum()
    }

    /// What a scope holds above its share and is not asked for yet.
    fn above(&self, scope: usize) -> u64 {
        let margin = if self.shares[scope] > 0 { OVER_PAGES } else { 0 };
        let down: u64 = self.demands.iter().map(|(_, demand)| demand.pages).sum();
        self.holds(scope).saturating_sub(self.shares[scope] + margin + down)
    }

    pub fn pace(&self) -> u64 {
        rate_limit_pages(self.engine.config().demotion.scope_rate_mbps)
    }

    /// Ticks until nobody lacks anything of its share that it would use.
    pub fn until_all_have_their_shares(&mut self, most: Nanos) {
        let begin = self.now;
        while let Some(scope) = (0..2).find(|scope| self.lacks(*scope) > NEARLY) {
            self.tick();
            assert!(
                self.now.since(begin) <= most,
                "scope {scope} lacks {} pages after {} ms: hold {:?}, shares {:?}, free {}",
                self.lacks(scope),
                most.ms(),
                self.held,
                self.shares,
                self.free()
            );
        }
    }

    pub fn lacking(&self) -> u64 {
        (0..2).map(|scope| self.lacks(scope)).sum()
    }
}

fn pid(scope: usize) -> Pid {
    Pid(scope as u32 + 1)
}

/// Shares that the top tier has beside what promotions leave free.
pub fn shares() -> impl Strategy<Value = [u64; 2]> {
    (0u64..900).prop_flat_map(|first| (Just(first), 0..960 - first)).prop_map(|(a, b)| [a, b])
}
