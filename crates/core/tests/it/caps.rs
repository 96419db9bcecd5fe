//! Laws of what scopes hold above their cap, on a machine whose scopes allocate and free at
//! arbitrary times, whose memory is as hot as it likes, and whose demands take their time.

use std::collections::VecDeque;

use proptest::prelude::*;
use thermocline_core::access::{Evidence, Holding, Pressure};
use thermocline_core::config::{Config, DemotionMode};
use thermocline_core::demand::{Demand, DemandReason, Demoted};
use thermocline_core::demotion::{Allowances, OVER_PAGES, Reach, reach};
use thermocline_core::engine::Engine;
use thermocline_core::published::threshold::rate_limit_pages;
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, PAGES_PER_MIB, ScopeId, TierId};

use crate::limits;

/// Two top-tier nodes and a lower one.
const NODES: u16 = 3;
const NODE_PAGES: u64 = 1 << 20;
const TICK: Nanos = Nanos::from_ms(100);
/// Time between two accesses to a page, of each kind of memory, in ms. The coldest is never
/// accessed; of the hottest the kernel gives only where no idle time is asked for.
const GAPS_MS: [u64; 4] = [5, 200, 3000, 1_000_000];
/// Eight rounds until no idle time is asked for, with a rest of half a second after each, and in
/// each a demand of both scopes on both nodes, of at most 0.6 s and an eighth of a second's pages.
const SETTLE: Nanos = Nanos::from_s(8 * (1 + 4));

/// Pages by top-tier node and kind.
type Held = [[u64; GAPS_MS.len()]; 2];

#[derive(Clone, Debug)]
enum Step {
    /// A scope allocates memory of a kind on a node.
    Grow { scope: usize, node: usize, kind: usize, mib: u64 },
    /// It frees some of it.
    Free { scope: usize, node: usize, kind: usize },
    /// Time passes, with so much free on the top-tier nodes.
    Wait { ticks: u64, free: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0usize..3, 0usize..2, 0..GAPS_MS.len());
    prop_oneof![
        3 => (place(), 1u64..200)
            .prop_map(|((scope, node, kind), mib)| Step::Grow { scope, node, kind, mib }),
        1 => place().prop_map(|(scope, node, kind)| Step::Free { scope, node, kind }),
        2 => (1u64..40, 0u64..60_000).prop_map(|(ticks, free)| Step::Wait { ticks, free }),
    ]
}

struct World {
    engine: Engine,
    config: Config,
    reach: Reach,
    now: Nanos,
    held: [Held; 3],
    /// When each ends, and how.
    demands: VecDeque<(Nanos, Demand)>,
    /// When pages were asked for, how many, and whether of one scope.
    asked: Vec<(Nanos, u64, bool)>,
    /// Pages asked for of one scope, and of anybody.
    sums: [u64; 2],
    /// Longest time of a demand, in ticks.
    slow: u64,
}

impl World {
    fn new(floor_mib: u64, over_mib: u64, cap_mib: u64, change: impl Fn(&mut Config)) -> World {
        let mut config = Config { scope: limits::scopes(floor_mib, over_mib, cap_mib), ..Config::default() };
        config.demotion.mode = DemotionMode::On;
        config.demotion.rate_limit_mbps = 64;
        config.demotion.scope_rate_mbps = 32;
        config.brake.enabled = false;
        change(&mut config);
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(u8::from(id == NODES - 1)),
            cpus: Vec::new(),
            capacity_pages: NODE_PAGES,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: (0..NODES).map(|other| if other == id { 10 } else { 20 }).collect(),
        };
        let topology = Topology::new((0..NODES).map(node).collect()).expect("three nodes");
        World {
            engine: Engine::new(&config, topology).expect("a sound configuration"),
            reach: reach(&config).expect("cgroups"),
            config,
            now: Nanos::from_s(1),
            held: Default::default(),
            demands: VecDeque::new(),
            asked: Vec::new(),
            sums: [0; 2],
            slow: 0,
        }
    }

    fn holds(&self, scope: usize) -> u64 {
        self.held[scope].iter().flatten().sum()
    }

    /// What demotion leaves a scope, if it has a cap.
    fn kept(&self, scope: usize) -> Option<u64> {
        let keys = &self.config.scope[scope];
        let floor = keys.top_tier_floor_mib * PAGES_PER_MIB;
        let least = if floor > 0 { floor + OVER_PAGES } else { 0 };
        Some((keys.top_tier_cap_mib? * PAGES_PER_MIB).max(least))
    }

    /// What all hold above that.
    fn excess(&self) -> u64 {
        (0..3).filter_map(|scope| Some(self.holds(scope).saturating_sub(self.kept(scope)?))).sum()
    }

    /// From there on a scope is asked.
    fn slack(&self, scope: usize) -> u64 {
        let cap = self.config.scope[scope].top_tier_cap_mib.unwrap_or(0) * PAGES_PER_MIB;
        OVER_PAGES.max(cap / 64)
    }

    fn pace(&self) -> u64 {
        rate_limit_pages(self.config.demotion.scope_rate_mbps)
    }

    fn happen(&mut self, step: &Step) {
        match *step {
            Step::Grow { scope, node, kind, mib } => self.held[scope][node][kind] += mib * PAGES_PER_MIB,
            Step::Free { scope, node, kind } => self.held[scope][node][kind] /= 2,
            Step::Wait { ticks, free } => (0..ticks).for_each(|_| self.tick(free)),
        }
    }

    fn tick(&mut self, free: u64) {
        self.now = self.now.plus(TICK);
        while self.demands.front().is_some_and(|(end, _)| *end <= self.now) {
            let Some((_, demand)) = self.demands.pop_front() else { break };
            let done = self.carry_out(&demand);
            self.engine.observe(Evidence::Demoted(&done));
        }
        for scope in 0..2 {
            let holding =
                Holding { scope: ScopeId::of_place(scope), time: self.now, pages: self.holds(scope) };
            self.engine.observe(Evidence::Holding(holding));
        }
        let state = |id: u16| NodeState {
            node: NodeId(id),
            free_pages: if id == NODES - 1 { NODE_PAGES } else { free },
            managed_pages: NODE_PAGES,
            ..NodeState::default()
        };
        let states = [0, 1, 2].map(state);
        self.engine.tick(self.now, &states);
        let demands = self.engine.demote(self.now, &states);
        for demand in demands {
            self.judge(&demand);
            let takes = 1 + (demand.id * 7 + demand.pages) % (self.slow + 1);
            // The thread takes one after the other.
            let begin = self.demands.back().map_or(self.now, |(end, _)| (*end).max(self.now));
            self.demands.push_back((begin.plus(Nanos(TICK.0 * takes)), demand));
        }
        self.judge_rates();
        self.engine.check_balance().expect("the sums balance");
    }

    /// A demand for one scope is for what it holds above its cap, and no more.
    fn judge(&mut self, demand: &Demand) {
        self.asked.push((self.now, demand.pages, demand.only.is_some()));
        self.sums[usize::from(demand.only.is_none())] += demand.pages;
        let Some(scope) = demand.only else { return };
        let scope = usize::from(scope.0) - 1;
        let kept = self.kept(scope).expect("nobody without a cap is asked for what is above it");
        let down: u64 =
            self.demands.iter().filter(|(_, d)| d.only == demand.only).map(|(_, d)| d.pages).sum();
        assert_eq!(down, 0, "one demand of a scope at a time");
        let others: u64 = self.demands.iter().flat_map(|(_, d)| &d.allowances).map(|a| a.pages).sum();
        assert!(
            self.holds(scope) >= kept + demand.pages,
            "scope {scope} holds {} and keeps {kept}, and {demand:?} beside {others}",
            self.holds(scope)
        );
    }

    /// In any second at most the rates, and half of demotion's is left to others.
    fn judge_rates(&mut self) {
        let second = self.now.0 - 1_000_000_000;
        self.asked.retain(|(time, ..)| time.0 > second);
        let sum = |only: bool| -> u64 {
            self.asked.iter().filter(|(.., one)| *one == only).map(|(_, pages, _)| pages).sum()
        };
        let all = rate_limit_pages(self.config.demotion.rate_limit_mbps);
        assert!(sum(true) <= self.pace().min(all / 2), "{} of scopes", sum(true));
        assert!(sum(true) + sum(false) <= all, "{} and {}", sum(true), sum(false));
    }

    /// Takes what is idle for long enough, of whom the demand allows, the coldest first.
    fn carry_out(&mut self, demand: &Demand) -> Demoted {
        let mut left = Allowances::of(demand);
        let mut done = demand.done(0, Nanos(0));
        for kind in (0..GAPS_MS.len()).rev().filter(|kind| Nanos::from_ms(GAPS_MS[*kind]) >= demand.idle) {
            for scope in 0..3 {
                let id = ScopeId::of_place(scope);
                let subtree = self.reach.only.iter().find(|subtree| subtree.scope == id);
                let here = &mut self.held[scope][usize::from(demand.node.0)][kind];
                let taken = left.left(subtree).min(*here).min(demand.pages - done.pages);
                *here -= taken;
                left.take(id, taken);
                done.pages += taken;
                done.by_scope.push((id, taken));
            }
        }
        done
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// After the last allocation it takes no longer than the excess takes at the pace.
    #[test]
    fn a_cap_is_exceeded_no_longer_than_the_pace_allows(
        floor_mib in 0u64..40, over_mib in 0u64..40, cap_mib in 0u64..400, slow in 0u64..5,
        steps in prop::collection::vec(step(), 1..60), free in 0u64..60_000,
    ) {
        let mut world = World::new(floor_mib, over_mib, cap_mib, |_| ());
        world.slow = slow;
        steps.iter().for_each(|step| world.happen(step));
        let begin = world.now;
        let most = Nanos(world.excess() * 1_000_000_000 / world.pace()).plus(SETTLE);
        let above = |world: &World, scope: usize| {
            world.kept(scope).is_some_and(|kept| world.holds(scope) > kept + world.slack(scope))
        };
        while (0..3).any(|scope| above(&world, scope)) {
            world.tick(free);
            let took = world.now.since(begin);
            prop_assert!(took <= most, "{} pages above after {} ms of {}", world.excess(), took.ms(), most.ms());
        }
    }
}

/// A scope without a cap, and with free memory in abundance, is asked for nothing.
#[test]
fn who_is_below_the_cap_or_has_none_is_left_alone() {
    let mut world = World::new(0, 100, 50, |_| ());
    for step in [
        Step::Grow { scope: 0, node: 0, kind: 3, mib: 100 },
        Step::Grow { scope: 1, node: 1, kind: 3, mib: 54 },
        Step::Grow { scope: 2, node: 0, kind: 3, mib: 900 },
        Step::Wait { ticks: 600, free: NODE_PAGES / 2 },
    ] {
        world.happen(&step);
    }
    assert_eq!(world.engine.counters().demotion_asked, 0, "4 MiB above the cap are its slack");
    world.happen(&Step::Grow { scope: 1, node: 1, kind: 3, mib: 1 });
    world.happen(&Step::Wait { ticks: 30, free: NODE_PAGES / 2 });
    assert_eq!([0, 1, 2].map(|scope| world.holds(scope) / PAGES_PER_MIB), [100, 50, 900]);
    assert_eq!(world.engine.counters().demotion_done, 5 * PAGES_PER_MIB, "down to the cap, once");
}

/// The coldest goes first, and hot memory goes as well where nothing else is left.
#[test]
fn the_coldest_goes_first_and_the_hottest_in_the_end() {
    let mut world = World::new(0, 1000, 10, |_| ());
    for kind in 0..GAPS_MS.len() {
        world.happen(&Step::Grow { scope: 1, node: kind % 2, kind, mib: 20 });
    }
    let mut course = Vec::new();
    while world.holds(1) > 10 * PAGES_PER_MIB {
        world.tick(NODE_PAGES / 2);
        let kinds =
            [3, 2, 1, 0].map(|kind| (world.held[1][0][kind] + world.held[1][1][kind]) / PAGES_PER_MIB);
        course.push(kinds);
        assert!(world.now < Nanos::from_s(30), "{kinds:?}");
    }
    assert_eq!(*course.last().expect("a course"), [0, 0, 0, 10]);
    assert!(course.contains(&[0, 20, 20, 20]) && course.contains(&[0, 0, 20, 20]), "{course:?}");
}

/// Neither does it take all that may be demoted in a second, nor is it kept waiting by others.
#[test]
fn caps_and_free_memory_have_half_of_the_rate_each() {
    let mut world = World::new(0, 1000, 0, |config| config.demotion.scope_rate_mbps = 1000);
    world.happen(&Step::Grow { scope: 1, node: 0, kind: 3, mib: 2000 });
    world.happen(&Step::Grow { scope: 2, node: 1, kind: 3, mib: 2000 });
    world.happen(&Step::Wait { ticks: 100, free: 0 });
    // Ten seconds of 32 MB/s each.
    let asked = world.sums.map(|pages| pages / PAGES_PER_MIB);
    assert!(asked.iter().all(|mib| (280..=352).contains(mib)), "{asked:?}");
}

#[test]
fn at_a_rate_of_none_a_cap_only_stops_promotions() {
    let mut world = World::new(0, 10, 0, |config| config.demotion.scope_rate_mbps = 0);
    world.happen(&Step::Grow { scope: 1, node: 0, kind: 3, mib: 200 });
    world.happen(&Step::Wait { ticks: 300, free: NODE_PAGES / 2 });
    assert_eq!(world.engine.counters().demotion_asked, 0);
}

/// A stopped brake lets nothing go, whatever the cap says.
#[test]
fn a_brake_holds_for_what_is_above_a_cap() {
    let mut world = World::new(0, 1000, 10, |config| config.brake.enabled = true);
    world.happen(&Step::Grow { scope: 1, node: 0, kind: 3, mib: 2000 });
    let mut waited_us = 0;
    let mut at_stop = None;
    for _ in 0..600 {
        world.tick(NODE_PAGES / 2);
        waited_us += 90_000;
        let pressure =
            Pressure { scope: ScopeId(2), time: world.now, some_us: waited_us, full_us: waited_us };
        world.engine.observe(Evidence::Pressure(pressure));
        let brakes = world.engine.brakes();
        let rate_bp = brakes.iter().find(|brake| brake.scope == ScopeId(2)).expect("a brake").rate_bp;
        if rate_bp == 0 && world.demands.is_empty() {
            let held = *at_stop.get_or_insert(world.holds(1));
            assert_eq!(world.holds(1), held, "it is stopped");
            if world.demands.iter().all(|(_, demand)| demand.only.is_none()) {
                break;
            }
        }
    }
    assert!(at_stop.is_some(), "it was never stopped");
}

#[test]
fn a_demand_for_a_cap_says_nothing_of_its_node() {
    assert!(!DemandReason::Cap.is_of_node() && DemandReason::Goal.is_of_node());
}
