//! The top-tier holdings of the scopes that count: `memory.numa_stat` of their cgroups, including
//! subtrees, without those of other scopes within.
//!
//! Anonymous memory and page cache count, including shared memory: the memory that can move. The
//! kernel folds in per-CPU counts on request, but leaves out those below 64 pages per CPU (Linux
//! 6.12 mm/memcontrol.c, memcg_vmstats_needs_flush).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thermocline_core::access::Holding;
use thermocline_core::config;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, NodeId, PAGE_SIZE, ScopeId};

use crate::root::{KernelFileError, Root, read_optional};
use crate::scope::{ScopeError, cgroup};

/// The kinds of memory that count.
const KINDS: [&str; 2] = ["anon", "file"];

/// The scopes whose holding counts, and their cgroups.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    scopes: Vec<Counted>,
}

/// A scope and the cgroups that make up what it holds.
#[derive(Clone, Debug)]
struct Counted {
    scope: ScopeId,
    folder: PathBuf,
    /// Cgroups within whose memory belongs to other scopes.
    without: Vec<PathBuf>,
}

impl Holdings {
    /// For the scopes in a checked configuration.
    ///
    /// # Errors
    /// There is such a scope and cgroup v2 is not mounted.
    pub fn new(root: &Root, scopes: &[config::Scope]) -> Result<Holdings, ScopeError> {
        let path = |place: usize| Some((place, scopes[place].cgroup_alone()?));
        let paths: Vec<(usize, String)> = config::counted(scopes).into_iter().filter_map(path).collect();
        let Some(&(index, _)) = paths.first() else { return Ok(Holdings::default()) };
        let mount = cgroup::mount(root)?.ok_or(ScopeError::NoCgroups { index })?;
        let mut others = Others::new(scopes);
        let mut counted = Vec::new();
        for (place, path) in paths {
            // Limits around others' memory are refused, so only those without may have some.
            let without = if scopes[place].is_limited() { Vec::new() } else { others.before(place, &path) };
            counted.push(Counted {
                scope: ScopeId::of_place(place),
                folder: cgroup::folder(&mount, &path),
                without: without.iter().map(|path| cgroup::folder(&mount, path)).collect(),
            });
        }
        Ok(Holdings { scopes: counted })
    }

    /// Whether no scope's holding counts.
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
        self.scopes.iter().map(move |Counted { scope, folder, without }| {
            let of = |folder: &Path| pages(folder, |node| topology.is_top(node));
            let mut pages = of(folder)?;
            for folder in without {
                pages = pages.saturating_sub(of(folder)?);
            }
            Ok(Holding { scope: *scope, time: now, pages })
        })
    }
}

/// The cgroups of excluded scopes, and of those that stand before a place.
struct Others<'a> {
    scopes: &'a [config::Scope],
    next: usize,
    paths: BTreeSet<String>,
}

impl Others<'_> {
    fn new(scopes: &[config::Scope]) -> Others<'_> {
        let excluded = scopes.iter().filter(|scope| scope.exclude);
        Others { scopes, next: 0, paths: excluded.filter_map(config::Scope::cgroup_alone).collect() }
    }

    /// The cgroups within `path` whose memory another scope has, the uppermost of each branch;
    /// `path` itself if it lies within one. Ask for places in their order.
    fn before(&mut self, place: usize, path: &str) -> Vec<String> {
        while self.next < place {
            self.paths.extend(self.scopes[self.next].cgroup_alone());
            self.next += 1;
        }
        if self.above(path, true) {
            return vec![path.to_owned()];
        }
        let below = format!("{}/", path.trim_end_matches('/'));
        let within = self.paths.range(below.clone()..).take_while(|other| other.starts_with(&below));
        within.filter(|other| !self.above(other, false)).cloned().collect()
    }

    /// Whether one of these is above `path`, or `path` itself if `or_same`.
    fn above(&self, path: &str, or_same: bool) -> bool {
        let ends = path.match_indices('/').map(|(at, _)| at.max(1)).filter(|end| *end < path.len());
        ends.chain(or_same.then_some(path.len())).any(|end| self.paths.contains(&path[..end]))
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
    fn what_others_have_within_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(root.proc.join("self")).unwrap();
        fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        let write = |path: &str, pages: u64| {
            let folder = root.sys.join(format!("fs/cgroup{path}"));
            fs::create_dir_all(&folder).unwrap();
            let text = format!("anon N0={} N2=4096\nfile N0=0 N2=0\n", pages * PAGE_SIZE);
            fs::write(folder.join("memory.numa_stat"), text).unwrap();
        };
        for (path, pages) in [("", 1000), ("/a", 100), ("/a/b", 50), ("/ab", 7), ("/x", 20), ("/x/y", 5)] {
            write(path, pages);
        }
        let share = config::Scope { top_tier_share_mib: 1, ..scope("/a", None) };
        let out = config::Scope { exclude: true, ..scope("/x/y", None) };
        let scopes = [share, scope("/a/b", None), scope("/x", None), out, scope("/", None)];
        let holdings = Holdings::new(&root, &scopes).unwrap();
        let topology = topology();
        let read = holdings.read(&topology, Nanos(7)).map(|h| h.unwrap());
        let found: Vec<(u16, u64)> = read.map(|h| (h.scope.0, h.pages)).collect();
        // What is within the first is the first's, and what remains is the last's.
        assert_eq!(found, [(1, 100), (2, 0), (3, 15), (5, 1000 - 100 - 20)]);
        let unshared = [scope("/a", Some(1)), scope("/", None)];
        assert_eq!(Holdings::new(&root, &unshared).unwrap().scopes.len(), 1);
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
