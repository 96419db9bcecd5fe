//! Programs that may not have memory on any node of the top tier: nothing of theirs can be
//! promoted.

use serde::Serialize;
use thermocline_core::units::Pid;

use super::{Finding, Ground, Kind};
use crate::lists::parse_list;
use crate::root::{Root, read_optional};
use crate::topology::Discovered;

/// Programs that a finding names.
const NAMED: usize = 5;

/// A program whose cpuset leaves out the whole top tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confined {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// Its cgroup, where it has one of version 2.
    pub cgroup: Option<String>,
}

/// The process and its cgroup, if its cpuset leaves out the whole top tier. Its status is read
/// without its mmap lock.
pub(super) fn confined(root: &Root, pid: Pid, comm: &str, found: &Discovered) -> Option<Confined> {
    let folder = root.proc.join(pid.0.to_string());
    let status = read_optional(&folder.join("status")).ok()??;
    let allowed = parse_list(status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?)?;
    let with_memory = found.topology.nodes.iter().filter(|node| node.capacity_pages > 0);
    let mut top = with_memory.filter(|node| found.topology.is_top(node.id));
    if top.any(|node| allowed.contains(&node.id.0.into())) {
        return None;
    }
    let cgroup = crate::process::cgroup(root, pid).ok().flatten();
    Some(Confined { pid, comm: comm.to_owned(), cgroup })
}

/// A finding that names them.
pub(crate) fn finding(confined: &[Confined]) -> Option<Finding> {
    let name = |c: &Confined| {
        let cgroup = c.cgroup.as_ref().map(|path| format!(", cgroup {path}")).unwrap_or_default();
        format!("{} (pid {}{cgroup})", c.comm, c.pid.0)
    };
    let mut names: Vec<String> = confined.iter().take(NAMED).map(name).collect();
    if confined.len() > NAMED {
        names.push(format!("{} more", confined.len() - NAMED));
    }
    let cause = format!(
        "their cpusets leave out the whole top tier, so that nothing of theirs can be promoted: {}",
        names.join(", ")
    );
    let finding = Finding::new(Kind::ScopeConfined, cause);
    (!confined.is_empty()).then(|| {
        finding.fix(
            Ground::OURS,
            "widen their cpuset.mems, or leave them out with a [[scope]] that has exclude = true",
        )
    })
}
