//! Limits and protection of cgroups, which count the memory of all tiers together (Linux
//! Documentation/admin-guide/cgroup-v2.rst, memory).

use std::path::Path;

use thermocline_core::config::Config;
use thermocline_core::units::NodeId;

use super::Look;
use crate::scope::cgroup;

/// Cgroups that are looked at.
const GROUPS_MAX: usize = 64;

/// A cgroup with a limit or protection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limited {
    /// Its path below the hierarchy's root.
    pub path: String,
    /// What it has, bytes.
    pub current: u64,
    /// The lower of `memory.high` and `memory.max`, bytes.
    pub limit: Option<u64>,
    /// The larger of `memory.low` and `memory.min`, bytes; `u64::MAX` protects all.
    pub protected: u64,
}

/// The cgroups that scopes name, or those of the first level if none does, as far as they have a
/// limit or protection.
pub(super) fn limited(look: &mut Look<'_>, config: &Config) -> Vec<Limited> {
    let mount = cgroup::mount(look.root);
    let Some(mount) = look.keep(mount).flatten() else { return Vec::new() };
    let managed = config.scope.iter().filter(|scope| !scope.exclude);
    let mut paths: Vec<String> =
        managed.filter_map(|scope| scope.cgroup.as_deref().map(cgroup::normal)).collect();
    if paths.is_empty() {
        paths = cgroup::below(&mount, "").unwrap_or_default();
    }
    paths.sort();
    paths.dedup();
    paths.truncate(GROUPS_MAX);
    let groups = paths.into_iter().filter_map(|path| read(look, &mount, path));
    groups.filter(|group| group.limit.is_some() || group.protected > 0).collect()
}

fn read(look: &mut Look<'_>, mount: &Path, path: String) -> Option<Limited> {
    let folder = cgroup::folder(mount, &path);
    let mut amount = |name: &str| {
        let text = look.word(&folder.join(name))?;
        if text == "max" { Some(u64::MAX) } else { text.parse().ok() }
    };
    let current = amount("memory.current")?;
    let limit = [amount("memory.high"), amount("memory.max")].into_iter().flatten().min();
    let protected = [amount("memory.low"), amount("memory.min")].into_iter().flatten().max();
    let limit = limit.filter(|limit| *limit != u64::MAX);
    Some(Limited { path, current, limit, protected: protected.unwrap_or(0) })
}

/// What a cgroup has on `nodes`, KiB, and how much of that is page cache that no process maps: no
/// hint fault ever sees it. `None` if the cgroup does not show it.
pub(super) fn on_nodes(look: &mut Look<'_>, path: &str, nodes: &[NodeId]) -> Option<(u64, u64)> {
    let mount = cgroup::mount(look.root);
    let mount = look.keep(mount).flatten()?;
    let folder = cgroup::folder(&mount, path);
    let text = look.text(&folder.join("memory.numa_stat"))?;
    let sum = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let words = line.unwrap_or_default().split_ascii_whitespace();
        let of_node = words.filter_map(|word| word.strip_prefix('N')?.split_once('='));
        let bytes = of_node.filter_map(|(node, bytes)| {
            let listed = nodes.contains(&NodeId(node.parse().ok()?));
            listed.then(|| bytes.parse::<u64>().ok())?
        });
        bytes.fold(0, u64::saturating_add) / 1024
    };
    let file = sum("file");
    // Shared memory counts as file, and mapped or not it has hint faults once a program uses it.
    let unmapped = file.saturating_sub(sum("file_mapped").max(sum("shmem")));
    Some((sum("anon").saturating_add(file), unmapped))
}
