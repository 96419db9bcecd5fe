//! Laws of the brake, tested on a machine with more hot pages than may move, whose tasks wait for
//! memory because of the moves or for other reasons.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thermocline_core::access::{Access, Detail, Evidence, Membership, NoMappings, Pressure};
use thermocline_core::admission::{Braking, Cause};
use thermocline_core::candidate::{Candidate, Candidates, Reason};
use thermocline_core::config::{Config, Scope};
use thermocline_core::demand::Demand;
use thermocline_core::engine::Engine;
use thermocline_core::moves::{Batch, BatchOutcome, Direction, Outcome};
use thermocline_core::record::Record;
use thermocline_core::rule::{Context, Rule};
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pid, ScopeId, TierId, VirtPage};

const TICK_MS: u64 = 100;
const LOWER: NodeId = NodeId(1);
/// 4 MB/s.
const LIMIT_PAGES: u64 = 1024;
/// Pages that become hot in a tick: more than may move.
const HOT_PAGES: u64 = 120;
const NODE_PAGES: u64 = 1 << 20;

/// Proposes every page that is accessed: up from the lower node, down from the other.
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

/// One scope's programs.
struct Program {
    scope: ScopeId,
    /// Time that some task has waited for memory; a quarter of it, all have.
    stalled_us: u64,
    /// Pages moved by tick, of the last second.
    lately: VecDeque<u64>,
    next_page: u64,
}

impl Program {
    fn pid(&self) -> Pid {
        Pid(u32::from(self.scope.0) + 10)
    }

    /// Share of the full rate at which its pages move.
    fn rate(&self) -> f64 {
        self.lately.iter().sum::<u64>() as f64 / LIMIT_PAGES as f64
    }
}

struct Machine {
    engine: Engine,
    now: Nanos,
    programs: Vec<Program>,
    in_flight: Vec<Batch>,
    free_pages: u64,
}

fn config(scopes: usize) -> Config {
    let mut config = Config::default();
    config.admission.rate_limit_mbps = LIMIT_PAGES / 256;
    config.demotion.rate_limit_mbps = LIMIT_PAGES / 256;
    config.admission.residency_ms = 0;
    config.admission.ping_pong_moves = 255;
    let scope = |i| Scope { cgroup: Some(format!("/{i}")), rate_share_percent: 50, ..Scope::default() };
    config.scope = (0..scopes).map(scope).collect();
    config
}

impl Machine {
    /// A machine with this many scopes; with none, everything belongs to the default one.
    fn new(scopes: usize) -> Machine {
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(id as u8),
            cpus: Vec::new(),
            capacity_pages: NODE_PAGES,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: (0..2).map(|other| if other == id { 10 } else { 20 }).collect(),
        };
        let topology = Topology::new(vec![node(0), node(1)]).expect("two nodes");
        let engine =
            Engine::with_rule(&config(scopes), topology, Box::new(Eager)).expect("a sound configuration");
        let ids = if scopes == 0 { 0..1 } else { 1..scopes as u16 + 1 };
        let program = |scope| Program {
            scope: ScopeId(scope),
            stalled_us: 0,
            lately: VecDeque::from([0; (1000 / TICK_MS) as usize]),
            next_page: 0,
        };
        let programs: Vec<Program> = ids.map(program).collect();
        let mut machine = Machine {
            engine,
            now: Nanos::from_s(1),
            programs,
            in_flight: Vec::new(),
            free_pages: NODE_PAGES,
        };
        for program in &machine.programs {
            let membership = Membership::Managed(program.scope);
            machine.engine.observe(Evidence::Process { pid: program.pid(), membership });
        }
        machine
    }

    fn state(&self) -> [NodeState; 2] {
        let state = |id: u16, free_pages| NodeState {
            node: NodeId(id),
            free_pages,
            managed_pages: NODE_PAGES,
            ..NodeState::default()
        };
        [state(0, self.free_pages), state(1, NODE_PAGES)]
    }

    /// A tick in which program `p` waits a share `stall(p, its rate)` of the time, and pages not
    /// seen before are hot. Returns the pages issued for each program.
    fn tick(&mut self, mut stall: impl FnMut(usize, f64) -> f64) -> Vec<u64> {
        for i in 0..self.programs.len() {
            let first = self.programs[i].next_page;
            self.programs[i].next_page += HOT_PAGES;
            self.touch(i, first..first + HOT_PAGES, LOWER);
        }
        self.pass(&mut stall)
    }

    fn touch(&mut self, program: usize, pages: std::ops::Range<u64>, node: NodeId) {
        let access = |vpn| Access {
            time: self.now,
            pfn: None,
            page: Some(VirtPage { pid: self.programs[program].pid(), vpn }),
            order: 0,
            node,
            accessor: None,
            detail: Detail::Count { count: 1, gap: None },
        };
        let batch: Vec<Access> = pages.map(access).collect();
        self.engine.observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
    }

    /// Time passes; what was issued at the tick before has moved.
    fn pass(&mut self, stall: &mut impl FnMut(usize, f64) -> f64) -> Vec<u64> {
        self.now = self.now.plus(Nanos::from_ms(TICK_MS));
        for batch in std::mem::take(&mut self.in_flight) {
            let outcomes = vec![Outcome::Moved; batch.moves.len()];
            self.engine.observe(Evidence::Outcome(&BatchOutcome { id: batch.id, time: self.now, outcomes }));
        }
        for (i, program) in self.programs.iter_mut().enumerate() {
            program.stalled_us += (stall(i, program.rate()).min(1.0) * TICK_MS as f64 * 1000.0) as u64;
            let (some_us, full_us) = (program.stalled_us, program.stalled_us / 4);
            let pressure = Pressure { scope: program.scope, time: self.now, some_us, full_us };
            self.engine.observe(Evidence::Pressure(pressure));
        }
        let batches = self.engine.tick(self.now, &self.state());
        let mut issued = vec![0; self.programs.len()];
        for batch in &batches {
            let program = self.programs.iter().position(|p| p.pid() == batch.pid).expect("a program");
            issued[program] += batch.pages();
        }
        for (program, pages) in self.programs.iter_mut().zip(&issued) {
            program.lately.pop_front();
            program.lately.push_back(*pages);
        }
        self.in_flight = batches;
        self.engine.check_balance().expect("the sums balance");
        issued
    }

    fn braking(&self, program: usize) -> Braking {
        let scope = self.programs[program].scope;
        self.engine.brakes().into_iter().find(|b| b.scope == scope).expect("a managed scope")
    }

    /// Ticks for so long; returns the share of the full rate at which the first program's pages
    /// moved.
    fn run(&mut self, seconds: u64, mut stall: impl FnMut(usize, f64) -> f64) -> f64 {
        let ticks = seconds * 1000 / TICK_MS;
        let pages: u64 = (0..ticks).map(|_| self.tick(&mut stall)[0]).sum();
        pages as f64 / (LIMIT_PAGES * seconds) as f64
    }

    fn demands(&mut self) -> Vec<Demand> {
        let states = self.state();
        self.engine.demote(self.now, &states)
    }
}

/// Pages of the limit that a scope with `rate_bp` may have a second.
fn most(rate_bp: u64) -> u64 {
    match 10_000u64.checked_div(rate_bp) {
        None => 0,
        Some(part) => LIMIT_PAGES / part,
    }
}

#[test]
fn stalls_by_moves_slow_them_until_they_do_little_harm() {
    let mut machine = Machine::new(0);
    let harm = |_: usize, rate: f64| 0.4 * rate;
    machine.run(60, harm);
    assert_eq!(machine.braking(0).by, Some(Cause::Pressure));
    let before = machine.programs[0].stalled_us;
    let rate = machine.run(600, harm);
    let stall = (machine.programs[0].stalled_us - before) as f64 / 600e6;
    assert!((0.1..0.6).contains(&rate), "moves at {rate} of the rate");
    assert!(stall < 0.2, "tasks wait {stall} of the time");
}

#[test]
fn moves_that_do_harm_at_any_rate_are_stopped_and_tried_ever_more_seldom() {
    let mut machine = Machine::new(0);
    let harm = |_: usize, rate: f64| if rate > 0.0 { 0.6 } else { 0.02 };
    machine.run(60, harm);
    let before = machine.programs[0].stalled_us;
    let rate = machine.run(1200, harm);
    let stall = (machine.programs[0].stalled_us - before) as f64 / 1200e6;
    assert!(rate > 0.0 && stall < 0.1, "tasks wait {stall} of the time");
}

#[test]
fn a_scope_is_free_again_when_the_harm_is_over() {
    let mut machine = Machine::new(0);
    machine.run(120, |_, rate| if rate > 0.0 { 0.6 } else { 0.0 });
    assert!(machine.braking(0).rate_bp < 10_000);
    machine.run(80, |_, _| 0.0);
    assert_eq!((machine.braking(0).rate_bp, machine.braking(0).by), (10_000, None));
    assert!(machine.run(10, |_, _| 0.0) > 0.99);
    let changes = machine.engine.brake_changes(0).0;
    assert_eq!(changes.first().and_then(|change| change.by), Some(Cause::Pressure));
    assert_eq!(changes.last().map(|change| (change.rate_bp, change.by)), Some((10_000, None)));
}

#[test]
fn pages_that_go_to_and_fro_slow_their_scope_and_no_other() {
    let mut machine = Machine::new(2);
    for round in 0..600 {
        // The first scope's pages are hot wherever they are, the second's are new each time.
        let node = if round % 20 < 10 { LOWER } else { NodeId(0) };
        machine.touch(0, 0..600, node);
        let first = machine.programs[1].next_page;
        machine.programs[1].next_page += HOT_PAGES;
        machine.touch(1, first..first + HOT_PAGES, LOWER);
        machine.pass(&mut |_, _| 0.0);
    }
    assert_eq!(machine.braking(0).by, Some(Cause::PingPong));
    assert_eq!(machine.braking(1).by, None);
    assert!(machine.engine.counters().held.get(thermocline_core::refusal::RefusalReason::Braked) > 0);
    // New pages are no ping-pong.
    machine.programs[0].next_page = 1 << 20;
    machine.run(140, |_, _| 0.0);
    assert_eq!(machine.braking(0).by, None);
}

#[test]
fn demands_are_braked_as_well() {
    let harm = |_: usize, rate: f64| if rate > 0.0 { 0.6 } else { 0.0 };
    let asked = |demands: &[Demand]| demands.iter().map(|d| d.pages).sum::<u64>();
    // Everything is the default scope's.
    let mut machine = Machine::new(0);
    let (mut stopped, mut slowed) = (0, 0);
    for _ in 0..1200 {
        machine.tick(harm);
        machine.free_pages = 0;
        let demands = machine.demands();
        machine.free_pages = NODE_PAGES;
        let pages = asked(&demands);
        for demand in demands {
            machine.engine.observe(Evidence::Demoted(&demand.done(demand.pages, Nanos(0))));
        }
        let rate_bp = machine.braking(0).rate_bp;
        assert!(pages <= most(rate_bp), "{pages} pages at {rate_bp}");
        stopped += u32::from(rate_bp == 0);
        slowed += u32::from((1..10_000).contains(&rate_bp) && pages > 0);
    }
    assert!(stopped > 100 && slowed > 0, "stopped {stopped}, slowed {slowed}");
    // Of two scopes, one is braked: the demand says what may be taken of it.
    let mut machine = Machine::new(2);
    while machine.braking(0).rate_bp > 0 {
        machine.tick(|program, rate| if program == 0 { harm(0, rate) } else { 0.0 });
    }
    machine.free_pages = 0;
    let demands = machine.demands();
    assert!(asked(&demands) > 0);
    let braked: Vec<(u16, u64)> = demands[0].braked.iter().map(|a| (a.scope.0, a.pages)).collect();
    assert_eq!(braked, [(1, 0)]);
}

/// Random courses; each is some thousand ticks long.
const CASES: u32 = 48;

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(CASES), ..ProptestConfig::default() })]

    /// In no second more is issued than the brake leaves; nothing while it is stopped; and never
    /// more than without it.
    #[test]
    fn no_more_moves_than_the_brake_leaves(course in prop::collection::vec((0u32..=100, 1u32..60), 1..60)) {
        let mut machine = Machine::new(0);
        let mut lately: VecDeque<(Nanos, u64)> = VecDeque::new();
        let mut rate_bp = 10_000;
        for (percent, ticks) in course {
            for _ in 0..ticks {
                let pages = machine.tick(|_, _| f64::from(percent) / 100.0)[0];
                let now = machine.now;
                let left = machine.braking(0).rate_bp;
                if left != rate_bp && left < 10_000 {
                    lately.clear();
                }
                rate_bp = left;
                lately.push_back((now, pages));
                lately.retain(|(time, _)| now.since(*time) < Nanos::from_s(1));
                let sum: u64 = lately.iter().map(|(_, pages)| pages).sum();
                prop_assert!(sum <= most(rate_bp), "{sum} pages in a second at {rate_bp}");
            }
        }
    }

    /// Waiting that has nothing to do with moves, however much and since whenever, does not hold
    /// them up for ever.
    #[test]
    fn pressure_of_another_cause_does_not_stop_moves(before in 0u32..=100, after in 0u32..=100, seconds in 1u64..100) {
        let mut machine = Machine::new(0);
        machine.run(seconds, |_, _| f64::from(before) / 100.0);
        machine.run(120, |_, _| f64::from(after) / 100.0);
        prop_assert_eq!(machine.braking(0).by, None);
        prop_assert!(machine.run(10, |_, _| f64::from(after) / 100.0) > 0.99);
    }

    /// Nor does it where it comes and goes as it likes.
    #[test]
    fn restless_pressure_does_not_starve_a_scope(seed in any::<u64>(), most_percent in 1u32..=100, hold_ticks in 1u32..200) {
        let mut machine = Machine::new(0);
        let mut random = Pcg32::seed_from_u64(seed);
        let (mut stall, mut left) = (0.0, 0);
        let mut restless = |_: usize, _: f64| {
            if left == 0 {
                stall = f64::from(random.next_u32() % most_percent) / 100.0;
                left = hold_ticks;
            }
            left -= 1;
            stall
        };
        let mut still = 0;
        let mut moved = 0;
        for _ in 0..3000 {
            let pages = machine.tick(&mut restless)[0];
            moved += pages;
            still = if pages == 0 { still + 1 } else { 0 };
            prop_assert!(still <= 800, "nothing has moved for 80 s");
        }
        prop_assert!(moved as f64 > 0.05 * (LIMIT_PAGES * 300) as f64, "{moved} pages in five minutes");
    }

    /// The same course has the same decisions, and a scope's brake is its own.
    #[test]
    fn decisions_repeat_and_scopes_are_judged_apart(course in prop::collection::vec(0u32..=100, 1..100)) {
        let run = || {
            let mut machine = Machine::new(2);
            let mut free = true;
            for percent in &course {
                machine.run(1, |program, _| if program == 0 { f64::from(*percent) / 100.0 } else { 0.0 });
                free &= machine.braking(1).rate_bp == 10_000;
            }
            let brakes: BTreeMap<u16, Braking> = machine.engine.brakes().into_iter().map(|b| (b.scope.0, b)).collect();
            (machine.engine.journal().to_json_lines(), brakes, free)
        };
        let first = run();
        prop_assert!(first.2, "a scope without pressure was braked");
        prop_assert!(first == run());
    }
}
