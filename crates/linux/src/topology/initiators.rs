//! How fast a node's memory is, as seen by the nearest CPUs.
//!
//! `access0` is the view of the nearest initiator of any kind, which may be a device beside the
//! memory, and `access1` that of the nearest CPUs (Linux
//! Documentation/admin-guide/mm/numaperf.rst). Each lists the nodes whose view it is.

use std::path::Path;

use crate::root::{KernelFileError, list_optional, read_optional};

/// The figure `name` of the node in `folder` with number `node`, as CPUs see it; `None` if the
/// firmware does not report it.
pub(super) fn value(folder: &Path, node: u16, name: &str) -> Result<Option<u32>, KernelFileError> {
    for access in ["access1", "access0"] {
        let initiators = folder.join(format!("node{node}")).join(access).join("initiators");
        let Some(text) = read_optional(&initiators.join(name))? else { continue };
        // Zero means that the firmware does not report it.
        let Some(value) = text.trim().parse().ok().filter(|&v| v > 0) else { continue };
        if is_view_of_cpus(folder, &initiators, access)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Whether one of the initiators has CPUs. If the kernel lists none, the access class decides.
fn is_view_of_cpus(folder: &Path, initiators: &Path, access: &str) -> Result<bool, KernelFileError> {
    let names = list_optional(initiators)?.unwrap_or_default();
    let mut nodes = names.iter().filter(|name| is_node(name)).peekable();
    if nodes.peek().is_none() {
        return Ok(access == "access1");
    }
    for node in nodes {
        let cpus = read_optional(&folder.join(node).join("cpulist"))?;
        if cpus.is_some_and(|text| !text.trim().is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_node(name: &str) -> bool {
    name.strip_prefix("node").is_some_and(|n| n.parse::<u16>().is_ok())
}
