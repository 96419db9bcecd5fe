//! Whether tiers, distances, and the latency and bandwidth that the firmware reports, agree.

use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::PageSize;

use crate::finding::{Finding, Ground, Kind};
use crate::topology::Discovered;

/// How much slower than the fastest node of its tier a node may be before it looks misplaced.
const SLOWER_PERCENT: u64 = 130;

/// The tiers by the firmware's figures, in the form of `[tiers] nodes`; `None` if they do not give
/// two tiers.
///
/// # Errors
/// Nodes without a latency from the firmware, so that slow nodes cannot be identified.
pub(super) fn suggested_map(topology: &Topology) -> Result<Option<String>, Vec<u32>> {
    let unknown: Vec<u32> =
        with_memory(topology).filter(|n| n.read_latency_ns.is_none()).map(|n| u32::from(n.id.0)).collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    let by_bandwidth = with_memory(topology).all(|n| n.read_bandwidth_mbps.is_some());
    let mut nodes: Vec<(f64, u16)> =
        with_memory(topology).map(|n| (slowness(n, by_bandwidth), n.id.0)).collect();
    nodes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut tiers: Vec<(f64, Vec<u16>)> = Vec::new();
    for (slowness, id) in nodes {
        match tiers.last_mut() {
            Some((fastest, tier)) if slowness * 100.0 <= *fastest * SLOWER_PERCENT as f64 => tier.push(id),
            _ => tiers.push((slowness, vec![id])),
        }
    }
    let told = |(_, mut ids): (f64, Vec<u16>)| {
        ids.sort_unstable();
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        format!("[{}]", ids.join(", "))
    };
    let several = tiers.len() > 1;
    let tiers: Vec<String> = tiers.into_iter().map(told).collect();
    Ok(several.then(|| format!("[{}]", tiers.join(", "))))
}

/// Grows with latency and falls with bandwidth, in proportion to each, as the kernel's abstract
/// distance does (Linux 6.12 mm/memory-tiers.c, mt_perf_to_adistance).
fn slowness(node: &Node, by_bandwidth: bool) -> f64 {
    let latency = f64::from(node.read_latency_ns.unwrap_or(0));
    let bandwidth = node.read_bandwidth_mbps.filter(|_| by_bandwidth).map_or(1.0, f64::from);
    latency / bandwidth
}

/// Contradictions between the figures.
pub(super) fn contradictions(found: &Discovered) -> Vec<Finding> {
    let topology = &found.topology;
    let mut findings = slow_in_its_tier(topology);
    for upper in with_memory(topology) {
        for lower in with_memory(topology).filter(|n| n.tier > upper.tier) {
            findings.extend(contradiction(topology, upper, lower));
        }
    }
    findings
}

/// A node that is reported to be slower than one of a lower tier. Latency takes precedence over
/// distance, which says nothing about the memory itself.
fn contradiction(topology: &Topology, upper: &Node, lower: &Node) -> Option<Finding> {
    let (id, what) = match (upper.read_latency_ns, lower.read_latency_ns) {
        (Some(of_upper), Some(of_lower)) if of_upper > of_lower && !has_more_bandwidth(upper, lower) => {
            (Kind::TopologyLatencyContradicts, format!("latency is {of_upper} ns, and {of_lower} ns"))
        }
        (Some(_), Some(_)) => return None,
        _ => {
            let (of_upper, of_lower) = (from_cpus(topology, upper)?, from_cpus(topology, lower)?);
            if of_upper <= of_lower {
                return None;
            }
            (Kind::TopologyDistanceContradicts, format!("distance from CPUs is {of_upper}, and {of_lower}"))
        }
    };
    let cause = format!(
        "{} is in tier {}, above {} in tier {}, and the firmware tells the opposite: its {what} for {}; pages may be \
         promoted to where they are slower",
        upper.id, upper.tier.0, lower.id, lower.tier.0, lower.id
    );
    Some(Finding::new(id, cause).on(&[upper.id, lower.id]).fix(Ground::OURS, format!(
        "if {0} is memory of a device, as a GPU's is, leave it out with [tiers] exclude = [{1}]; else say which tier \
         it belongs to with [tiers] nodes",
        upper.id, upper.id.0
    )))
}

fn has_more_bandwidth(a: &Node, b: &Node) -> bool {
    matches!((a.read_bandwidth_mbps, b.read_bandwidth_mbps), (Some(a), Some(b)) if a > b)
}

/// The distance of a node from the nearest node with CPUs.
fn from_cpus(topology: &Topology, node: &Node) -> Option<u8> {
    let cpus = topology.nodes.iter().filter(|n| !n.cpus.is_empty());
    cpus.filter_map(|n| topology.distance(n.id, node.id)).min()
}

/// A node whose latency says that it does not belong to its tier.
fn slow_in_its_tier(topology: &Topology) -> Vec<Finding> {
    let misplaced = |node: &&Node| {
        let fastest = with_memory(topology).filter(|n| n.tier == node.tier);
        match (node.read_latency_ns, fastest.filter_map(|n| n.read_latency_ns).min()) {
            (Some(own), Some(best)) => u64::from(own) * 100 > u64::from(best) * SLOWER_PERCENT,
            _ => false,
        }
    };
    let finding = |node: &Node| {
        let cause = format!(
            "{} is in tier {} with faster nodes: the firmware tells {} ns for it",
            node.id,
            node.tier.0,
            node.read_latency_ns.unwrap_or(0)
        );
        Finding::new(Kind::TopologySlowInTier, cause).on(&[node.id]).fix(
            Ground::OURS,
            "give it a tier of its own with [tiers] nodes in the configuration, if that is not meant",
        )
    };
    with_memory(topology).filter(misplaced).map(finding).collect()
}

/// Nodes that the configuration excludes.
pub(super) fn excluded(found: &Discovered) -> Option<Finding> {
    let nodes: Vec<u32> = found.excluded.iter().map(|n| u32::from(n.0)).collect();
    (!nodes.is_empty()).then(|| {
        let cause = format!(
            "left out by tiers.exclude: {}; thermocline moves nothing there or from there, the kernel still may",
            crate::lists::nodes_text(&nodes)
        );
        Finding::new(Kind::TopologyExcluded, cause)
    })
}

/// Base pages of a size that the engine does not support.
pub(super) fn page_size(found: &Discovered) -> Option<Finding> {
    let size = found.topology.page_bytes;
    if !found.page_size_known {
        let cause = "the size of base pages cannot be told from this machine's files; 4 KiB is assumed";
        return Some(Finding::new(Kind::TopologyPageSizeUnknown, cause));
    }
    (size != PageSize::OF_ENGINE).then(|| {
        let cause = format!(
            "this kernel has base pages of {} KiB, and thermocline moves pages of {} KiB alone: `run` refuses to start",
            size.kib(1),
            PageSize::OF_ENGINE.kib(1)
        );
        Finding::new(Kind::TopologyPageSize, cause)
            .fix(Ground::OURS, "boot a kernel with base pages of 4 KiB, if the distribution has one")
    })
}

fn with_memory(topology: &Topology) -> impl Iterator<Item = &Node> {
    topology.nodes.iter().filter(|n| n.capacity_pages > 0)
}
