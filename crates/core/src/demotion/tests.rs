//! Laws of demotion, tested on random machines that do as asked, or more, or less.

use proptest::prelude::*;

use super::node::REST_MIN;
use super::*;
use crate::topology::{Node as TopologyNode, Watermarks};
use crate::units::TierId;

const HIGH: u64 = 1000;
const TICK: Nanos = Nanos::from_ms(100);

/// Two nodes of DRAM and two of CXL.
fn topology(capacity_pages: u64) -> Topology {
    let node = |id: u16| TopologyNode {
        id: NodeId(id),
        tier: TierId(u8::from(id > 1)),
        cpus: Vec::new(),
        capacity_pages,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: (0..4).map(|other| if other == id { 10 } else { 20 }).collect(),
    };
    Topology::new((0..4).map(node).collect()).unwrap()
}

fn state(node: u16, free_pages: u64, managed_pages: u64) -> NodeState {
    let watermarks = Watermarks { high_pages: HIGH, ..Watermarks::default() };
    NodeState { node: NodeId(node), free_pages, managed_pages, watermarks }
}

fn demotion(rate_limit_mbps: u64) -> Demotion {
    let mut config = Config::default();
    config.demotion.rate_limit_mbps = rate_limit_mbps;
    Demotion::new(&config)
}

const MANAGED: u64 = 1 << 20;
/// The reserve that promotions leave: 1000 and 16 MiB.
const FLOOR: u64 = HIGH + 4096;
/// Halfway between that and the high watermark.
const LOW: u64 = HIGH + 2048;
/// 1000 + 16 MiB + 2 % of 4 GiB; and 0.5 % more.
const GOAL: u64 = HIGH + 4096 + 20_971;
const ENOUGH: u64 = GOAL + 5242;
const MISSING: u64 = ENOUGH - FLOOR;

#[test]
fn demotion_begins_below_the_goal_and_ends_with_the_hysteresis() {
    let mut d = demotion(65_536);
    let topology = topology(MANAGED);
    let mut asked = |free, now| {
        let demands = d.tick(
            &topology,
            Nanos::from_s(now),
            &[state(0, free, MANAGED), state(2, MANAGED, MANAGED)],
            &[],
            Ahead::Goal,
            Giving::default(),
        );
        let Some(demand) = demands.first() else { return 0 };
        d.done(Nanos::from_s(now), &demand.done(demand.pages, Nanos(0))).unwrap();
        demand.pages
    };
    assert_eq!(asked(GOAL, 0), 0);
    assert_eq!(asked(GOAL - 1, 1), ENOUGH - GOAL + 1);
    assert_eq!(asked(GOAL + 1, 2), ENOUGH - GOAL - 1, "it has begun and is not at the end");
    assert_eq!(asked(ENOUGH, 3), 0);
    assert_eq!(asked(GOAL + 1, 4), 0, "it has ended and not begun again");
}

#[test]
fn what_is_spare_is_filled_until_a_demand_is_made() {
    let mut d = demotion(65_536);
    let topology = topology(MANAGED);
    let states = |free| [state(0, free, MANAGED), state(1, MANAGED, MANAGED), state(2, MANAGED, MANAGED)];
    for free in [0, 1000, ENOUGH, MANAGED / 2] {
        let left = free - d.spare(&states(free)[0]);
        assert!(
            !d.tick(&topology, Nanos(0), &states(left), &[], Ahead::Goal, Giving::default()).is_empty(),
            "{free}"
        );
        d = demotion(65_536);
    }
    assert!(d.tick(&topology, Nanos(0), &states(ENOUGH), &[], Ahead::Goal, Giving::default()).is_empty());
}

#[test]
fn one_demand_a_node_at_a_time_and_a_rest_after_one_that_was_not_met() {
    let mut d = demotion(65_536);
    let topology = topology(MANAGED);
    let states = [state(0, FLOOR, MANAGED), state(1, FLOOR, MANAGED), state(2, MANAGED, MANAGED)];
    let first = d.tick(&topology, Nanos(0), &states, &[], Ahead::Goal, Giving::default());
    assert_eq!(first.iter().map(|x| (x.node.0, x.pages)).collect::<Vec<_>>(), [(0, MISSING), (1, MISSING)]);
    assert!(d.tick(&topology, TICK, &states, &[], Ahead::Goal, Giving::default()).is_empty());
    let settled = d.done(TICK, &first[0].done(10, Nanos(0))).unwrap();
    let supply = Supply {
        node: NodeId(0),
        idle: first[0].idle,
        reason: DemandReason::Goal,
        asked: MISSING,
        short: MISSING - 10,
    };
    assert_eq!(settled, Settled { supply, over: 0, allowances: Vec::new(), by_scope: Vec::new() });
    assert_eq!(d.done(TICK, &first[0].done(10, Nanos(0))), None, "told twice");
    assert_eq!(
        d.done(TICK, &Demoted { id: first[0].id, ..first[1].done(10, Nanos(0)) }),
        None,
        "of another demand"
    );
    assert!(d.tick(&topology, Nanos::from_ms(1349), &states, &[], Ahead::Goal, Giving::default()).is_empty());
    assert_eq!(
        d.tick(&topology, Nanos::from_ms(1350), &states, &[], Ahead::Goal, Giving::default()).len(),
        1
    );
    assert_eq!(d.lose(Nanos::from_s(60)).pages, MISSING, "the other one's end never came");
    assert_eq!(d.pending_pages(), MISSING);
}

/// To look costs programs time, so the longer nothing is found, the more seldom it is tried.
#[test]
fn the_rest_doubles_while_too_little_is_found_to_pay() {
    let (mut d, mut now) = (demotion(65_536), Nanos(0));
    let topology = topology(MANAGED);
    let states = [state(0, FLOOR, MANAGED), state(1, MANAGED, MANAGED), state(2, MANAGED, MANAGED)];
    let mut rest_after = |found: u64| {
        let demand = loop {
            match d.tick(&topology, now, &states, &[], Ahead::Goal, Giving::default()).pop() {
                Some(demand) => break demand,
                None => now = now.plus(Nanos::from_ms(10)),
            }
        };
        d.done(now, &demand.done(found, Nanos(0))).unwrap();
        let begin = now;
        while d.tick(&topology, now, &states, &[], Ahead::Goal, Giving::default()).is_empty() {
            now = now.plus(Nanos::from_ms(10));
        }
        let rest = now.since(begin).ms();
        d.lose(now.plus(Nanos::from_s(3600)));
        rest
    };
    let paying = MANAGED / PAYS;
    assert!(paying < MISSING, "it is short all the same");
    let rests = [0, paying - 1, 1, 0, 0, 0, paying, 0, 0].map(&mut rest_after);
    assert_eq!(rests, [1250, 2500, 5000, 10_000, 20_000, 20_000, 1250, 1250, 2500]);
}

#[test]
fn a_demand_that_is_not_met_is_made_for_fewer_hotter_pages_and_one_that_is_met_for_more() {
    let (mut d, topology) = (demotion(65_536), topology(MANAGED));
    let states = [state(0, FLOOR, MANAGED), state(2, MANAGED, MANAGED)];
    let waiting = [Wanted { node: NodeId(0), pages: 100, gap: Nanos::from_ms(500) }];
    let mut now = Nanos(0);
    let mut one_in_after = |wanted: &[Wanted], percent| {
        now = now.plus(Nanos::from_s(60));
        let demand = d.tick(&topology, now, &states, wanted, Ahead::Goal, Giving::default()).remove(0);
        d.done(now, &demand.done(demand.pages * percent / 100, Nanos(0))).unwrap();
        d.one_in(NodeId(0))
    };
    assert_eq!(one_in_after(&waiting, 100), 4, "the hottest quarter at most");
    assert_eq!([74, 74, 0].map(|percent| one_in_after(&waiting, percent)), [8, 16, 32]);
    assert_eq!(one_in_after(&[], 0), 32, "nobody waited");
    assert_eq!([0; 4].map(|percent| one_in_after(&waiting, percent)), [64, 128, 256, 256]);
    assert_eq!([76, 100, 100].map(|percent| one_in_after(&waiting, percent)), [128, 64, 32]);
    assert_eq!(d.one_in(NodeId(1)), 4, "each node for itself");
}

#[test]
fn where_allocations_are_about_to_go_below_the_coldest_go_down_however_short_they_are_idle() {
    let (mut d, topology) = (demotion(65_536), topology(MANAGED));
    let low = [state(0, LOW - 1, MANAGED), state(2, MANAGED, MANAGED)];
    let waiting = [Wanted { node: NodeId(0), pages: 100_000, gap: Nanos::from_s(2) }];
    let mut now = Nanos(0);
    let mut asked = |d: &mut Demotion, states: &[NodeState], percent| {
        let demand =
            d.tick(&topology, now, states, &waiting, Ahead::Goal, Giving::default()).first()?.clone();
        let settled = d.done(now, &demand.done(demand.pages * percent / 100, Nanos(0))).unwrap();
        now = now.plus(REST_MIN);
        Some((settled.supply.reason, demand.pages, demand.idle.ms()))
    };
    let expected = |idle_ms| Some((DemandReason::Allocations, FLOOR - LOW + 1, idle_ms));
    // From the idle time without waiting pages, halved while too little is found, down to the
    // minimum.
    for idle_ms in [10_000, 5000, 2500, 1250, 625, 312, 156, 100, 100] {
        assert_eq!(asked(&mut d, &low, 0), expected(idle_ms));
    }
    for _ in 0..3 {
        asked(&mut d, &low, 100);
    }
    assert_eq!(asked(&mut d, &low, 100), expected(625), "doubled where it is found");
    // Above that, demands are for waiting pages again, with their own idle time.
    let not_so_low = [state(0, LOW, MANAGED), low[1]];
    let (reason, pages, idle_ms) = asked(&mut d, &not_so_low, 0).unwrap();
    assert_eq!((reason, idle_ms), (DemandReason::Waiting, 8000));
    assert!(pages > MISSING);
    // That one was not met and rests; what allocations need does not wait for it.
    assert_eq!(asked(&mut d, &not_so_low, 0), None);
    assert!(matches!(asked(&mut d, &low, 0), Some((DemandReason::Allocations, ..))));
}

#[test]
fn a_full_lower_tier_takes_nothing_and_its_room_is_given_once() {
    let mut d = demotion(65_536);
    let topology = topology(MANAGED);
    let full = [state(0, FLOOR, MANAGED), state(2, FLOOR, MANAGED), state(3, 0, MANAGED)];
    assert!(d.tick(&topology, Nanos(0), &full, &[], Ahead::Goal, Giving::default()).is_empty());
    let some = [
        state(0, FLOOR, MANAGED),
        state(1, FLOOR, MANAGED),
        state(2, FLOOR + 25_000, MANAGED),
        state(3, FLOOR + 5_000, MANAGED),
    ];
    let pages: Vec<u64> = d
        .tick(&topology, Nanos(0), &some, &[], Ahead::Goal, Giving::default())
        .iter()
        .map(|x| x.pages)
        .collect();
    assert_eq!(pages, [MISSING, 30_000 - MISSING]);
}

proptest! {
    /// The CPU time reported by machines never exceeds the share of one CPU's time, except for the
    /// demands that have just ended.
    #[test]
    fn demotion_pays_for_itself(percent in 1u8..=100, costs in prop::collection::vec(0u64..3_000, 1..100)) {
        let mut config = Config::default();
        config.demotion.cpu_percent = percent;
        let mut d = Demotion::new(&config);
        let topology = topology(MANAGED);
        let states = [state(0, 0, MANAGED), state(1, 0, MANAGED), state(2, MANAGED, MANAGED)];
        let share = f64::from(percent) / 100.0;
        let (mut now, mut spent_ms) = (Nanos(0), 0);
        for ms in costs {
            let before = spent_ms;
            for demand in d.tick(&topology, now, &states, &[], Ahead::Goal, Giving::default()) {
                prop_assert!(before as f64 <= now.ms() as f64 * share + 1.0, "{before} ms of CPU in {} ms", now.ms());
                d.done(now, &demand.done(1, Nanos::from_ms(ms)));
                spent_ms += ms;
            }
            now = now.plus(Nanos::from_ms(500));
        }
    }

    /// A demand never asks for more than is missing to goal plus hysteresis plus the waiting pages,
    /// of these at most a sixteenth of the node; never for more than the rate limit in any second
    /// or than lower tiers can take; never for pages less idle than the waiting pages allow, or
    /// than the minimum if allocations need room. Every page asked for is accounted for.
    #[test]
    fn demands_keep_the_laws(
        rate_mbps in 1u64..400,
        steps in prop::collection::vec((0u64..3 * ENOUGH, 0u64..3 * ENOUGH, 0u64..60_000, 0u64..150, 0u64..200, (0u64..50_000, 1u64..5_000)), 1..200),
    ) {
        let mut d = demotion(rate_mbps);
        let topology = topology(MANAGED);
        let mut now = Nanos(0);
        let mut asked: Vec<(Nanos, u64)> = Vec::new();
        let (mut sum, mut settled_pages) = (0u64, 0u64);
        for (free0, free1, lower, percent, again, (waiting, gap_ms)) in steps {
            let states = [state(0, free0, MANAGED), state(1, free1, MANAGED), state(2, lower, MANAGED)];
            let wanted = Wanted { node: NodeId(0), pages: waiting, gap: Nanos::from_ms(gap_ms) };
            let demands = d.tick(&topology, now, &states, &[wanted], Ahead::Goal, Giving::default());
            for demand in &demands {
                prop_assert!(topology.is_top(demand.node) && demand.pages > 0);
                let free = states[usize::from(demand.node.0)].free_pages;
                let waited_for = demand.node == wanted.node;
                let for_them = if waited_for { waiting.min(MANAGED / 16) } else { 0 };
                let least_ms = match waited_for {
                    _ if free < LOW => 100,
                    true => (4 * gap_ms).clamp(100, 120_000),
                    false => 10_000,
                };
                prop_assert!(free + demand.pages <= ENOUGH + for_them);
                prop_assert!(demand.idle >= Nanos::from_ms(least_ms) && demand.idle <= Nanos::from_ms(120_000));
                asked.push((now, demand.pages));
                sum += demand.pages;
            }
            let of_tick: u64 = demands.iter().map(|x| x.pages).sum();
            prop_assert!(of_tick <= lower.saturating_sub(HIGH + 4096));
            let second: u64 = asked.iter().filter(|(at, _)| now.since(*at) < Nanos::from_s(1)).map(|x| x.1).sum();
            prop_assert!(second <= d.limit_pages());
            for demand in demands.iter().take(1 + usize::from(again % 2 == 0)) {
                let pages = demand.pages * percent / 100;
                let settled = d.done(now, &demand.done(pages, Nanos(0))).unwrap();
                settled_pages += pages + settled.supply.short - settled.over;
            }
            d.came_back(again);
            let lost = d.lose(now).pages;
            settled_pages += lost;
            prop_assert_eq!(sum, settled_pages + d.pending_pages());
            now = now.plus(TICK);
        }
    }
}

#[test]
fn where_nothing_may_be_promoted_room_is_made_for_allocations_alone() {
    let topology = topology(MANAGED);
    let asked = |free, ahead| {
        let states = [state(0, free, MANAGED), state(2, MANAGED, MANAGED)];
        let demands = demotion(65_536).tick(&topology, Nanos(0), &states, &[], ahead, Giving::default());
        demands.iter().map(|demand| demand.pages).sum::<u64>()
    };
    assert_eq!([Ahead::Goal, Ahead::Nothing].map(|ahead| asked(FLOOR, ahead)), [MISSING, 0]);
    let low = [Ahead::Goal, Ahead::Nothing].map(|ahead| asked(0, ahead));
    assert!(low[0] > 0 && low[0] == low[1], "{low:?}");
}
