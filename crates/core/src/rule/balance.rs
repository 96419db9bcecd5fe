//! The wrapper `balance`: pages of the top tier go to the node that accesses them.
//!
//! For each hardware sample of a page that lies on one node of the top tier and was accessed from
//! another:
//! 1. The page is proposed for the accessing node when its last sample came from there too, no
//!    longer ago than the record reaches.
//! 2. The closer together the two samples were, the higher its score.
//!
//! All evidence also goes to the wrapped rule, which decides about promotion.
//!
//! Source: S1, "Using Hardware Hints for Optimal Page Placement" (2023-11), first half: samples in
//! place of the hint faults of `kernel.numa_balancing = 1`. Two in a row from the same node are
//! mainline's filter as well: a page that two nodes share equally passes it one time in four, so
//! minimum residency and the limit on ping-pong have to hold such pages.

use crate::access::{Access, Detail, RegionPage, RegionSnapshot};
use crate::candidate::{Candidate, Candidates, Reason, score_of_rate};
use crate::demand::Supply;
use crate::moves::{Direction, Move, Outcome};
use crate::record::Record;
use crate::rule::{Context, Gauge, Rule, told};
use crate::topology::NodeState;
use crate::units::{Nanos, NodeId, Pid};

/// See the module's description.
#[derive(Debug)]
pub struct Balance {
    inner: Box<dyn Rule>,
    life: Nanos,
    proposed: u64,
}

impl Balance {
    /// Balances beside `inner`; candidates live for `life`.
    pub fn new(inner: Box<dyn Rule>, life: Nanos) -> Balance {
        Balance { inner, life, proposed: 0 }
    }

    /// The node that the page should go to, by this sample and the one before it.
    fn target(access: &Access, before: &Record, ctx: &Context<'_>) -> Option<(NodeId, Nanos)> {
        let accessor = access.accessor.filter(|accessor| *accessor != access.node)?;
        let gap = before.gap.filter(|_| before.node == Some(accessor))?;
        let remote = ctx.topology.is_top(access.node) && ctx.topology.is_top(accessor);
        remote.then_some((accessor, gap))
    }
}

impl Rule for Balance {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn window(&self) -> Nanos {
        self.inner.window()
    }

    fn restamp(&self) -> Option<bool> {
        self.inner.restamp()
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let before = *record;
        self.inner.on_access(access, record, ctx, out);
        if !matches!(access.detail, Detail::Sample { .. }) {
            return;
        }
        if let Some((target, gap)) = Balance::target(access, &before, ctx) {
            record.ready = true;
            self.proposed += 1;
            let gap = told(Some(gap)).unwrap_or(self.window());
            let score = score_of_rate(access.detail.between_accesses(gap));
            out.push(Candidate {
                target: Some(target),
                direction: Direction::Balance,
                ..Candidate::promotion(access, score, Reason::RemoteAccess, self.life)
            });
        }
    }

    fn on_regions(&mut self, snapshot: &RegionSnapshot, ctx: &Context<'_>, out: &mut Candidates) {
        self.inner.on_regions(snapshot, ctx, out);
    }

    fn on_region_pages(&mut self, pages: &[RegionPage], ctx: &Context<'_>, out: &mut Candidates) {
        self.inner.on_region_pages(pages, ctx, out);
    }

    fn on_spare(&mut self, node: NodeId, pages: u64) {
        self.inner.on_spare(node, pages);
    }

    fn on_supply(&mut self, supply: &Supply) {
        self.inner.on_supply(supply);
    }

    fn on_exit(&mut self, pid: Pid) {
        self.inner.on_exit(pid);
    }

    fn on_tick(&mut self, now: Nanos, nodes: &[NodeState], out: &mut Candidates) {
        self.inner.on_tick(now, nodes, out);
    }

    fn on_outcome(&mut self, done: &Move, outcome: Outcome, out: &mut Candidates) {
        self.inner.on_outcome(done, outcome, out);
    }

    fn gauges(&self) -> Vec<Gauge> {
        let mut gauges = self.inner.gauges();
        gauges.push(Gauge { name: "balance_proposed", node: None, value: self.proposed });
        gauges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::rule::Frequency;
    use crate::rule::testing::{Machine, fault, sample};

    fn rule() -> Balance {
        let life = Nanos::from_s(10);
        Balance::new(
            Box::new(Frequency::new(&config::rule::Frequency::default(), config::RecordLayout::Word, life)),
            life,
        )
    }

    fn from(node: u16, accessor: u16, time_ms: u64) -> Access {
        Access { accessor: Some(NodeId(accessor)), ..sample(node, 1, time_ms) }
    }

    #[test]
    fn two_samples_from_the_same_other_node_of_the_top_tier_propose() {
        let mut machine = Machine::new();
        let mut rule = rule();
        for (accessor, time_ms) in [(1, 0), (0, 10), (0, 20), (1, 30)] {
            machine.access(&mut rule, &from(0, accessor, time_ms));
        }
        assert!(machine.proposed().is_empty());
        assert!(machine.access(&mut rule, &from(0, 1, 40)).ready);
        let [candidate] = machine.proposed() else { panic!("one candidate") };
        assert_eq!((candidate.direction, candidate.target), (Direction::Balance, Some(NodeId(1))));
        assert_eq!(
            (candidate.reason, candidate.score),
            (Reason::RemoteAccess, score_of_rate(Nanos::from_ms(10)))
        );
    }

    #[test]
    fn evidence_that_comes_late_ranks_by_the_window() {
        let (mut machine, mut rule) = (Machine::new(), rule());
        for time_ms in [40, 20] {
            machine.access(&mut rule, &from(0, 1, time_ms));
        }
        assert_eq!(machine.proposed()[0].score, score_of_rate(rule.window()));
    }

    #[test]
    fn what_is_not_known_to_be_remote_is_left_to_the_inner_rule() {
        let mut machine = Machine::new();
        let mut rule = rule();
        // On the slow tier, from a node below the top tier, and from an unknown node.
        let nowhere = |time_ms| Access { accessor: None, ..sample(0, 2, time_ms) };
        for time_ms in 0..2 {
            machine.access(&mut rule, &from(2, 1, time_ms));
            machine.access(&mut rule, &Access { accessor: Some(NodeId(2)), ..sample(0, 3, time_ms) });
            machine.access(&mut rule, &nowhere(time_ms));
            machine.access(&mut rule, &Access { accessor: Some(NodeId(1)), ..fault(0, 4, time_ms, 1) });
        }
        let directions: Vec<Direction> = machine.proposed().iter().map(|c| c.direction).collect();
        assert_eq!(directions, [Direction::Promote], "the slow tier's page, by the rule within");
        assert_eq!(rule.gauges().iter().find(|g| g.name == "balance_proposed").unwrap().value, 0);
    }
}
