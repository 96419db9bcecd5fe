//! How the engine drives demotion: demands out, results in.

use std::collections::BTreeMap;

use crate::candidate::gap_of_score;
use crate::demand::{Demand, Demoted, Wanted};
use crate::demotion::Ahead;
use crate::engine::Engine;
use crate::queue::LaneKey;
use crate::topology::NodeState;
use crate::units::{Nanos, NodeId};

impl Engine {
    /// The demands for the machine to carry out now. Machines that can demote call it after
    /// [`Engine::tick`] with the same states. The result of each demand is reported by
    /// [`crate::access::Evidence::Demoted`].
    pub fn demote(&mut self, now: Nanos, nodes: &[NodeState]) -> Vec<Demand> {
        let now = now.max(self.clock());
        let lost = self.demotion.lose(now);
        self.counters.demotion_lost += lost.pages;
        self.admission.settle_allowances(&lost.allowances);
        for state in nodes.iter().filter(|state| self.topology.is_top(state.node)) {
            self.rule.on_spare(state.node, self.demotion.spare(state));
        }
        let tops: Vec<NodeState> =
            nodes.iter().filter(|state| self.topology.is_top(state.node)).copied().collect();
        let giving = self.admission.giving(now, &tops, &self.wanting());
        let (wanted, ahead) = match &self.payoff {
            Some(payoff) if !payoff.may_promote() => (Vec::new(), Ahead::Nothing),
            _ => (self.wanted(), Ahead::Goal),
        };
        let demands = self.demotion.tick(&self.topology, now, nodes, &wanted, ahead, giving);
        for demand in &demands {
            self.admission.allow(&demand.allowances);
            self.admission.charge_braked(&demand.braked, now);
        }
        self.counters.demotion_asked += demands.iter().map(|d| d.pages).sum::<u64>();
        demands
    }

    /// The state of demotion.
    pub fn demotion(&self) -> &crate::demotion::Demotion {
        &self.demotion
    }

    /// The hottest of the candidates that wait for room, by their preferred node.
    fn wanted(&self) -> Vec<Wanted> {
        let mut wanted: BTreeMap<NodeId, Wanted> = BTreeMap::new();
        let node_of = |key: LaneKey| self.admission.nodes(key.route).first().copied();
        let of = |key| node_of(key).map_or(1, |node| self.demotion.one_in(node));
        for (key, pages, score) in self.queue.without_room(of) {
            let Some(node) = node_of(key) else { continue };
            let of_lane = Wanted { node, pages, gap: gap_of_score(score) };
            let sum = wanted.entry(node).or_insert(Wanted { pages: 0, ..of_lane });
            sum.pages = sum.pages.saturating_add(pages);
            sum.gap = sum.gap.max(of_lane.gap);
        }
        wanted.into_values().collect()
    }

    pub(super) fn settle_demand(&mut self, done: &Demoted) {
        let now = self.clock();
        match self.demotion.done(now, done) {
            Some(settled) => {
                let of_node = settled.supply.reason.is_of_node();
                if let Some(payoff) = self.payoff.as_mut().filter(|_| of_node) {
                    let node = self.topology.nodes.iter().find(|node| node.id == done.node);
                    payoff.supplied(&settled.supply, node.map_or(0, |node| node.capacity_pages), now);
                }
                self.counters.demotion_done += done.pages;
                self.counters.demotion_short += settled.supply.short;
                self.counters.demotion_over += settled.over;
                self.admission.settle_allowances(&settled.allowances);
                self.admission.demoted(done.pages, &settled.by_scope);
                self.ledgers.demoted(&settled);
                if of_node {
                    self.rule.on_supply(&settled.supply);
                }
            }
            None => self.counters.evidence_invalid += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Detail, Evidence, FaultLatency, NoMappings};
    use crate::candidate::{Candidate, Reason};
    use crate::config::Config;
    use crate::topology::{Node, Topology};
    use crate::units::{Pfn, Pid, TierId, VirtPage};

    fn engine() -> Engine {
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(id as u8),
            cpus: Vec::new(),
            capacity_pages: 1 << 20,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10, 20],
        };
        Engine::new(&Config::default(), Topology::new(vec![node(0), node(1)]).unwrap()).unwrap()
    }

    fn states(free_pages: u64) -> [NodeState; 2] {
        let state = |id: u16, free_pages| NodeState {
            node: NodeId(id),
            free_pages,
            managed_pages: 1 << 20,
            ..NodeState::default()
        };
        [state(0, free_pages), state(1, 1 << 20)]
    }

    #[test]
    fn what_waits_for_room_says_how_cold_a_page_must_be_and_how_many_shall_go() {
        let mut config = Config::default();
        config.rule.name = crate::config::RuleName::Latency;
        let mut engine = Engine::new(&config, engine().topology().clone()).unwrap();
        let wait = Nanos::from_ms(500);
        let faults: Vec<Access> = (0..100)
            .map(|n| Access {
                time: Nanos::from_s(1),
                pfn: Some(Pfn(n)),
                page: Some(VirtPage { pid: Pid(1), vpn: n }),
                order: 0,
                node: NodeId(1),
                accessor: Some(NodeId(0)),
                detail: Detail::HintFault { latency: Some(FaultLatency { time: wait, faults: 0 }) },
            })
            .collect();
        engine.observe(Evidence::Accesses { batch: &faults, mappings: &NoMappings });
        // 16 MiB, which promotions leave.
        let full = states(4096);
        assert!(engine.tick(Nanos::from_s(1), &full).is_empty());
        let demand = engine.demote(Nanos::from_s(1), &full)[0].clone();
        let nobody = Engine::new(&config, engine.topology().clone()).unwrap().demote(Nanos::from_s(1), &full);
        assert_eq!(demand.pages, nobody[0].pages + 100);
        assert_eq!(nobody[0].idle, Nanos::from_s(10));
        assert!(demand.idle.ms().abs_diff(2000) < 40, "four times 500 ms: {:?}", demand.idle);
    }

    #[test]
    fn what_was_promoted_and_is_accessed_below_again_has_come_back() {
        let mut engine = engine();
        let page = |n| VirtPage { pid: Pid(1), vpn: n };
        let access = |n, node, wait_ms| Access {
            time: Nanos::from_s(20),
            pfn: Some(Pfn(n)),
            page: Some(page(n)),
            order: 0,
            node: NodeId(node),
            accessor: None,
            detail: Detail::HintFault {
                latency: Some(FaultLatency { time: Nanos::from_ms(wait_ms), faults: 0 }),
            },
        };
        for n in 0..1600 {
            let candidate =
                Candidate::promotion(&access(n, 1, 100), 1000, Reason::HighRate, Nanos::from_s(60));
            let admitted = engine
                .admission
                .door(&engine.topology, &candidate, Nanos::from_s(1))
                .expect("a sound candidate");
            engine.admission.moved(&admitted, Nanos::from_s(1));
        }
        // A quarter of the ten seconds for which the demoted pages had been idle.
        for (node, wait_ms, expected) in [(0, 2500, 0), (1, 2501, 0), (1, 2500, 800)] {
            let batch: Vec<Access> = (0..800).map(|n| access(n, node, wait_ms)).collect();
            engine.observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
            let back = engine.counters().came_back;
            assert!(back.abs_diff(expected) <= expected / 4, "node {node}, {wait_ms} ms: {back}");
        }
    }

    #[test]
    fn every_page_asked_for_is_accounted_for() {
        let mut engine = engine();
        let demands = engine.demote(Nanos::from_s(1), &states(0));
        assert_eq!(demands.len(), 1);
        let asked = demands[0].pages;
        assert_eq!(engine.demotion().pending_pages(), asked);
        engine.check_balance().unwrap();
        engine.observe(Evidence::Demoted(&demands[0].done(asked + 511, Nanos(0))));
        let counters = engine.counters();
        assert_eq!((counters.demotion_done, counters.demotion_over), (asked + 511, 511));
        engine.check_balance().unwrap();
        // The report of an unknown demand has no effect.
        engine.observe(Evidence::Demoted(&demands[0].done(5, Nanos(0))));
        assert_eq!(engine.counters().evidence_invalid, 1);
        let asked = engine.demote(Nanos::from_s(10), &states(0))[0].pages;
        assert!(engine.demote(Nanos::from_s(100), &states(1 << 20)).is_empty());
        assert_eq!(engine.counters().demotion_lost, asked);
        engine.check_balance().unwrap();
    }
}
