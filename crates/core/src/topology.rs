//! Nodes, tiers and distances, and the state of a node that changes while running.

use serde::{Deserialize, Serialize};

use crate::units::{NodeId, PageSize, TierId};

/// What is known of one node when it appears.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its tier.
    pub tier: TierId,
    /// CPUs of the node, ascending; empty on a memory-only node.
    pub cpus: Vec<u32>,
    /// Memory of the node, in base pages of [`Topology::page_bytes`]; 0 on a CPU-only node, and on
    /// an excluded one.
    pub capacity_pages: u64,
    /// Idle read latency from the nearest CPUs in ns, if the firmware reports it (HMAT).
    pub read_latency_ns: Option<u32>,
    /// Read bandwidth from the nearest CPUs in MB/s, if the firmware reports it (HMAT).
    pub read_bandwidth_mbps: Option<u32>,
    /// SLIT distances to the nodes of [`Topology::nodes`], in their order (10 = local).
    pub distances: Vec<u8>,
}

/// All nodes with memory or CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The size of a base page.
    pub page_bytes: PageSize,
    /// Ascending by number.
    pub nodes: Vec<Node>,
    /// The tier of each node with memory by node number: looked up for every access, so without a
    /// search.
    #[serde(skip)]
    tiers: Vec<Option<TierId>>,
    /// Whether each node is below the top tier, likewise.
    #[serde(skip)]
    lower: Vec<bool>,
    /// The fastest tier that has memory.
    #[serde(skip)]
    top: Option<TierId>,
}

/// Why a topology cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// No node has memory.
    #[error("no node has memory; the topology is empty")]
    Empty,
    /// Two entries for one node.
    #[error("{0} is listed twice")]
    Duplicate(NodeId),
    /// Nodes are not ascending by number.
    #[error("{0} is out of order; nodes are listed by ascending number")]
    Order(NodeId),
    /// A row of distances has another length than the list of nodes.
    #[error("{node} has {found} distances for {expected} nodes")]
    Distances {
        /// The node.
        node: NodeId,
        /// Distances given.
        found: usize,
        /// Nodes.
        expected: usize,
    },
}

impl Topology {
    /// Checks that nodes are ascending, unique and have a distance to each other.
    ///
    /// # Errors
    /// The first defect found.
    pub fn new(nodes: Vec<Node>) -> Result<Topology, TopologyError> {
        if nodes.iter().all(|n| n.capacity_pages == 0) {
            return Err(TopologyError::Empty);
        }
        for pair in nodes.windows(2) {
            if pair[0].id == pair[1].id {
                return Err(TopologyError::Duplicate(pair[1].id));
            }
            if pair[0].id > pair[1].id {
                return Err(TopologyError::Order(pair[1].id));
            }
        }
        for node in &nodes {
            if node.distances.len() != nodes.len() {
                return Err(TopologyError::Distances {
                    node: node.id,
                    found: node.distances.len(),
                    expected: nodes.len(),
                });
            }
        }
        let mut tiers = vec![None; nodes.last().map_or(0, |n| usize::from(n.id.0) + 1)];
        for node in nodes.iter().filter(|n| n.capacity_pages > 0) {
            tiers[usize::from(node.id.0)] = Some(node.tier);
        }
        let top = nodes.iter().filter(|n| n.capacity_pages > 0).map(|n| n.tier).min();
        let lower = tiers.iter().map(|tier| tier.is_some_and(|tier| Some(tier) > top)).collect();
        Ok(Topology { page_bytes: PageSize::default(), nodes, tiers, lower, top })
    }

    /// The same with capacities counted in pages of `size`.
    pub fn with_page_size(self, size: PageSize) -> Topology {
        Topology { page_bytes: size, ..self }
    }

    /// The node with number `id`.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.index(id).map(|i| &self.nodes[i])
    }

    /// The tier of a node; `None` if it has no memory, so no page is moved to it or from it.
    #[inline]
    pub fn tier(&self, id: NodeId) -> Option<TierId> {
        self.tiers.get(usize::from(id.0)).copied().flatten()
    }

    /// Whether a node is in the top tier; unknown nodes are not.
    #[inline]
    pub fn is_top(&self, id: NodeId) -> bool {
        self.tier(id).is_some_and(|t| Some(t) == self.top)
    }

    /// Whether a node is below the top tier, so that its pages can be promoted; unknown nodes are
    /// not.
    #[inline]
    pub fn is_lower(&self, id: NodeId) -> bool {
        self.lower.get(usize::from(id.0)).is_some_and(|lower| *lower)
    }

    /// How many tiers have memory.
    pub fn tiers_with_memory(&self) -> usize {
        let with_memory = self.nodes.iter().filter(|node| node.capacity_pages > 0);
        with_memory.map(|node| node.tier).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// The fastest tier that has memory.
    pub fn top_tier(&self) -> Option<TierId> {
        self.top
    }

    /// Memory of the top tier in MiB.
    pub fn top_mib(&self) -> u64 {
        let top = self.nodes.iter().filter(|node| self.is_top(node.id));
        self.page_bytes.mib(top.map(|node| node.capacity_pages).sum())
    }

    /// SLIT distance between two nodes, where both are known.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u8> {
        let to = self.index(to)?;
        self.node(from)?.distances.get(to).copied()
    }

    /// Nodes with memory in a tier faster than that of `from`, nearest to `near` first: the places
    /// to promote to. The next faster tier is not preferred over the top tier: hot pages belong to
    /// the top tier.
    pub fn promotion_targets(&self, from: NodeId, near: NodeId) -> Vec<NodeId> {
        let Some(tier) = self.tier(from) else { return Vec::new() };
        let mut targets: Vec<&Node> =
            self.nodes.iter().filter(|n| n.capacity_pages > 0 && n.tier < tier).collect();
        targets.sort_by_key(|n| (n.tier, self.distance(near, n.id), n.id));
        targets.into_iter().map(|n| n.id).collect()
    }

    /// The first of [`Topology::promotion_targets`] for an access by a CPU of node `accessor`
    /// (where unknown: the node that holds the page), without building the list.
    pub fn promotion_target(&self, from: NodeId, accessor: Option<NodeId>) -> Option<NodeId> {
        let tier = self.tier(from)?;
        if let Some(near) = accessor
            && self.is_top(near)
            && Some(tier) > self.top
            && self.node(near).is_some_and(|n| n.capacity_pages > 0)
        {
            return Some(near);
        }
        let near = accessor.unwrap_or(from);
        self.nodes
            .iter()
            .filter(|n| n.capacity_pages > 0 && n.tier < tier)
            .min_by_key(|n| (n.tier, self.distance(near, n.id), n.id))
            .map(|n| n.id)
    }

    /// Nodes with memory in the next slower tier, nearest first: the places to demote to.
    pub fn demotion_targets(&self, from: NodeId) -> Vec<NodeId> {
        let Some(tier) = self.tier(from) else { return Vec::new() };
        let slower = self.nodes.iter().filter(|n| n.capacity_pages > 0 && n.tier > tier);
        let Some(next) = slower.clone().map(|n| n.tier).min() else { return Vec::new() };
        let mut targets: Vec<&Node> = slower.filter(|n| n.tier == next).collect();
        targets.sort_by_key(|n| (self.distance(from, n.id), n.id));
        targets.into_iter().map(|n| n.id).collect()
    }

    fn index(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |n| n.id).ok()
    }
}

/// The watermarks of a node, summed over its zones, in base pages, without the kernel's temporary
/// boost after mixing of page types (Linux mm/page_alloc.c, boost_watermark).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermarks {
    /// Direct reclaim below it.
    pub min_pages: u64,
    /// kswapd wakes below it.
    pub low_pages: u64,
    /// kswapd sleeps above it.
    pub high_pages: u64,
    /// In tiering mode kswapd sleeps above this one.
    pub promo_pages: u64,
}

/// The state of a node at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// The node.
    pub node: NodeId,
    /// Free base pages.
    pub free_pages: u64,
    /// Managed base pages, to which the watermarks refer.
    pub managed_pages: u64,
    /// Its watermarks.
    pub watermarks: Watermarks,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u16, tier: u8, distances: [u8; 3]) -> Node {
        Node {
            id: NodeId(id),
            tier: TierId(tier),
            cpus: Vec::new(),
            capacity_pages: 1,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: distances.to_vec(),
        }
    }

    fn three() -> Topology {
        Topology::new(vec![node(0, 0, [10, 32, 60]), node(1, 0, [32, 10, 50]), node(2, 1, [60, 50, 10])])
            .unwrap()
    }

    #[test]
    fn promotes_to_the_node_nearest_to_the_accessor() {
        let t = three();
        assert_eq!(t.promotion_targets(NodeId(2), NodeId(0)), [NodeId(0), NodeId(1)]);
        assert_eq!(t.promotion_targets(NodeId(2), NodeId(1)), [NodeId(1), NodeId(0)]);
        assert!(t.promotion_targets(NodeId(0), NodeId(1)).is_empty());
        for near in 0..3 {
            let first = t.promotion_targets(NodeId(2), NodeId(near)).first().copied();
            assert_eq!(t.promotion_target(NodeId(2), Some(NodeId(near))), first);
        }
        assert_eq!(t.promotion_target(NodeId(2), None), Some(NodeId(1)));
        assert_eq!(t.promotion_target(NodeId(0), Some(NodeId(1))), None);
        assert_eq!(t.promotion_target(NodeId(7), None), None);
    }

    #[test]
    fn knows_upper_and_lower_tiers() {
        let t = three();
        assert!(t.is_top(NodeId(0)) && t.is_top(NodeId(1)) && !t.is_top(NodeId(2)));
        assert!(t.is_lower(NodeId(2)) && !t.is_lower(NodeId(1)));
        assert!(!t.is_top(NodeId(9)) && !t.is_lower(NodeId(9)));
    }

    #[test]
    fn demotes_to_the_next_tier() {
        assert_eq!(three().demotion_targets(NodeId(1)), [NodeId(2)]);
        assert!(three().demotion_targets(NodeId(2)).is_empty());
    }

    #[test]
    fn refuses_defects() {
        assert_eq!(Topology::new(Vec::new()), Err(TopologyError::Empty));
        let twice = vec![node(0, 0, [10; 3]), node(0, 0, [10; 3])];
        assert_eq!(Topology::new(twice), Err(TopologyError::Duplicate(NodeId(0))));
        let short = vec![node(0, 0, [10; 3])];
        assert!(matches!(Topology::new(short), Err(TopologyError::Distances { found: 3, expected: 1, .. })));
    }
}
