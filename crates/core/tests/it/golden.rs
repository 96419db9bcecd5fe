//! A golden outcome for each rule: known evidence in, known moves out.

use thermocline_core::access::{
    Access, Detail, Evidence, FaultLatency, NoMappings, Region, RegionPage, RegionSnapshot, RegionSpace,
};
use thermocline_core::config::{Config, RuleName};
use thermocline_core::engine::Engine;
use thermocline_core::moves::Direction;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, VirtPage};

use crate::world::topology;

/// Page, from, direction, target and the reason's name.
type Golden = (u64, u16, Direction, u16, &'static str);

const START: Nanos = Nanos::from_s(1000);

fn access(vpn: u64, node: u16, accessor: u16, ms: u64, detail: Detail) -> Access {
    Access {
        time: START.plus(Nanos::from_ms(ms)),
        pfn: Some(Pfn(4096 + vpn)),
        page: Some(VirtPage { pid: Pid(1), vpn }),
        order: 0,
        node: NodeId(node),
        accessor: Some(NodeId(accessor)),
        detail,
    }
}

/// A hint fault by a CPU of node 0, this long and this many faults after the scan.
fn fault(vpn: u64, node: u16, wait_ms: u64, faults: u32) -> Access {
    let latency = Some(FaultLatency { time: Nanos::from_ms(wait_ms), faults });
    access(vpn, node, 0, 0, Detail::HintFault { latency })
}

/// A sample by a CPU of node 1.
fn sample(vpn: u64, node: u16, ms: u64) -> Access {
    access(vpn, node, 1, ms, Detail::Sample { latency_cycles: 300, store: Some(false), period: 1000 })
}

/// Shows accesses at [`START`].
fn show(engine: &mut Engine, batch: &[Access]) {
    engine.observe(Evidence::Accesses { batch, mappings: &NoMappings });
}

/// Shows the rule what it decides by, and says what must come of it.
fn evidence(name: RuleName, engine: &mut Engine, nodes: &[NodeState]) -> Vec<Golden> {
    use Direction::Promote;
    match name {
        // The top tier has room for all: whatever is accessed on a lower tier within a minute goes
        // up. Page 9 only makes the rule look at the nodes.
        RuleName::Adaptive => {
            show(engine, &[fault(9, 3, 60_000, 10)]);
            engine.tick(START, nodes);
            show(engine, &[fault(1, 3, 900, 10), fault(2, 2, 20_000, 10), fault(3, 0, 1, 1)]);
            vec![(1, 3, Promote, 0, "free_room"), (2, 2, Promote, 0, "free_room")]
        }
        // Below 1000 ms, the sooner the better.
        RuleName::Latency => {
            show(
                engine,
                &[fault(1, 3, 999, 10), fault(2, 3, 1000, 10), fault(3, 2, 5, 10), fault(4, 1, 5, 10)],
            );
            vec![(3, 2, Promote, 0, "short_latency"), (1, 3, Promote, 0, "short_latency")]
        }
        // Below a million faults, however long that takes; of those the sooner the better.
        RuleName::FaultCount => {
            show(engine, &[fault(1, 3, 90_000, 999_999), fault(2, 3, 1, 1_000_000), fault(3, 2, 5, 3)]);
            vec![(3, 2, Promote, 0, "few_faults"), (1, 3, Promote, 0, "few_faults")]
        }
        // Page 1 twice within 1000 ms, page 2 farther apart, page 3 once.
        RuleName::InterArrival => {
            show(engine, &[sample(1, 3, 0), sample(2, 3, 0), sample(3, 3, 100), sample(1, 3, 400)]);
            show(engine, &[sample(2, 3, 1600)]);
            vec![(1, 3, Promote, 1, "short_interval")]
        }
        // Page 1 twice within 3000 ms, page 2 farther apart, page 3 once.
        RuleName::Frequency => {
            show(engine, &[sample(1, 3, 0), sample(2, 3, 0), sample(3, 3, 100), sample(1, 3, 2500)]);
            show(engine, &[sample(2, 3, 4000)]);
            vec![(1, 3, Promote, 1, "frequent")]
        }
        // Pages of a region that 50 % of the checks find accessed, not of one with 4 %.
        RuleName::Regions => {
            let region = |start, access_rate_bp| Region {
                space: RegionSpace::Virtual(Pid(1)),
                start,
                end: start + 8,
                access_rate_bp,
                age: Nanos::from_s(2),
                check: Nanos::from_ms(5),
            };
            let regions = vec![region(0, 5000), region(8, 400)];
            let page = |vpn: u64, node| RegionPage {
                page: VirtPage { pid: Pid(1), vpn },
                pfn: Some(Pfn(4096 + vpn)),
                order: 0,
                node: NodeId(node),
                region: regions[vpn as usize / 8],
                time: START,
            };
            let pages = [page(1, 3), page(9, 3), page(2, 0)];
            engine.observe(Evidence::Regions(&RegionSnapshot { time: START, regions: regions.clone() }));
            engine.observe(Evidence::RegionPages(&pages));
            // Who accesses them is not known: node 1 is nearer to node 3 than node 0 is.
            vec![(1, 3, Promote, 1, "hot_region")]
        }
    }
}

#[test]
fn each_rule_moves_what_its_evidence_is_for() {
    for name in RuleName::ALL {
        let mut config = Config::default();
        config.rule.name = name;
        // Thresholds stay where they are configured.
        config.rule.latency.feedback = false;
        config.rule.inter_arrival.feedback = false;
        config.source.damon.enabled = name.takes_regions();
        let mut engine = Engine::new(&config, topology()).expect("a sound setup");
        let free = |n| NodeState {
            node: NodeId(n),
            free_pages: 1 << 20,
            managed_pages: 1 << 20,
            ..NodeState::default()
        };
        let nodes: Vec<NodeState> = (0..4).map(free).collect();
        assert!(engine.tick(START, &nodes).is_empty());
        let expected = evidence(name, &mut engine, &nodes);
        let batches = engine.tick(START.plus(Nanos::from_s(5)), &nodes);
        let reason = |page| {
            let explained = engine.explain(page);
            let why = explained.decisions.last().expect("a decision").why;
            serde_json::to_value(why).expect("a name").as_str().expect("a text").to_owned()
        };
        let mut moves = Vec::new();
        for (batch, m) in batches.iter().flat_map(|batch| batch.moves.iter().map(move |m| (batch, m))) {
            assert_eq!((m.page.pid, m.pfn, m.order), (Pid(1), Some(Pfn(4096 + m.page.vpn)), 0));
            moves.push((m.page.vpn, m.from.0, batch.direction, batch.target.0, reason(m.page)));
        }
        let expected: Vec<_> =
            expected.into_iter().map(|(p, f, d, t, why)| (p, f, d, t, why.to_owned())).collect();
        assert_eq!(moves, expected, "rule {}", name.text());
    }
}
