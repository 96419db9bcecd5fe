//! Check at construction: can the record hold what this machine needs?
//!
//! A 1-byte record cannot name the accessing node. Where two top-tier nodes are far apart,
//! promoting to the wrong one is costly: the published 1-byte layout lost 27 % of Graph500 on such
//! a machine (S4, v7 cover letter).

use crate::config;
use crate::topology::Topology;
use crate::units::NodeId;

/// Two top-tier nodes that are far apart on a machine whose record cannot name the one that
/// accesses a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a 1-byte record cannot tell which node accesses a page, and the top-tier nodes {a} and {b} are far apart (SLIT \
     distance {distance}, far from {far}); set engine.record_node_per_block = true, or engine.record to a 4-byte layout"
)]
pub struct FarNodes {
    /// One node.
    pub a: NodeId,
    /// The other.
    pub b: NodeId,
    /// SLIT distance between them.
    pub distance: u8,
    /// `engine.far_distance`.
    pub far: u8,
}

/// Refuses a 1-byte record without the node beside it where two top-tier nodes with memory are far
/// apart.
///
/// # Errors
/// The first such pair.
pub fn check(config: &config::Engine, topology: &Topology) -> Result<(), FarNodes> {
    use config::RecordLayout::{Byte, PghotByte};
    if config.record_node_per_block || !matches!(config.record, Byte | PghotByte) {
        return Ok(());
    }
    let top =
        || topology.nodes.iter().filter(|n| n.capacity_pages > 0 && topology.is_top(n.id)).map(|n| n.id);
    for a in top() {
        for b in top().filter(|b| *b > a) {
            // Firmware may give the two directions different distances; the longer one decides.
            let distance = topology.distance(a, b).max(topology.distance(b, a)).unwrap_or(0);
            if distance >= config.far_distance {
                return Err(FarNodes { a, b, distance, far: config.far_distance });
            }
        }
    }
    Ok(())
}
