//! Nodes on which this process may not allocate. The kernel allocates the new page on behalf of the
//! caller of the move, so our own cpuset matters in addition to the program's (Linux 6.12
//! mm/page_alloc.c, __cpuset_zone_allowed): if it leaves out the top tier, every promotion fails as
//! if the node were full.

use std::path::PathBuf;

use thermocline_core::topology::Topology;
use thermocline_core::units::NodeId;

use crate::lists::parse_list;
use crate::root::{KernelFileError, Root, read_optional};

/// Nodes with memory that are closed to us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Their numbers, ascending.
    pub(crate) nodes: Vec<u32>,
    /// The whole top tier is among them.
    pub(crate) top: bool,
}

/// Nodes of the topology on which this process may not allocate; none if the kernel does not report
/// it.
///
/// # Errors
/// The file cannot be read, or is not a list of nodes.
pub(crate) fn closed(root: &Root, topology: &Topology) -> Result<Closed, KernelFileError> {
    let path = status(root);
    let text = read_optional(&path)?.unwrap_or_default();
    let Some(list) = text.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")) else {
        return Ok(Closed::default());
    };
    let open = parse_list(list).ok_or_else(|| KernelFileError::Malformed {
        path,
        what: format!("Mems_allowed_list is no list of nodes: {:?}", list.trim()),
    })?;
    let with_memory = || topology.nodes.iter().filter(|node| node.capacity_pages > 0).map(|node| node.id);
    let is_closed = |node: &NodeId| !open.contains(&node.0.into());
    Ok(Closed {
        nodes: with_memory().filter(is_closed).map(|node| node.0.into()).collect(),
        top: with_memory().filter(|node| topology.is_top(*node)).all(|node| is_closed(&node)),
    })
}

fn status(root: &Root) -> PathBuf {
    root.proc.join("self/status")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thermocline_core::topology::Node;
    use thermocline_core::units::TierId;

    use super::*;

    /// Two nodes of DRAM, one of CXL, and one without memory.
    fn topology() -> Topology {
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(u8::from(id == 2)),
            cpus: Vec::new(),
            capacity_pages: if id == 3 { 0 } else { 1 << 18 },
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: (0..4).map(|other| if other == id { 10 } else { 20 }).collect(),
        };
        Topology::new((0..4).map(node).collect()).unwrap()
    }

    fn with_status(text: &str) -> Result<Closed, KernelFileError> {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        fs::create_dir_all(root.proc.join("self")).unwrap();
        fs::write(status(&root), text).unwrap();
        closed(&root, &topology())
    }

    #[test]
    fn nodes_that_the_cpuset_leaves_out_are_closed() {
        let closed = |list: &str| {
            let found =
                with_status(&format!("Name:\tx\nMems_allowed:\tf\nMems_allowed_list:\t{list}\n")).unwrap();
            (found.nodes, found.top)
        };
        assert_eq!(closed("0-3"), (vec![], false));
        assert_eq!(closed("0-2"), (vec![], false), "node 3 has no memory");
        assert_eq!(closed("0,2"), (vec![1], false));
        assert_eq!(closed("2"), (vec![0, 1], true));
        assert_eq!(closed("0-1"), (vec![2], false));
    }

    #[test]
    fn a_kernel_that_says_nothing_closes_nothing_and_nonsense_is_an_error() {
        assert_eq!(with_status("Name:\tx\n").unwrap(), Closed::default());
        assert!(with_status("Mems_allowed_list:\tx-y\n").unwrap_err().to_string().contains("x-y"));
    }
}
