//! Demotion as the engine drives it: demands out, what came of them in.

use crate::demotion::{Demand, Demoted};
use crate::engine::Engine;
use crate::topology::NodeState;
use crate::units::Nanos;

impl Engine {
    /// What the machine shall demote now; called after [`Engine::tick`] with the same states, by machines that can. What came of each
    /// demand is told by [`crate::access::Evidence::Demoted`].
    pub fn demote(&mut self, now: Nanos, nodes: &[NodeState]) -> Vec<Demand> {
        let now = now.max(self.clock());
        let lost = self.demotion.lose(now);
        self.counters.demotion_lost += lost.pages;
        self.admission.settle_allowances(&lost.allowances);
        let demands = self.demotion.tick(&self.topology, now, nodes, self.admission.spare(now));
        demands.iter().for_each(|demand| self.admission.allow(&demand.allowances));
        self.counters.demotion_asked += demands.iter().map(|d| d.pages).sum::<u64>();
        demands
    }

    /// What is known of demotion.
    pub fn demotion(&self) -> &crate::demotion::Demotion {
        &self.demotion
    }

    pub(super) fn settle_demand(&mut self, done: &Demoted) {
        match self.demotion.done(&self.topology, self.clock(), done) {
            Some(settled) => {
                self.counters.demotion_done += done.pages;
                self.counters.demotion_short += settled.short;
                self.counters.demotion_over += settled.over;
                self.admission.settle_allowances(&settled.allowances);
            }
            None => self.counters.evidence_invalid += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Evidence;
    use crate::config::Config;
    use crate::topology::{Node, Topology};
    use crate::units::{NodeId, TierId};

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
        // What nobody asked for is no evidence.
        engine.observe(Evidence::Demoted(&demands[0].done(5, Nanos(0))));
        assert_eq!(engine.counters().evidence_invalid, 1);
        let asked = engine.demote(Nanos::from_s(10), &states(0))[0].pages;
        assert!(engine.demote(Nanos::from_s(100), &states(1 << 20)).is_empty());
        assert_eq!(engine.counters().demotion_lost, asked);
        engine.check_balance().unwrap();
    }
}
