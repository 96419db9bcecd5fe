//! Check: where to? Every candidate gets a route: the nodes that it may go to, best first.

use serde::Serialize;

use crate::admission::preferred::Preferred;
use crate::candidate::Candidate;
use crate::moves::Direction;
use crate::refusal::RefusalReason;
use crate::topology::Topology;
use crate::units::NodeId;

/// Names a list of target nodes, best first; see [`Targets::nodes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Route(u32);

/// All routes of a machine: to each node alone, to the top tier by distance from each node, and
/// downwards from each node.
#[derive(Debug)]
pub struct Targets {
    routes: Vec<Vec<NodeId>>,
    preferred: Preferred,
}

impl Targets {
    /// The routes of a topology.
    pub fn new(topology: &Topology, preferred: Preferred) -> Targets {
        let ids = || topology.nodes.iter().map(|n| n.id);
        let alone = ids().map(|id| vec![id]);
        // Hot pages belong to the top tier: if its nodes are full, waiting costs less than moving
        // twice.
        let upwards = ids().map(|near| top_tier_by_distance(topology, near));
        let downwards = ids().map(|from| topology.demotion_targets(from));
        Targets { routes: alone.chain(upwards).chain(downwards).collect(), preferred }
    }

    /// The nodes of a route, best first.
    pub fn nodes(&self, route: Route) -> &[NodeId] {
        self.routes.get(route.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The route of a candidate: to the node that its rule names; else, upwards, to the top-tier
    /// nodes in order of distance from the accessor (if the accessor is unknown, from the node that
    /// `target_nid` names, or from the page's); downwards, to the next tier's; for balance, to the
    /// accessor.
    pub(super) fn check(&self, topology: &Topology, candidate: &Candidate) -> Result<Route, RefusalReason> {
        // A node without memory, such as one that was taken offline, has no pages to move.
        topology.tier(candidate.from).ok_or(RefusalReason::NoTarget)?;
        let from = index(topology, candidate.from)?;
        let nodes = self.routes.len() / 3;
        let route = match (candidate.direction, candidate.target) {
            (Direction::Promote, _) if topology.is_top(candidate.from) => {
                return Err(RefusalReason::AlreadyTop);
            }
            (Direction::Promote, None) => {
                let near = self.preferred.near(candidate.source, candidate.accessor);
                let near = near.and_then(|near| index(topology, near).ok()).unwrap_or(from);
                nodes + near
            }
            (Direction::Demote, None) => 2 * nodes + from,
            (Direction::Balance, None) => index_in_direction(topology, candidate, candidate.accessor)?,
            (_, target) => index_in_direction(topology, candidate, target)?,
        };
        // The numbers of nodes are 16 bits wide, so three routes a node fit.
        let route = Route(route as u32);
        if self.nodes(route).is_empty() { Err(RefusalReason::NoTarget) } else { Ok(route) }
    }
}

fn index(topology: &Topology, id: NodeId) -> Result<usize, RefusalReason> {
    topology.nodes.binary_search_by_key(&id, |n| n.id).map_err(|_| RefusalReason::NoTarget)
}

fn top_tier_by_distance(topology: &Topology, near: NodeId) -> Vec<NodeId> {
    let top = |id: &NodeId| topology.node(*id).is_some_and(|n| n.capacity_pages > 0) && topology.is_top(*id);
    let mut nodes: Vec<NodeId> = topology.nodes.iter().map(|n| n.id).filter(top).collect();
    nodes.sort_by_key(|id| (topology.distance(near, *id), *id));
    nodes
}

/// The index of a node that lies in the candidate's direction and has memory.
fn index_in_direction(
    topology: &Topology,
    candidate: &Candidate,
    to: Option<NodeId>,
) -> Result<usize, RefusalReason> {
    let to = index(topology, to.ok_or(RefusalReason::NoTarget)?)?;
    let there = &topology.nodes[to];
    let here = topology.tier(candidate.from).ok_or(RefusalReason::NoTarget)?;
    let way = match candidate.direction {
        Direction::Promote => there.tier < here,
        Direction::Demote => there.tier > here,
        Direction::Balance => there.tier == here && there.id != candidate.from,
    };
    if way && there.capacity_pages > 0 { Ok(to) } else { Err(RefusalReason::NoTarget) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Detail};
    use crate::candidate::Reason;
    use crate::topology::Node;
    use crate::units::{Nanos, TierId};

    /// Two top nodes, a middle and a slow tier; node 4 has CPUs next to node 1 and no memory.
    fn topology() -> Topology {
        let node = |id: u16, tier, capacity_pages, distances: [u8; 5]| Node {
            id: NodeId(id),
            tier: TierId(tier),
            cpus: Vec::new(),
            capacity_pages,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: distances.to_vec(),
        };
        Topology::new(vec![
            node(0, 0, 9, [10, 20, 40, 50, 20]),
            node(1, 0, 9, [20, 10, 40, 50, 12]),
            node(2, 1, 9, [40, 40, 10, 50, 40]),
            node(3, 2, 9, [50, 50, 50, 10, 50]),
            node(4, 0, 0, [20, 12, 40, 50, 10]),
        ])
        .unwrap()
    }

    /// An access to a page of node 3 that names no accessor.
    fn unseen() -> Access {
        Access {
            time: Nanos(0),
            pfn: None,
            page: None,
            order: 0,
            node: NodeId(3),
            accessor: None,
            detail: Detail::Count { count: 1, gap: None },
        }
    }

    fn nodes(
        direction: Direction,
        from: u16,
        accessor: Option<u16>,
        target: Option<u16>,
    ) -> Result<Vec<u16>, RefusalReason> {
        let access = Access { node: NodeId(from), accessor: accessor.map(NodeId), ..unseen() };
        let candidate = Candidate {
            direction,
            target: target.map(NodeId),
            ..Candidate::promotion(&access, 1, Reason::Frequent, Nanos(1))
        };
        let topology = topology();
        let targets = Targets::new(&topology, Preferred::default());
        let route = targets.check(&topology, &candidate)?;
        Ok(targets.nodes(route).iter().map(|n| n.0).collect())
    }

    #[test]
    fn upwards_means_the_top_tier_nearest_to_the_accessor_first() {
        use Direction::Promote;
        assert_eq!(nodes(Promote, 3, Some(0), None), Ok(vec![0, 1]));
        assert_eq!(nodes(Promote, 3, Some(1), None), Ok(vec![1, 0]));
        assert_eq!(nodes(Promote, 3, Some(4), None), Ok(vec![1, 0]), "a node without memory accesses it");
        assert_eq!(nodes(Promote, 2, None, None), Ok(vec![0, 1]));
        assert_eq!(nodes(Promote, 3, Some(77), None), Ok(vec![0, 1]), "nobody knows node 77");
        assert_eq!(nodes(Promote, 3, Some(0), Some(2)), Ok(vec![2]), "the rule may name a middle tier");
        assert_eq!(nodes(Promote, 2, Some(0), Some(3)), Err(RefusalReason::NoTarget), "that is downwards");
        assert_eq!(nodes(Promote, 3, Some(0), Some(4)), Err(RefusalReason::NoTarget), "no memory there");
        assert_eq!(nodes(Promote, 1, Some(0), None), Err(RefusalReason::AlreadyTop));
        assert_eq!(nodes(Promote, 77, Some(0), None), Err(RefusalReason::NoTarget));
        assert_eq!(nodes(Promote, 4, None, None), Err(RefusalReason::NoTarget), "no page is there");
    }

    #[test]
    fn where_nobody_says_who_accesses_a_page_target_nid_decides() {
        use crate::config::{Config, RecordLayout, Source};
        let topology = topology();
        let first = |config: &Config, source, accessor: Option<u16>| {
            let targets = Targets::new(&topology, Preferred::new(config, &topology).unwrap());
            let access = Access { accessor: accessor.map(NodeId), ..unseen() };
            let candidate =
                Candidate { source, ..Candidate::promotion(&access, 1, Reason::HotRegion, Nanos(1)) };
            targets.nodes(targets.check(&topology, &candidate).unwrap())[0].0
        };
        let mut config = Config::default();
        let of_all = |config: &Config| Source::all().map(|s| first(config, s, None)).collect::<Vec<_>>();
        assert_eq!(of_all(&config), [0, 0, 0, 0], "nearest to the page's node");
        config.source.damon.target_nid = Some(1);
        assert_eq!(of_all(&config), [0, 0, 1, 0]);
        assert_eq!(first(&config, Source::Damon, Some(0)), 0, "who is known to access it decides");
        config.engine.target_nid = Some(1);
        config.source.damon.target_nid = Some(0);
        assert_eq!(of_all(&config), [1, 1, 0, 1]);
        assert_eq!(first(&config, Source::HintFault, Some(0)), 0);
        // A record without the node: as in S4's default mode the fault's node is ignored.
        config.engine.record = RecordLayout::PghotByte;
        assert_eq!(first(&config, Source::HintFault, Some(0)), 0, "the node is kept beside the record");
        config.engine.record_node_per_block = false;
        assert_eq!(first(&config, Source::HintFault, Some(0)), 1);
        for (nid, what) in [(3, "a lower tier"), (4, "no memory"), (9, "no node")] {
            config.engine.target_nid = Some(nid);
            let error = Preferred::new(&config, &topology).unwrap_err().to_string();
            assert!(
                error.contains("engine.target_nid is") && error.contains("one of 0, 1"),
                "{what}: {error}"
            );
        }
    }

    #[test]
    fn downwards_means_the_next_tier_and_balance_the_accessor() {
        use Direction::{Balance, Demote};
        assert_eq!(nodes(Demote, 0, None, None), Ok(vec![2]));
        assert_eq!(nodes(Demote, 0, None, Some(3)), Ok(vec![3]));
        assert_eq!(nodes(Demote, 3, None, None), Err(RefusalReason::NoTarget));
        assert_eq!(nodes(Balance, 0, Some(1), None), Ok(vec![1]));
        assert_eq!(nodes(Balance, 0, Some(0), None), Err(RefusalReason::NoTarget));
        assert_eq!(nodes(Balance, 0, Some(2), None), Err(RefusalReason::NoTarget));
        assert_eq!(nodes(Balance, 0, None, None), Err(RefusalReason::NoTarget));
    }
}
