//! Nodes, CPUs, distances and tiers as sysfs shows them.
//!
//! The kernel lists its memory tiers below `devices/virtual/memory_tiering`, the fastest with the
//! lowest number (Linux 6.12 mm/memory-tiers.c). Kernels before 6.1 have none, and firmware without
//! HMAT leaves all nodes in one. A tier map in the configuration overrides where pages are
//! *placed*; what the kernel *scans* is still determined by [`Discovered::kernel_top`].

mod initiators;
mod page_size;
mod pfn_map;
mod watcher;

use std::path::{Path, PathBuf};

use serde::Serialize;
use thermocline_core::config::{TierMap, TierMapError};
use thermocline_core::topology::{Node, Topology, TopologyError};
use thermocline_core::units::{NodeId, PageSize, TierId};

use crate::lists::parse_list;
use crate::root::{KernelFileError, Root, list_optional, read_optional};

pub use page_size::page_size;
pub use pfn_map::{PfnMap, PfnRange};
pub use watcher::{Change, Watcher};

/// SLIT distance of a node to itself (ACPI 6.5, 5.2.17).
const DISTANCE_LOCAL: u8 = 10;

/// SLIT distance between nodes if the firmware reports none (Linux include/linux/topology.h,
/// REMOTE_DISTANCE).
const DISTANCE_REMOTE: u8 = 20;

/// Where the tiers of a topology come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TierOrigin {
    /// The kernel's memory tiers.
    Kernel,
    /// `[tiers] nodes` of the configuration.
    TierMap,
    /// The kernel lists no tiers: all nodes are assumed to be in one.
    Assumed,
}

/// One of the kernel's memory tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelTier {
    /// N of `memory_tierN`; lower is faster.
    pub number: u32,
    /// Its nodes, ascending.
    pub nodes: Vec<NodeId>,
}

/// The machine's memory as shown by sysfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Discovered {
    /// Nodes with memory or CPUs.
    pub topology: Topology,
    /// Where its tiers come from.
    pub origin: TierOrigin,
    /// The kernel's own tiers, fastest first; empty if it has none.
    pub kernel_tiers: Vec<KernelTier>,
    /// Nodes with memory that the kernel counts as top tier: it neither scans them in tiering mode
    /// nor promotes from them. A tier with CPUs and every faster one is top tier (Linux 6.12
    /// mm/memory-tiers.c, establish_demotion_targets).
    pub kernel_top: Vec<NodeId>,
    /// Nodes with memory that `tiers.exclude` leaves out.
    pub excluded: Vec<NodeId>,
    /// Whether the page size is known; if not, 4 KiB is assumed.
    pub page_size_known: bool,
}

/// Why the topology could not be found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// A file could not be used.
    #[error(transparent)]
    File(#[from] KernelFileError),
    /// The nodes do not make a topology.
    #[error("the nodes below {} make no topology: {cause}", path.display())]
    Topology {
        /// The folder.
        path: PathBuf,
        /// The defect.
        cause: TopologyError,
    },
    /// The tier map contradicts itself.
    #[error(transparent)]
    Map(#[from] TierMapError),
    /// The tier map names a node that cannot exist here.
    #[error(
        "tiers.nodes names {node}, which this machine does not have; it has nodes {possible}, correct or remove the entry"
    )]
    MapUnknown {
        /// The node.
        node: NodeId,
        /// The possible nodes as a list.
        possible: String,
    },
    /// The tier map leaves out a node with memory.
    #[error("tiers.nodes does not name {0}, which has memory; add it to the tier that it belongs to")]
    MapMissing(NodeId),
    /// `tiers.exclude` names a node that cannot exist here.
    #[error(
        "tiers.exclude names {node}, which this machine does not have; it has nodes {possible}, correct or remove the entry"
    )]
    ExcludeUnknown {
        /// The node.
        node: NodeId,
        /// The possible nodes as a list.
        possible: String,
    },
}

/// A node as sysfs shows it, before tiers are known.
struct RawNode {
    id: NodeId,
    cpus: Vec<u32>,
    capacity_pages: u64,
    read_latency_ns: Option<u32>,
    read_bandwidth_mbps: Option<u32>,
    /// To every online node, in their order.
    distances: Vec<u8>,
}

/// The node of each CPU, by CPU number.
pub fn cpu_nodes(topology: &Topology) -> Vec<NodeId> {
    let last = topology.nodes.iter().flat_map(|n| n.cpus.iter()).max().map_or(0, |&c| c as usize + 1);
    // A CPU that sysfs does not list belongs to no node with memory; 0 is what the kernel assumes
    // for it.
    let mut nodes = vec![NodeId(0); last];
    for node in &topology.nodes {
        for &cpu in &node.cpus {
            nodes[cpu as usize] = node.id;
        }
    }
    nodes
}

/// Reads the machine's nodes and tiers. An empty tier map takes the kernel's tiers.
///
/// # Errors
/// sysfs cannot be read, or the tier map does not fit the machine.
pub fn discover(root: &Root, map: &TierMap) -> Result<Discovered, DiscoverError> {
    map.check_alone()?;
    let folder = root.sys.join("devices/system/node");
    let online = match read_optional(&folder.join("online"))? {
        Some(text) => node_list(&folder.join("online"), &text)?,
        // A kernel without NUMA has one node and no folder for it.
        None => vec![NodeId(0)],
    };
    let possible = match read_optional(&folder.join("possible"))? {
        Some(text) => node_list(&folder.join("possible"), &text)?,
        None => online.clone(),
    };
    let known_size = page_size(root)?;
    let size = known_size.unwrap_or_default();
    let ordinary = ordinary_memory(&folder)?;
    let mut raw = Vec::new();
    for &id in &online {
        let mut node = raw_node(root, &folder, id, &online, size)?;
        if ordinary.as_ref().is_some_and(|nodes| !nodes.contains(&id)) {
            node.capacity_pages = 0;
        }
        raw.push(node);
    }
    let kernel_tiers = kernel_tiers(root)?;
    let excluded = exclude(map, &mut raw, &possible)?;
    let kernel_top = kernel_top(&kernel_tiers, &raw);
    let (origin, tiers) = tiers(map, &kernel_tiers, &raw, &possible)?;
    let kept: Vec<bool> = raw.iter().map(|n| n.capacity_pages > 0 || !n.cpus.is_empty()).collect();
    let nodes = raw
        .into_iter()
        .zip(tiers)
        .zip(&kept)
        .filter(|(_, kept)| **kept)
        .map(|((node, tier), _)| Node {
            id: node.id,
            tier,
            cpus: node.cpus,
            capacity_pages: node.capacity_pages,
            read_latency_ns: node.read_latency_ns,
            read_bandwidth_mbps: node.read_bandwidth_mbps,
            distances: node.distances.iter().zip(&kept).filter(|(_, k)| **k).map(|(d, _)| *d).collect(),
        })
        .collect();
    let topology =
        Topology::new(nodes).map_err(|cause| DiscoverError::Topology { path: folder.clone(), cause })?;
    Ok(Discovered {
        topology: topology.with_page_size(size),
        origin,
        kernel_tiers,
        kernel_top,
        excluded,
        page_size_known: known_size.is_some(),
    })
}

/// The nodes with ordinary memory; `None` if the kernel does not list them. Nodes with only device
/// memory (ZONE_DEVICE) and nodes reserved by a driver are not among them.
fn ordinary_memory(folder: &Path) -> Result<Option<Vec<NodeId>>, KernelFileError> {
    let path = folder.join("has_memory");
    read_optional(&path)?.map(|text| node_list(&path, &text)).transpose()
}

/// Removes the memory of excluded nodes from `raw`, and returns which of them have some.
fn exclude(map: &TierMap, raw: &mut [RawNode], possible: &[NodeId]) -> Result<Vec<NodeId>, DiscoverError> {
    let named: Vec<NodeId> = map.exclude.iter().map(|&n| NodeId(n)).collect();
    if let Some(&node) = named.iter().find(|n| !possible.contains(n)) {
        return Err(DiscoverError::ExcludeUnknown { node, possible: list(possible) });
    }
    let left_out = raw.iter_mut().filter(|n| n.capacity_pages > 0 && named.contains(&n.id));
    Ok(left_out
        .map(|node| {
            node.capacity_pages = 0;
            node.id
        })
        .collect())
}

fn list(nodes: &[NodeId]) -> String {
    let numbers: Vec<u32> = nodes.iter().map(|n| u32::from(n.0)).collect();
    crate::lists::format_list(&numbers)
}

fn node_list(path: &Path, text: &str) -> Result<Vec<NodeId>, KernelFileError> {
    let numbers = parse_list(text)
        .ok_or_else(|| KernelFileError::malformed(path, format!("{:?} is no list of nodes", text.trim())))?;
    // The list parser bounds its numbers by 2^16.
    Ok(numbers.into_iter().filter_map(|n| u16::try_from(n).ok()).map(NodeId).collect())
}

fn raw_node(
    root: &Root,
    folder: &Path,
    id: NodeId,
    online: &[NodeId],
    size: PageSize,
) -> Result<RawNode, KernelFileError> {
    let node = folder.join(format!("node{}", id.0));
    let cpulist = match read_optional(&node.join("cpulist"))? {
        Some(text) => Some((node.join("cpulist"), text)),
        None => {
            let path = root.sys.join("devices/system/cpu/online");
            read_optional(&path)?.map(|text| (path, text))
        }
    };
    let cpus = match cpulist {
        Some((path, text)) => parse_list(&text).ok_or_else(|| {
            KernelFileError::malformed(&path, format!("{:?} is no list of CPUs", text.trim()))
        })?,
        None => Vec::new(),
    };
    let meminfo = match read_optional(&node.join("meminfo"))? {
        Some(text) => Some(text),
        None => read_optional(&root.proc.join("meminfo"))?,
    };
    let distances = read_optional(&node.join("distance"))?;
    let row = distances.as_deref().and_then(|text| distance_row(text, online.len()));
    Ok(RawNode {
        id,
        cpus,
        capacity_pages: size.pages_in_kib(meminfo.as_deref().and_then(page_size::mem_total_kib).unwrap_or(0)),
        read_latency_ns: initiators::value(folder, id.0, "read_latency")?,
        read_bandwidth_mbps: initiators::value(folder, id.0, "read_bandwidth")?,
        distances: row.unwrap_or_else(|| {
            online.iter().map(|&o| if o == id { DISTANCE_LOCAL } else { DISTANCE_REMOTE }).collect()
        }),
    })
}

/// A row of SLIT distances; `None` unless it has one for each online node.
fn distance_row(text: &str, nodes: usize) -> Option<Vec<u8>> {
    let row: Option<Vec<u8>> = text.split_ascii_whitespace().map(|d| d.parse().ok()).collect();
    row.filter(|row| row.len() == nodes)
}

/// The kernel's tiers with nodes, fastest first.
fn kernel_tiers(root: &Root) -> Result<Vec<KernelTier>, KernelFileError> {
    let folder = root.sys.join("devices/virtual/memory_tiering");
    let mut tiers = Vec::new();
    for name in list_optional(&folder)?.unwrap_or_default() {
        let Some(number) = name.strip_prefix("memory_tier").and_then(|n| n.parse().ok()) else { continue };
        let path = folder.join(&name).join("nodelist");
        let Some(text) = read_optional(&path)? else { continue };
        let nodes = node_list(&path, &text)?;
        if !nodes.is_empty() {
            tiers.push(KernelTier { number, nodes });
        }
    }
    tiers.sort_by_key(|t| t.number);
    Ok(tiers)
}

fn kernel_top(tiers: &[KernelTier], raw: &[RawNode]) -> Vec<NodeId> {
    let has_cpus = |id: &NodeId| raw.iter().any(|n| n.id == *id && !n.cpus.is_empty());
    let slowest_top = tiers.iter().rposition(|t| t.nodes.iter().any(has_cpus));
    let below = |id: NodeId| {
        let tier = tiers.iter().position(|t| t.nodes.contains(&id));
        matches!((tier, slowest_top), (Some(tier), Some(top)) if tier > top)
    };
    raw.iter().filter(|n| n.capacity_pages > 0 && !below(n.id)).map(|n| n.id).collect()
}

/// The tier of each raw node.
fn tiers(
    map: &TierMap,
    kernel: &[KernelTier],
    raw: &[RawNode],
    possible: &[NodeId],
) -> Result<(TierOrigin, Vec<TierId>), DiscoverError> {
    if map.nodes.iter().all(|tier| tier.is_empty()) {
        let origin = if kernel.is_empty() { TierOrigin::Assumed } else { TierOrigin::Kernel };
        // A node in no tier counts as top tier in the kernel (node_is_toptier), and so here.
        let tier_of = |id| kernel.iter().position(|t| t.nodes.contains(&id)).unwrap_or(0);
        return Ok((origin, raw.iter().map(|n| tier_id(tier_of(n.id))).collect()));
    }
    let map: Vec<Vec<NodeId>> = map
        .nodes
        .iter()
        .filter(|tier| !tier.is_empty())
        .map(|tier| tier.iter().map(|&n| NodeId(n)).collect())
        .collect();
    // A node that is possible and not online may come later.
    if let Some(&node) = map.iter().flatten().find(|n| !possible.contains(n)) {
        return Err(DiscoverError::MapUnknown { node, possible: list(possible) });
    }
    let mut tiers = Vec::new();
    for node in raw {
        match map.iter().position(|tier| tier.contains(&node.id)) {
            Some(tier) => tiers.push(tier_id(tier)),
            None if node.capacity_pages == 0 => tiers.push(TierId(0)),
            None => return Err(DiscoverError::MapMissing(node.id)),
        }
    }
    Ok((TierOrigin::TierMap, tiers))
}

/// The kernel has at most a few dozen tiers, the map is checked; a larger index shares the last
/// number.
fn tier_id(index: usize) -> TierId {
    TierId(u8::try_from(index).unwrap_or(u8::MAX))
}

#[cfg(test)]
mod tests;
