//! Where pages go whose evidence does not name the node that accesses them: the keys `target_nid`.

use crate::config::{Config, RecordLayout, Source};
use crate::topology::Topology;
use crate::units::NodeId;

/// A `target_nid` that is no node of the top tier with memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key} is {nid}, which is no node of the top tier with memory; give one of {top}, or leave it unset \
     for the nearest"
)]
pub struct NoTop {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub nid: u32,
    /// The nodes that may be given, in words.
    pub top: String,
}

/// The node that a `target_nid` names.
///
/// # Errors
/// It is not of the top tier, or has no memory.
pub fn top_node(topology: &Topology, key: &'static str, nid: Option<u32>) -> Result<Option<NodeId>, NoTop> {
    let Some(nid) = nid else { return Ok(None) };
    let all = topology.nodes.iter().filter(|n| n.capacity_pages > 0 && topology.is_top(n.id)).map(|n| n.id);
    if let Some(node) = all.clone().find(|id| u32::from(id.0) == nid) {
        return Ok(Some(node));
    }
    let top: Vec<String> = all.map(|id| id.0.to_string()).collect();
    Err(NoTop { key, nid, top: top.join(", ") })
}

/// See the module's description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferred {
    /// Where DAMON's regions go.
    damon: Option<NodeId>,
    /// Where all else goes.
    others: Option<NodeId>,
    /// Records keep no node, so everything goes there, as in S4's default mode.
    always: bool,
}

impl Preferred {
    /// As configured.
    ///
    /// # Errors
    /// A node that is not of the top tier.
    pub fn new(config: &Config, topology: &Topology) -> Result<Preferred, NoTop> {
        let engine = &config.engine;
        let byte = matches!(engine.record, RecordLayout::Byte | RecordLayout::PghotByte);
        Ok(Preferred {
            damon: top_node(topology, "source.damon.target_nid", config.source.damon.target_nid)?,
            others: top_node(topology, "engine.target_nid", engine.target_nid)?,
            always: byte && !engine.record_node_per_block,
        })
    }

    /// The node near which a page belongs, given the node that accesses it as far as the evidence
    /// says; `None` if nobody says.
    pub(super) fn near(&self, source: Source, accessor: Option<NodeId>) -> Option<NodeId> {
        let accessor = accessor.filter(|_| !self.always || self.others.is_none());
        accessor.or(self.damon.filter(|_| source == Source::Damon)).or(self.others)
    }
}
