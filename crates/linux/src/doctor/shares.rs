//! The scopes' shares against what the top tier can hold for them: without what promotions leave
//! free, and without what never moves.

use std::path::PathBuf;

use thermocline_core::config::{Config, Scope};
use thermocline_core::limit::Reserve;
use thermocline_core::topology::NodeState;
use thermocline_core::units::NodeId;

use crate::finding::{Finding, Ground, Kind, Look};
use crate::root::{KernelFileError, Root, list_optional, read_optional};
use crate::scope::cgroup;
use crate::topology::Discovered;

/// Lines of a node's meminfo that are the kernel's own memory, which neither moves nor gives way.
const OF_THE_KERNEL: [&str; 4] = ["SUnreclaim", "KernelStack", "PageTables", "SecPageTables"];

/// Memory of the top tier that no share can have, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lost {
    kept_free: u64,
    kernel: u64,
    mlocked: u64,
    huge: u64,
}

impl Lost {
    fn sum(self) -> u64 {
        self.kept_free.saturating_add(self.kernel).saturating_add(self.mlocked).saturating_add(self.huge)
    }
}

/// Shares whose last part can never come, because together they need memory that is not to be had.
pub(super) fn out_of_reach(
    look: &mut Look<'_>,
    config: &Config,
    found: &Discovered,
    states: &[NodeState],
) -> Option<Finding> {
    let shares_mib = config.scope.iter().fold(0u64, |sum, s| sum.saturating_add(s.top_tier_share_mib));
    let top_mib = found.topology.top_mib();
    // A sum beyond the top tier itself is refused.
    if shares_mib == 0 || config.check_shares_fit(top_mib).is_err() {
        return None;
    }
    let top: Vec<NodeId> =
        found.topology.nodes.iter().map(|node| node.id).filter(|id| found.topology.is_top(*id)).collect();
    let lost = lost(look.root, config, &top, states);
    let lost = look.keep(lost)?;
    let mib = |kib: u64| kib.div_ceil(1024);
    let left_mib = top_mib.saturating_sub(mib(lost.sum()));
    if shares_mib <= left_mib {
        return None;
    }
    let cause = format!(
        "the scopes' shares are {shares_mib} MiB together, and of the top tier's {top_mib} MiB {left_mib} are left for them: \
         promotions leave {} MiB free, and {} MiB of the kernel's own, {} MiB of huge pages and {} MiB that are mlocked \
         by others never give way; so the last {} MiB of the shares can never come",
        mib(lost.kept_free),
        mib(lost.kernel),
        mib(lost.huge),
        mib(lost.mlocked),
        shares_mib - left_mib,
    );
    let fix = format!(
        "lower scope.top_tier_share_mib by {} MiB in all, or free what is named",
        shares_mib - left_mib
    );
    Some(Finding::new(Kind::ScopeSharesOutOfReach, cause).fix(Ground::OURS, fix))
}

fn lost(root: &Root, config: &Config, top: &[NodeId], states: &[NodeState]) -> Result<Lost, KernelFileError> {
    let reserve = Reserve::new(&config.admission);
    let free = states.iter().filter(|state| top.contains(&state.node)).map(|state| reserve.floor(state));
    let mut lost =
        Lost { kept_free: free.fold(0u64, u64::saturating_add).saturating_mul(4), ..Lost::default() };
    for node in top {
        let folder = root.sys.join(format!("devices/system/node/node{}", node.0));
        let text = read_optional(&folder.join("meminfo"))?.unwrap_or_default();
        let line = |name: &str| line_kib(&text, name);
        lost.kernel = OF_THE_KERNEL.iter().fold(lost.kernel, |sum, name| sum.saturating_add(line(name)));
        lost.mlocked = lost.mlocked.saturating_add(line("Mlocked"));
        lost.huge = lost.huge.saturating_add(huge_kib(&folder)?);
    }
    // What a scope with a share has mlocked is part of its share.
    lost.mlocked = lost.mlocked.saturating_sub(own_unevictable_kib(root, &config.scope, top));
    Ok(lost)
}

/// A line of a node's meminfo, `Node 0 Mlocked:  1004 kB`; 0 where it is not there.
fn line_kib(text: &str, name: &str) -> u64 {
    let value = |line: &str| {
        let (key, rest) = line.split_once(':')?;
        let named = key.split_ascii_whitespace().next_back()? == name;
        named.then(|| rest.split_ascii_whitespace().next()?.parse().ok()).flatten()
    };
    text.lines().find_map(value).unwrap_or(0)
}

/// Memory in a node's pools of huge pages.
fn huge_kib(node: &std::path::Path) -> Result<u64, KernelFileError> {
    let pools = node.join("hugepages");
    let mut sum = 0u64;
    for name in list_optional(&pools)?.unwrap_or_default() {
        let size = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB"));
        let Some(size) = size.and_then(|size| size.parse::<u64>().ok()) else { continue };
        let text = read_optional(&pools.join(&name).join("nr_hugepages"))?.unwrap_or_default();
        sum = sum.saturating_add(text.trim().parse().unwrap_or(0u64).saturating_mul(size));
    }
    Ok(sum)
}

/// Memory on these nodes that the scopes with shares keep from being reclaimed themselves, each at
/// most its share. What cannot be read is not theirs.
fn own_unevictable_kib(root: &Root, scopes: &[Scope], nodes: &[NodeId]) -> u64 {
    let Ok(Some(mount)) = cgroup::mount(root) else { return 0 };
    let of = |scope: &Scope| -> Option<u64> {
        let folder: PathBuf = cgroup::folder(&mount, &scope.cgroup_alone()?);
        let text = read_optional(&folder.join("memory.numa_stat")).ok()??;
        let line = text.lines().find_map(|line| line.strip_prefix("unevictable "))?;
        let of_node = |word: &str| {
            let (node, bytes) = word.strip_prefix('N')?.split_once('=')?;
            let node = NodeId(node.parse().ok()?);
            nodes.contains(&node).then(|| bytes.parse::<u64>().ok()).flatten()
        };
        let bytes = line.split_ascii_whitespace().filter_map(of_node).fold(0u64, u64::saturating_add);
        Some((bytes / 1024).min(scope.top_tier_share_mib.saturating_mul(1024)))
    };
    let owners = scopes.iter().filter(|scope| scope.top_tier_share_mib > 0);
    owners.filter_map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_meminfo_are_named_whole() {
        let text =
            "Node 0 PageTables:          208 kB\nNode 0 SecPageTables:         7 kB\nNode 0 Bad: x kB\n";
        let all = ["PageTables", "SecPageTables", "Tables", "Bad"].map(|name| line_kib(text, name));
        assert_eq!(all, [208, 7, 0, 0]);
    }
}
