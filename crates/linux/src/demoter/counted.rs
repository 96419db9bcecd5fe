//! The pages that the kernel has demoted by command, from its own counters.

use std::io;
use std::path::PathBuf;

use thermocline_core::units::NodeId;

use crate::actuator::Commands;
use crate::root::Root;
use crate::vmstat::Vmstat;

/// Demotion by command: 6.12 counts it as direct reclaim, newer kernels separately.
const COUNTERS: [&str; 2] = ["pgdemote_direct", "pgdemote_proactive"];

/// The files of the counters.
#[derive(Debug)]
pub(super) struct Counted {
    nodes: PathBuf,
    vmstat: PathBuf,
    stat_refresh: PathBuf,
}

impl Counted {
    pub(super) fn new(root: &Root) -> Counted {
        Counted {
            nodes: root.sys.join("devices/system/node"),
            vmstat: root.proc.join("vmstat"),
            stat_refresh: root.proc.join("sys/vm/stat_refresh"),
        }
    }

    /// Base pages that have been demoted from a node by command so far; of all nodes if the kernel
    /// counts them together.
    pub(super) fn so_far(&self, commands: &Commands, node: NodeId) -> io::Result<u64> {
        let of_node = commands.read(&self.nodes.join(format!("node{}/vmstat", node.0)))?;
        let count = |text: &str| {
            let vmstat = Vmstat::parse(text);
            let found: Vec<u64> = COUNTERS.iter().filter_map(|name| vmstat.get(name)).collect();
            (!found.is_empty()).then(|| found.iter().sum())
        };
        match count(&of_node) {
            Some(sum) => Ok(sum),
            None => Ok(count(&commands.read(&self.vmstat)?).unwrap_or(0)),
        }
    }

    /// The same, after the per-CPU counts have been folded in: up to 125 pages each, which
    /// otherwise may take a second or two (Linux mm/vmstat.c, calculate_normal_threshold).
    pub(super) fn settled(&self, commands: &Commands, node: NodeId) -> io::Result<u64> {
        // If that is not possible, a few pages are counted late, or attributed to the kernel.
        let _ = commands.read(&self.stat_refresh);
        self.so_far(commands, node)
    }
}
