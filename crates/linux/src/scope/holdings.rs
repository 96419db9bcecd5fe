//! The top-tier holdings of scopes with a floor or a cap: `memory.numa_stat` of their cgroups,
//! including subtrees.
//!
//! Anonymous memory and page cache count, including shared memory: the memory that can move. The
//! kernel folds in per-CPU counts on request, but leaves out those below 64 pages per CPU (Linux
//! 6.12 mm/memcontrol.c, memcg_vmstats_needs_flush).

use std::path::{Path, PathBuf};

use thermocline_core::access::Holding;
use thermocline_core::config;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, NodeId, PAGE_SIZE, ScopeId};

use crate::root::{KernelFileError, Root, read_optional};
use crate::scope::{ScopeError, cgroup};

/// The kinds of memory that count.
const KINDS: [&str; 2] = ["anon", "file"];

/// The scopes with a floor or a cap, and their cgroups.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    scopes: Vec<(ScopeId, PathBuf)>,
}

impl Holdings {
    /// For the scopes in a checked configuration.
    ///
    /// # Errors
    /// There is such a scope and cgroup v2 is not mounted.
    pub fn new(root: &Root, scopes: &[config::Scope]) -> Result<Holdings, ScopeError> {
        let limited = |(index, scope): (usize, &config::Scope)| {
            scope.cgroup_alone().filter(|_| scope.is_limited()).map(|path| (index, path))
        };
        let paths: Vec<(usize, String)> = scopes.iter().enumerate().filter_map(limited).collect();
        let Some(&(index, _)) = paths.first() else { return Ok(Holdings::default()) };
        let mount = cgroup::mount(root)?.ok_or(ScopeError::NoCgroups { index })?;
        let folder =
            |(index, path): &(usize, String)| (ScopeId::of_place(*index), cgroup::folder(&mount, path));
        Ok(Holdings { scopes: paths.iter().map(folder).collect() })
    }

    /// Whether no scope has a floor or a cap.
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }

    /// The present holding of each scope on the nodes of the top tier. A cgroup that does not exist
    /// holds nothing.
    pub fn read(
        &self,
        topology: &Topology,
        now: Nanos,
    ) -> impl Iterator<Item = Result<Holding, KernelFileError>> {
        self.scopes.iter().map(move |(scope, folder)| {
            let pages = pages(folder, |node| topology.is_top(node))?;
            Ok(Holding { scope: *scope, time: now, pages })
        })
    }
}

/// Base pages of a cgroup on these nodes.
fn pages(folder: &Path, on: impl Fn(NodeId) -> bool) -> Result<u64, KernelFileError> {
    let path = folder.join("memory.numa_stat");
    let Some(text) = read_optional(&path)? else {
        if !crate::root::exists(folder) {
            return Ok(0);
        }
        // A controller that version 1 uses is not offered by version 2, and cannot be switched on
        // there.
        let offered = folder
            .parent()
            .map(|above| read_optional(&above.join("cgroup.controllers")))
            .transpose()?
            .flatten();
        let remedy = match offered {
            Some(list) if !list.split_ascii_whitespace().any(|name| name == "memory") => {
                "the memory controller is not to be had there: it belongs to cgroup version 1 (boot with systemd.unified_cgroup_hierarchy=1), \
                 or is switched off (cgroup_disable=memory)"
            }
            _ => {
                "it needs the cgroup's memory controller (echo +memory > cgroup.subtree_control of the cgroup above) and CONFIG_NUMA"
            }
        };
        return Err(KernelFileError::not_supported("the memory of a cgroup by node", &path, remedy));
    };
    sum(&text, on).ok_or_else(|| KernelFileError::malformed(&path, "no memory by node for anon and file"))
}

/// The sum over lines like `anon N0=4096 N1=0`, in base pages.
fn sum(text: &str, on: impl Fn(NodeId) -> bool) -> Option<u64> {
    let mut bytes = 0u64;
    for kind in KINDS {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        for word in line.split_ascii_whitespace() {
            let (node, of_node) = word.strip_prefix('N')?.split_once('=')?;
            if on(NodeId(node.parse().ok()?)) {
                bytes = bytes.saturating_add(of_node.parse().ok()?);
            }
        }
    }
    Some(bytes / PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use thermocline_core::topology::Node;
    use thermocline_core::units::TierId;

    use super::*;

    const TEXT: &str =
        "anon N0=8192 N1=4096 N2=40960\nfile N0=4096 N1=0 N2=0\nfile_mapped N0=4096 N1=0 N2=0\n";

    /// Two nodes in the top tier and one below.
    fn topology() -> Topology {
        let node = |id: u16| Node {
            id: NodeId(id),
            tier: TierId(u8::from(id == 2)),
            cpus: Vec::new(),
            capacity_pages: 1,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10; 3],
        };
        Topology::new((0..3).map(node).collect()).unwrap()
    }

    fn scope(path: &str, cap_mib: Option<u64>) -> config::Scope {
        config::Scope { cgroup: Some(path.to_owned()), top_tier_cap_mib: cap_mib, ..config::Scope::default() }
    }

    #[test]
    fn pages_of_the_top_tier_are_told_by_scope() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let scopes = [scope("/rest", None), scope("/a", Some(1)), scope("/later", Some(0))];
        assert!(Holdings::new(&root, &scopes[..1]).unwrap().is_empty(), "nobody needs a hierarchy");
        assert!(matches!(Holdings::new(&root, &scopes), Err(ScopeError::NoCgroups { index: 1 })));
        fs::create_dir_all(root.proc.join("self")).unwrap();
        fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        let folder = root.sys.join("fs/cgroup/a");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("memory.numa_stat"), TEXT).unwrap();
        let holdings = Holdings::new(&root, &scopes).unwrap();
        let topology = topology();
        let read = || holdings.read(&topology, Nanos(7)).map(|h| h.map(|h| (h.scope.0, h.time.0, h.pages)));
        let found: Result<Vec<_>, _> = read().collect();
        assert_eq!(found.unwrap(), [(2, 7, 4), (3, 7, 0)]);
        fs::remove_file(folder.join("memory.numa_stat")).unwrap();
        let error = read().next().unwrap().unwrap_err().to_string();
        assert!(
            error.contains("does not offer the memory of a cgroup by node") && error.contains("+memory"),
            "{error}"
        );
    }

    #[test]
    fn other_text_is_an_error() {
        let all = |text: &str| sum(text, |_| true);
        assert_eq!(all(TEXT), Some(14));
        for text in
            ["", "anon N0=1\n", "anon N0=x\nfile N0=1\n", "anon N0\nfile N0=1\n", "anon 5\nfile N0=1\n"]
        {
            assert_eq!(all(text), None, "{text:?}");
        }
        assert_eq!(
            all("file N0=18446744073709551615\nanon N0=18446744073709551615\n"),
            Some(u64::MAX / 4096)
        );
    }
}
