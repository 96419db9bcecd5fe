//! Where the nodes' memory lies in the guest.

use thermocline_core::units::{NodeId, PAGES_PER_MIB, Pfn};

use crate::Machine;

/// QEMU's q35 keeps 2 GiB of RAM below the PCI hole when there is 2816 MiB or more, else all of it
/// (QEMU 7.2 hw/i386/pc_q35.c); the rest starts at 4 GiB.
const SPLIT_FROM_MIB: u64 = 2816;
const SPLIT_AT_MIB: u64 = 2048;
const ABOVE_4G_MIB: u64 = 4096;

/// Maximum number of nodes of the plugin.
const NODES_MAX: usize = 16;
/// Maximum RAM of the plugin, in MiB.
const RAM_MIB_MAX: u64 = 128 * 1024;

/// Sizes that the plugin does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No node, or more than sixteen.
    #[error("{0} nodes: the plugin tells 1 to 16 apart")]
    Nodes(usize),
    /// More RAM than the plugin supports.
    #[error("{0} MiB of RAM: the plugin numbers at most 131072 MiB")]
    Ram(u64),
}

/// The guest-physical layout of a q35 machine whose nodes' memory follows one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    mib: Vec<u64>,
}

impl Layout {
    /// The layout for nodes of these sizes in MiB, in node order.
    ///
    /// # Errors
    /// [`LayoutError`] beyond the plugin's limits.
    pub fn new(mib: &[u64]) -> Result<Layout, LayoutError> {
        if mib.is_empty() || mib.len() > NODES_MAX {
            return Err(LayoutError::Nodes(mib.len()));
        }
        let total = mib.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
        if total > RAM_MIB_MAX {
            return Err(LayoutError::Ram(total));
        }
        Ok(Layout { mib: mib.to_vec() })
    }

    /// The layout of a guest.
    ///
    /// # Errors
    /// [`LayoutError`] beyond the plugin's limits.
    pub fn of_machine(machine: &Machine) -> Result<Layout, LayoutError> {
        let mib: Vec<u64> = machine.nodes.iter().map(|node| node.bytes >> 20).collect();
        Layout::new(&mib)
    }

    /// The plugin's argument, `nodes=1024:1024:2048`.
    pub fn argument(&self) -> String {
        let sizes: Vec<String> = self.mib.iter().map(u64::to_string).collect();
        format!("nodes={}", sizes.join(":"))
    }

    /// The node whose memory holds this page frame; `None` in the hole and past the end.
    pub fn node(&self, pfn: Pfn) -> Option<NodeId> {
        let total: u64 = self.mib.iter().sum();
        let low = if total >= SPLIT_FROM_MIB { SPLIT_AT_MIB } else { total };
        let page = if pfn.0 < low * PAGES_PER_MIB {
            pfn.0
        } else {
            pfn.0.checked_sub(ABOVE_4G_MIB * PAGES_PER_MIB)? + low * PAGES_PER_MIB
        };
        let mut end = 0;
        let node = self.mib.iter().position(|&size| {
            end += size * PAGES_PER_MIB;
            page < end
        })?;
        Some(NodeId(node as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * PAGES_PER_MIB;

    #[test]
    fn nodes_with_and_without_a_hole() {
        let small = Layout::new(&[512, 512, 1024]).unwrap();
        assert_eq!(small.argument(), "nodes=512:512:1024");
        assert_eq!(small.node(Pfn(GIB / 2 - 1)), Some(NodeId(0)));
        assert_eq!(small.node(Pfn(GIB / 2)), Some(NodeId(1)));
        assert_eq!(small.node(Pfn(2 * GIB - 1)), Some(NodeId(2)));
        assert_eq!(small.node(Pfn(2 * GIB)), None);
        assert_eq!(small.node(Pfn(4 * GIB)), None);

        let large = Layout::new(&[3072, 1024, 1024]).unwrap();
        assert_eq!(large.node(Pfn(2 * GIB - 1)), Some(NodeId(0)));
        assert_eq!(large.node(Pfn(2 * GIB)), None);
        assert_eq!(large.node(Pfn(4 * GIB - 1)), None);
        assert_eq!(large.node(Pfn(4 * GIB)), Some(NodeId(0)));
        assert_eq!(large.node(Pfn(5 * GIB)), Some(NodeId(1)));
        assert_eq!(large.node(Pfn(7 * GIB - 1)), Some(NodeId(2)));
        assert_eq!(large.node(Pfn(7 * GIB)), None);
    }

    #[test]
    fn what_the_plugin_cannot_count_is_refused() {
        assert_eq!(Layout::new(&[]), Err(LayoutError::Nodes(0)));
        assert_eq!(Layout::new(&[1; 17]), Err(LayoutError::Nodes(17)));
        assert_eq!(Layout::new(&[131072, 1]), Err(LayoutError::Ram(131073)));
        assert_eq!(Layout::new(&[u64::MAX, 1]), Err(LayoutError::Ram(u64::MAX)));
    }
}
