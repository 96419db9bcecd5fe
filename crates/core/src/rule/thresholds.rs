//! The hot thresholds of all target nodes, for the rules that share mainline's feedback.

use std::collections::BTreeMap;

use crate::access::Access;
use crate::published::threshold::{Threshold, free_space_enough};
use crate::rule::Gauge;
use crate::topology::{NodeState, Topology};
use crate::units::{Nanos, NodeId};

/// One target node.
#[derive(Clone, Copy, Debug, Default)]
struct Target {
    threshold: Threshold,
    /// Base pages of all candidates so far.
    candidates: u64,
}

/// Thresholds by target node. Only nodes of the topology get an entry, so the map is bounded.
#[derive(Clone, Debug)]
pub(super) struct Thresholds {
    reference_ms: u64,
    /// Time between two adjustments; `None` without feedback.
    period_ms: Option<u64>,
    rate_limit_pages: u64,
    targets: BTreeMap<NodeId, Target>,
}

impl Thresholds {
    /// Thresholds around `reference_ms` that follow a rate limit in base pages a second, every
    /// `period_ms` if at all.
    pub(super) fn new(reference_ms: u64, period_ms: Option<u64>, rate_limit_pages: u64) -> Thresholds {
        Thresholds { reference_ms, period_ms, rate_limit_pages, targets: BTreeMap::new() }
    }

    /// Whether `gap`, in whole ms as the kernel counts, is below the threshold of the node that the
    /// page would go to. An accepted page is counted as a candidate.
    pub(super) fn accepts(&mut self, access: &Access, topology: &Topology, gap: Nanos) -> bool {
        let Some(node) = topology.promotion_target(access.node, access.accessor) else { return false };
        let target = self.targets.entry(node).or_default();
        if let Some(period_ms) = self.period_ms {
            let limit = self.rate_limit_pages;
            target.threshold.adjust(access.time, target.candidates, limit, self.reference_ms, period_ms);
        }
        let accepted = gap.ms() < target.threshold.ms(self.reference_ms);
        if accepted {
            target.candidates = target.candidates.saturating_add(access.pages());
        }
        accepted
    }

    /// Forgets the feedback of nodes that have plenty of room: their workload is about to change.
    pub(super) fn on_tick(&mut self, nodes: &[NodeState]) {
        for state in nodes.iter().filter(|n| free_space_enough(n)) {
            if let Some(target) = self.targets.get_mut(&state.node) {
                target.threshold.reset();
            }
        }
    }

    /// Threshold and candidates of each target node.
    pub(super) fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, node, value| Gauge { name, node: Some(node), value };
        self.targets
            .iter()
            .flat_map(|(node, t)| {
                [
                    gauge("hot_threshold_ms", *node, t.threshold.ms(self.reference_ms)),
                    gauge("candidate_pages", *node, t.candidates),
                ]
            })
            .collect()
    }
}
