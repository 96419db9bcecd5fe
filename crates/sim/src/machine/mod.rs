//! The machine: nodes in tiers, the cost of accesses, and the cost of the kernel's work.
//!
//! [`MachineSpec`] is the content of a TOML file; [`Machine`] is the simulated machine: nodes
//! sorted from the fastest tier to the slowest, so that "is in the top tier" is a comparison of
//! indices. Presets are in `presets/`.

pub(crate) mod bandwidth;
mod doctor;
mod role;
mod spec;
mod watermarks;

pub use bandwidth::Bandwidth;
pub use doctor::Doctor;
pub use role::{NodeName, Role};
pub use spec::{Costs, Llc, MachineSpec, NodeSpec, PRESETS, preset};
pub use watermarks::watermarks;

use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
use thermocline_core::units::{NodeId, TierId};

use crate::spec::SpecError;

/// Nodes that can be simulated: a page stores its node in six bits, one value of which is
/// "nowhere".
pub const NODES_MAX: usize = 63;

/// Cost of moving a base page of a huge page, relative to moving it alone: only the copy remains,
/// since unmapping and flushing happen once. Assumed.
pub(crate) const HUGE_SHARE: f64 = 0.1;

/// A node, by its index in order of tiers.
pub type NodeIndex = u8;

/// A node of the simulated machine.
#[derive(Clone, Debug)]
pub struct SimNode {
    /// Its number, as the kernel would call it.
    pub id: NodeId,
    /// Its tier.
    pub tier: TierId,
    /// Whether it has CPUs.
    pub has_cpus: bool,
    /// Usable base pages.
    pub pages: u64,
    /// Its watermarks.
    pub watermarks: Watermarks,
    /// Nodes that its pages are demoted to, nearest first; empty in the last tier.
    pub demotion_targets: Vec<NodeIndex>,
    /// Idle latency of a load in ns, by the index of the accessing node.
    pub read_ns: Vec<f64>,
    /// Idle cost of a store for its thread in ns, by the index of the accessing node.
    pub write_ns: Vec<f64>,
    /// Bytes per second, if limited.
    pub bandwidth: Option<f64>,
}

/// The simulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The specification.
    pub spec: MachineSpec,
    /// Fastest tier first, then by number.
    pub nodes: Vec<SimNode>,
    /// How many of them are in the top tier.
    pub top: NodeIndex,
    /// How many of them the kernel treats as top tier: every tier down to the slowest that has
    /// CPUs. In tiering mode it neither scans them nor promotes from them (Linux 6.12
    /// `mm/memory-tiers.c`, `node_is_toptier`).
    pub kernel_top: NodeIndex,
    /// The same for the engine.
    pub topology: Topology,
}

impl Machine {
    /// The machine that a specification describes.
    ///
    /// # Errors
    /// A value that no machine can have; the place is the specification's key.
    pub fn new(spec: &MachineSpec) -> Result<Machine, SpecError> {
        spec.check()?;
        let mut order: Vec<usize> = (0..spec.node.len()).collect();
        order.sort_by_key(|i| (spec.node[*i].tier, spec.node[*i].id));
        let total: u64 = spec.node.iter().map(|n| n.memory.pages()).sum();
        let topology = topology(spec)?;
        let index_of =
            |id: NodeId| order.iter().position(|i| spec.node[*i].id == id.0).unwrap_or(0) as NodeIndex;
        let nodes: Vec<SimNode> = order
            .iter()
            .map(|i| {
                let node = &spec.node[*i];
                let by_index = |all: &[f64]| order.iter().map(|from| all[*from]).collect::<Vec<f64>>();
                SimNode {
                    id: NodeId(node.id),
                    tier: TierId(node.tier),
                    has_cpus: node.cpus > 0,
                    pages: node.memory.pages(),
                    watermarks: watermarks(spec, node.memory.pages(), total),
                    demotion_targets: topology
                        .demotion_targets(NodeId(node.id))
                        .into_iter()
                        .map(index_of)
                        .collect(),
                    read_ns: by_index(&node.read_ns),
                    write_ns: by_index(node.write_ns.as_ref().unwrap_or(&node.read_ns)),
                    bandwidth: node.bandwidth_mbps.map(|mbps| mbps * 1e6),
                }
            })
            .collect();
        let top_tier = nodes.iter().filter(|n| n.pages > 0).map(|n| n.tier).min();
        let top = nodes.iter().filter(|n| Some(n.tier) == top_tier).count() as NodeIndex;
        let slowest = nodes.iter().filter(|n| n.has_cpus).map(|n| n.tier).max();
        let kernel_top = nodes.iter().filter(|n| Some(n.tier) <= slowest).count() as NodeIndex;
        Ok(Machine { spec: spec.clone(), nodes, top, kernel_top, topology })
    }

    /// The index of the node with this number.
    pub fn index(&self, id: u16) -> Option<NodeIndex> {
        self.nodes.iter().position(|n| n.id.0 == id).map(|i| i as NodeIndex)
    }

    /// Whether a node is in the top tier.
    #[inline(always)]
    pub fn is_top(&self, node: NodeIndex) -> bool {
        node < self.top
    }

    /// Whether the kernel scans a node's pages and promotes them in tiering mode.
    #[inline(always)]
    pub fn is_kernel_lower(&self, node: NodeIndex) -> bool {
        node >= self.kernel_top
    }

    /// The state that the kernel would report for a node with `free_pages` free.
    pub fn state(&self, node: NodeIndex, free_pages: u64) -> NodeState {
        let n = &self.nodes[usize::from(node)];
        NodeState { node: n.id, free_pages, managed_pages: n.pages, watermarks: n.watermarks }
    }
}

fn topology(spec: &MachineSpec) -> Result<Topology, SpecError> {
    let nodes = spec
        .node
        .iter()
        .scan(0, |first, n| {
            let cpus = (*first..*first + n.cpus).collect();
            *first += n.cpus;
            Some(Node {
                id: NodeId(n.id),
                tier: TierId(n.tier),
                cpus,
                capacity_pages: n.memory.pages(),
                read_latency_ns: None,
                read_bandwidth_mbps: None,
                distances: n.distances.clone(),
            })
        })
        .collect();
    Topology::new(nodes).map_err(|e| SpecError::new("node", e.to_string(), "list the nodes by ascending id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_machine() {
        for (name, _) in PRESETS {
            let machine = Machine::new(&preset(name).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(machine.top > 0 && usize::from(machine.top) < machine.nodes.len(), "{name}");
            for node in &machine.nodes[..usize::from(machine.top)] {
                assert!(!node.demotion_targets.is_empty(), "{name}: {:?} has nowhere to demote to", node.id);
            }
        }
    }

    #[test]
    fn bergamo_is_as_published() {
        let machine = Machine::new(&preset("bergamo-cxl").unwrap()).unwrap();
        let mib: Vec<u64> = machine.nodes.iter().map(|n| n.pages / 256).collect();
        assert_eq!(mib, [128_054, 128_880, 129_024]);
        assert_eq!(machine.topology.distance(NodeId(0), NodeId(2)), Some(60));
        assert_eq!(machine.nodes[1].demotion_targets, [2]);
    }

    #[test]
    fn the_kernel_counts_tiers_above_its_cpus_as_top() {
        let machine = Machine::new(&preset("3tier").unwrap()).unwrap();
        let ids: Vec<u16> = machine.nodes.iter().map(|n| n.id.0).collect();
        assert_eq!((ids, machine.top, machine.kernel_top), (vec![1, 0, 2], 1, 2));
        assert_eq!(machine.nodes[0].demotion_targets, [1]);
        assert_eq!(machine.nodes[1].demotion_targets, [2]);
    }

    #[test]
    fn defects_are_refused_with_their_place() {
        let change = |edit: fn(&mut MachineSpec)| {
            let mut spec = preset("bergamo-cxl").unwrap();
            edit(&mut spec);
            Machine::new(&spec).unwrap_err().to_string()
        };
        assert!(change(|s| s.node.clear()).starts_with("node: "));
        assert!(change(|s| s.node[1].read_ns[1] = -1.0).starts_with("node[1].read_ns"));
        assert!(change(|s| s.node[1].read_ns.clear()).starts_with("node[1].read_ns"));
        assert!(change(|s| s.node[2].distances.clear()).starts_with("node"));
        assert!(change(|s| s.hz = 0).starts_with("hz"));
        assert!(change(|s| s.node.iter_mut().for_each(|n| n.cpus = 0)).starts_with("node"));
    }
}
