//! Laws of floor and cap, tested on a machine that moves, allocates, frees, answers and reports
//! holdings at arbitrary times.
//!
//! A second account keeps the truth: what each scope has in the top tier. What the scope itself
//! allocates or frees between two reports cannot be known, so the laws are about our own moves,
//! which are counted separately here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use thermocline_core::access::{Access, Detail, Evidence, Holding, Membership, NoMappings};
use thermocline_core::candidate::{Candidate, Candidates, Reason};
use thermocline_core::config::{Config, Scope};
use thermocline_core::demand::{Allowance, Demand, Demoted};
use thermocline_core::engine::Engine;
use thermocline_core::label::Label;
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Direction, Outcome};
use thermocline_core::record::Record;
use thermocline_core::refusal::RefusalReason;
use thermocline_core::rule::{Context, Rule};
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, PAGES_PER_MIB, Pid, ScopeId, TierId, VirtPage};

/// Two top-tier nodes and a lower one.
const LOWER: NodeId = NodeId(2);
const NODE_PAGES: u64 = 1 << 20;
/// Scope and process numbers: with both limits, with a cap alone, without any.
const SCOPES: [u16; 3] = [1, 2, 3];

/// Proposes every page that is accessed: up from the lower node, down from the others.
#[derive(Debug)]
struct Eager;

impl Rule for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn on_access(&mut self, access: &Access, _record: &mut Record, _ctx: &Context<'_>, out: &mut Candidates) {
        let direction = if access.node == LOWER { Direction::Promote } else { Direction::Demote };
        let candidate = Candidate::promotion(access, 1, Reason::Frequent, Nanos::from_s(5));
        out.push(Candidate { direction, ..candidate });
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Pages of a scope are accessed: how many, of which order, on the lower node or on a top one.
    Access { scope: u16, folios: u64, order: u8, lower: bool },
    /// Time passes, and this many pages are free on the top-tier nodes.
    Tick { ms: u64, free: u64 },
    /// The mover is done with its oldest batch: a share of its moves succeeds.
    Land { percent: u64 },
    /// The oldest outcome is reported.
    Answer,
    /// The demoter works on its oldest demand: what it takes of scopes with a floor, and of others.
    Demote { percent: u64 },
    /// The oldest demand's end is reported.
    End,
    /// A scope allocates or frees pages of the top tier.
    Grow { scope: u16, pages: i64 },
    /// The machine reports a scope's holding.
    Tell { scope: u16 },
    /// A process goes, and another one has its number.
    Exit { scope: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let scope = || prop::sample::select(SCOPES.to_vec());
    prop_oneof![
        4 => (scope(), 1u64..40, prop::sample::select(vec![0u8, 0, 0, 4, 9]), any::<bool>())
            .prop_map(|(scope, folios, order, lower)| Step::Access { scope, folios, order, lower }),
        4 => (1u64..1500, 0u64..60_000).prop_map(|(ms, free)| Step::Tick { ms, free }),
        1 => (0u64..100_000, 0u64..60_000).prop_map(|(ms, free)| Step::Tick { ms, free }),
        3 => (0u64..=100).prop_map(|percent| Step::Land { percent }),
        3 => Just(Step::Answer),
        2 => (0u64..=100).prop_map(|percent| Step::Demote { percent }),
        2 => Just(Step::End),
        1 => (scope(), -600i64..600).prop_map(|(scope, pages)| Step::Grow { scope, pages }),
        3 => scope().prop_map(|scope| Step::Tell { scope }),
        1 => scope().prop_map(|scope| Step::Exit { scope }),
    ]
}

/// What a scope has, and what the engine cannot know of it.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// Pages in the top tier.
    top: u64,
    /// Of these, pages that came since the last telling and that the engine has not sent.
    grown: u64,
    /// Pages that went since the last telling and that the engine has not sent.
    freed: u64,
    told: Option<Nanos>,
}

struct Machine {
    engine: Engine,
    config: Config,
    now: Nanos,
    next_page: u64,
    truth: BTreeMap<u16, Truth>,
    /// Batches that the mover has, and those done but not yet reported, with the pages still to be
    /// moved by scope.
    moving: VecDeque<(Nanos, Batch)>,
    moved: VecDeque<BatchOutcome>,
    /// Batches that the engine holds to be in flight.
    known: BTreeSet<BatchId>,
    demands: VecDeque<(Nanos, Demand)>,
    demoted: VecDeque<Demoted>,
    /// Base pages promoted by scope.
    promoted: BTreeMap<u16, u64>,
    allowed: u64,
}

fn scope_of(pid: Pid) -> u16 {
    pid.0 as u16 / 10
}

fn pid_of(scope: u16) -> Pid {
    Pid(u32::from(scope) * 10)
}

/// A scope with floor and cap, one with a cap alone, and one without either.
pub fn scopes(floor_mib: u64, over_mib: u64, cap_mib: u64) -> Vec<Scope> {
    let scope = |path: &str, floor_mib, cap_mib| Scope {
        cgroup: Some(path.to_owned()),
        top_tier_floor_mib: floor_mib,
        top_tier_cap_mib: cap_mib,
        ..Scope::default()
    };
    let both = scope("/a", floor_mib, Some(floor_mib + over_mib));
    vec![both, scope("/b", 0, Some(cap_mib)), scope("/c", 0, None)]
}

impl Machine {
    fn new(floor_mib: u64, over_mib: u64, cap_mib: u64) -> Machine {
        let mut config = Config { scope: scopes(floor_mib, over_mib, cap_mib), ..Config::default() };
        config.admission.residency_ms = 0;
        config.admission.outcome_timeout_ms = 30_000;
        config.admission.free_goal_mib = 1;
        config.demotion.rate_limit_mbps = 64;
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(u8::from(NodeId(id) == LOWER)),
            cpus: Vec::new(),
            capacity_pages: NODE_PAGES,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: (0..3).map(|other| if other == id { 10 } else { 20 }).collect(),
        };
        let topology = Topology::new((0..3).map(node).collect()).expect("three nodes");
        let engine = Engine::with_rule(&config, topology, Box::new(Eager)).expect("a sound configuration");
        let mut machine = Machine {
            engine,
            config,
            now: Nanos::from_s(1),
            next_page: 0,
            truth: SCOPES.map(|scope| (scope, Truth::default())).into(),
            moving: VecDeque::new(),
            moved: VecDeque::new(),
            known: BTreeSet::new(),
            demands: VecDeque::new(),
            demoted: VecDeque::new(),
            promoted: BTreeMap::new(),
            allowed: 0,
        };
        SCOPES.iter().for_each(|scope| machine.join(*scope));
        machine
    }

    fn join(&mut self, scope: u16) {
        let membership = Membership::Managed(ScopeId(scope));
        self.engine.observe(Evidence::Process { pid: pid_of(scope), membership });
    }

    fn happen(&mut self, step: &Step) {
        match *step {
            Step::Access { scope, folios, order, lower } => self.access(scope, folios, order, lower),
            Step::Tick { ms, free } => self.tick(ms, free),
            Step::Land { percent } => self.land(percent),
            Step::Answer => {
                if let Some(outcome) = self.moved.pop_front() {
                    self.known.remove(&outcome.id);
                    self.engine.observe(Evidence::Outcome(&outcome));
                }
            }
            Step::Demote { percent } => self.demote(percent),
            Step::End => {
                if let Some(done) = self.demoted.pop_front() {
                    self.engine.observe(Evidence::Demoted(&done));
                }
            }
            Step::Grow { scope, pages } => {
                let truth = self.truth.get_mut(&scope).expect("a scope");
                let gone = pages.min(0).unsigned_abs().min(truth.top);
                truth.top = truth.top - gone + pages.max(0).unsigned_abs();
                truth.grown += pages.max(0).unsigned_abs();
                truth.freed += gone;
            }
            Step::Tell { scope } => {
                let truth = self.truth.get_mut(&scope).expect("a scope");
                *truth = Truth { top: truth.top, told: Some(self.now), ..Truth::default() };
                let holding = Holding { scope: ScopeId(scope), time: self.now, pages: truth.top };
                self.engine.observe(Evidence::Holding(holding));
            }
            Step::Exit { scope } => {
                self.engine.observe(Evidence::Exit { pid: pid_of(scope) });
                self.join(scope);
            }
        }
        self.engine.check_balance().expect("the sums balance");
    }

    fn access(&mut self, scope: u16, folios: u64, order: u8, lower: bool) {
        let access = |vpn| Access {
            time: self.now,
            pfn: None,
            page: Some(VirtPage { pid: pid_of(scope), vpn }),
            order,
            node: if lower { LOWER } else { NodeId(0) },
            accessor: None,
            detail: Detail::Count { count: 1, gap: None },
        };
        let first = self.next_page.next_multiple_of(1 << order);
        let batch: Vec<Access> = (0..folios).map(|n| access(first + (n << order))).collect();
        self.next_page = first + (folios << order);
        self.engine.observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
    }

    fn tick(&mut self, ms: u64, free: u64) {
        self.now = self.now.plus(Nanos::from_ms(ms));
        let state = |id: u16, free_pages| NodeState {
            node: NodeId(id),
            free_pages,
            managed_pages: NODE_PAGES,
            ..NodeState::default()
        };
        let states = [state(0, free), state(1, free / 2), state(2, NODE_PAGES)];
        let batches = self.engine.tick(self.now, &states);
        self.forget_lost();
        let demands = self.engine.demote(self.now, &states);
        self.known.extend(batches.iter().map(|b| b.id));
        let promoting: BTreeSet<u16> =
            batches.iter().filter(|b| b.direction == Direction::Promote).map(|b| scope_of(b.pid)).collect();
        let demoting = batches.iter().filter(|b| b.direction == Direction::Demote).map(|b| scope_of(b.pid));
        let allowed = demands.iter().flat_map(|d| &d.allowances).map(|a| a.scope.0);
        let demoting: BTreeSet<u16> = demoting.chain(allowed).collect();
        self.allowed += demands.iter().flat_map(|d| &d.allowances).map(|a| a.pages).sum::<u64>();
        self.moving.extend(batches.into_iter().map(|b| (self.now, b)));
        self.demands.extend(demands.into_iter().map(|d| (self.now, d)));
        for scope in SCOPES {
            let limits = &self.config.scope[usize::from(scope) - 1];
            let truth = self.truth[&scope];
            let told_lately = truth.told.is_some_and(|told| self.now.since(told) < Nanos::from_s(5));
            if let Some(cap_mib) = limits.top_tier_cap_mib.filter(|_| promoting.contains(&scope)) {
                assert!(told_lately, "promoted into scope {scope} without knowing what it holds");
                let most =
                    (truth.top + self.on_its_way(scope, Direction::Promote)).saturating_sub(truth.grown);
                assert!(
                    most <= cap_mib * PAGES_PER_MIB,
                    "scope {scope} may come to {most} pages, its cap is {cap_mib} MiB"
                );
            }
            let floor_mib = limits.top_tier_floor_mib;
            if floor_mib > 0 && demoting.contains(&scope) {
                assert!(told_lately, "demoted of scope {scope} without knowing what it holds");
                let down = self.on_its_way(scope, Direction::Demote) + self.allowances(scope);
                let least = (truth.top + truth.freed).saturating_sub(down);
                assert!(
                    least >= floor_mib * PAGES_PER_MIB,
                    "scope {scope} may come to {least} pages, its floor is {floor_mib} MiB"
                );
            }
        }
    }

    /// Forgets what the engine has given up; it may still happen, but the engine does not know.
    fn forget_lost(&mut self) {
        let timeout = Nanos::from_ms(self.config.admission.outcome_timeout_ms);
        let now = self.now;
        let lost = |since: Nanos| now.since(since) >= timeout;
        for (_, batch) in self.moving.iter().filter(|(since, _)| lost(*since)) {
            self.known.remove(&batch.id);
        }
        for (_, demand) in self.demands.iter_mut().filter(|(since, _)| lost(*since)) {
            demand.allowances.clear();
        }
    }

    /// Pages of a scope that the mover has and that the engine knows of.
    fn on_its_way(&self, scope: u16, direction: Direction) -> u64 {
        let of_scope =
            |b: &&Batch| (scope_of(b.pid), b.direction) == (scope, direction) && self.known.contains(&b.id);
        self.moving.iter().map(|(_, b)| b).filter(of_scope).map(Batch::pages).sum()
    }

    /// Pages of a scope that the demoter may take.
    fn allowances(&self, scope: u16) -> u64 {
        let all = self.demands.iter().flat_map(|(_, d)| &d.allowances);
        all.filter(|a| a.scope == ScopeId(scope)).map(|a| a.pages).sum()
    }

    fn land(&mut self, percent: u64) {
        let Some((_, batch)) = self.moving.pop_front() else { return };
        let succeed = batch.moves.len() as u64 * percent / 100;
        let truth = self.truth.get_mut(&scope_of(batch.pid)).expect("a scope");
        let known = self.known.contains(&batch.id);
        let mut outcomes = Vec::new();
        for (n, m) in batch.moves.iter().enumerate() {
            if n as u64 >= succeed {
                outcomes.push([Outcome::Busy, Outcome::Gone, Outcome::NotTried][n % 3]);
                continue;
            }
            outcomes.push(Outcome::Moved);
            match batch.direction {
                Direction::Promote => {
                    truth.top += m.pages();
                    truth.grown += if known { 0 } else { m.pages() };
                    *self.promoted.entry(scope_of(batch.pid)).or_default() += m.pages();
                }
                _ => {
                    let gone = m.pages().min(truth.top);
                    truth.top -= gone;
                    truth.freed += if known { 0 } else { gone };
                }
            }
        }
        self.moved.push_back(BatchOutcome { id: batch.id, time: self.now, outcomes });
    }

    fn demote(&mut self, percent: u64) {
        let Some((_, demand)) = self.demands.pop_front() else { return };
        let mut left = demand.pages;
        let mut done = demand.done(0, Nanos(0));
        for Allowance { scope, pages } in demand.allowances {
            let truth = self.truth.get_mut(&scope.0).expect("a scope");
            let taken = (pages * percent / 100).min(left).min(truth.top);
            truth.top -= taken;
            left -= taken;
            done.pages += taken;
        }
        self.demoted.push_back(done);
    }
}

fn run(floor_mib: u64, over_mib: u64, cap_mib: u64, steps: &[Step]) -> Machine {
    let mut machine = Machine::new(floor_mib, over_mib, cap_mib);
    steps.iter().for_each(|step| machine.happen(step));
    machine
}

proptest! {
    #[test]
    fn floors_and_caps_hold_whatever_the_order(
        floor_mib in 0u64..4, over_mib in 0u64..4, cap_mib in 0u64..6, steps in prop::collection::vec(step(), 1..300),
    ) {
        run(floor_mib, over_mib, cap_mib, &steps);
    }
}

/// Laws that nothing comes near to are kept by chance.
#[test]
fn random_courses_reach_floors_and_caps() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let courses = prop::collection::vec(step(), 300..600);
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut promoted, mut allowed) = (BTreeMap::<u16, u64>::new(), 0);
    for n in 0..64 {
        let steps = courses.new_tree(&mut runner).expect("a course").current();
        let machine = run(n % 3, n % 4, n % 6, &steps);
        let counters = machine.engine.counters();
        for reason in [RefusalReason::ScopeCap, RefusalReason::ScopeFloor, RefusalReason::ScopeUnknown] {
            let all = [&counters.refused, &counters.held];
            *reasons.entry(reason.name()).or_default() += all.map(|by| by.get(reason)).iter().sum::<u64>();
        }
        machine.promoted.iter().for_each(|(scope, pages)| *promoted.entry(*scope).or_default() += pages);
        allowed += machine.allowed;
    }
    println!("{reasons:?}; promoted {promoted:?}, allowed {allowed}");
    assert!(reasons.values().all(|n| *n > 0), "{reasons:?}");
    assert!(SCOPES.iter().all(|scope| promoted.get(scope).is_some_and(|n| *n > 1000)), "{promoted:?}");
    assert!(allowed > 1000);
}

/// A scope at its cap does not keep the pages of others from moving.
#[test]
fn a_scope_at_its_cap_waits_alone() {
    let mut machine = Machine::new(0, 1, 0);
    let steps = [
        Step::Tell { scope: 1 },
        Step::Tell { scope: 2 },
        Step::Access { scope: 2, folios: 500, order: 0, lower: true },
        Step::Access { scope: 3, folios: 500, order: 0, lower: true },
        Step::Access { scope: 1, folios: 3, order: 9, lower: true },
        Step::Access { scope: 1, folios: 200, order: 0, lower: true },
        Step::Access { scope: 1, folios: 100, order: 0, lower: true },
        Step::Tick { ms: 100, free: 60_000 },
        Step::Land { percent: 100 },
        Step::Land { percent: 100 },
        Step::Land { percent: 100 },
    ];
    steps.iter().for_each(|step| machine.happen(step));
    assert_eq!(machine.promoted, BTreeMap::from([(1, 256), (3, 500)]), "huge pages do not fit, others do");
    assert_eq!(machine.engine.counters().refused.get(RefusalReason::ScopeCap), 500 + 3 + 44);
    assert!(machine.engine.queue().is_empty());
}
