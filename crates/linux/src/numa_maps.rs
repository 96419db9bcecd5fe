//! `/proc/PID/numa_maps`: where a process's pages are, mapping by mapping, and under which memory
//! policy (Linux fs/proc/task_mmu.c, show_numa_map; mm/mempolicy.c, mpol_to_str).
//!
//! Reading it walks the page tables of the process: cheap for megabytes, about a second for
//! hundreds of gigabytes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use thermocline_core::config::MemoryPolicies;
use thermocline_core::units::{NodeId, Pid};

use crate::lists::parse_list;
use crate::root::{KernelFileError, Root, read_optional};

/// Maximum number of threads of a process whose policies are read.
const THREADS_MAX: usize = 1024;

/// A memory policy as the kernel prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `default`, `local`, `prefer`, `prefer (many)`, `bind`, `interleave`, `weighted interleave`.
    pub mode: String,
    /// Whether MPOL_F_NUMA_BALANCING is set: hint faults in spite of the policy.
    pub balancing: bool,
    /// The nodes that it names, ascending.
    pub nodes: Vec<NodeId>,
}

impl Policy {
    /// Whether the kernel takes hint faults under this policy. Only the default policy and policies
    /// that ask for it carry MPOL_F_MOF, without which a mapping is never scanned (Linux 6.12
    /// mm/mempolicy.c, vma_policy_mof).
    pub fn has_hint_faults(&self) -> bool {
        self.mode == "default" || self.balancing
    }

    /// Whether it does not bind pages to nodes: they are allocated where the program runs.
    pub fn is_default(&self) -> bool {
        matches!(self.mode.as_str(), "default" | "local")
    }

    /// Whether pages under this policy must not be moved to `node`. One that lets the kernel
    /// balance pages between its nodes (MPOL_F_NUMA_BALANCING) asks for that.
    pub fn forbids(&self, node: NodeId, respected: MemoryPolicies) -> bool {
        let among = self.nodes.contains(&node);
        match respected {
            MemoryPolicies::All => !(self.is_default() || self.balancing && among),
            MemoryPolicies::Bind => self.mode == "bind" && !among,
        }
    }
}

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first byte.
    pub address: u64,
    /// Its policy, or the process's if it has none of its own.
    pub policy: Policy,
    /// Pages on each node, in pages of [`page_kib`](Mapping::page_kib).
    pub pages: Vec<(NodeId, u64)>,
    /// Size of those pages in KiB: that of hugetlb, else the base page's, transparent huge pages
    /// included.
    pub page_kib: u64,
    /// Whether it is hugetlb memory.
    pub hugetlb: bool,
}

impl Mapping {
    /// KiB on all nodes.
    pub fn kib(&self) -> u64 {
        self.pages.iter().fold(0, |sum, (_, n)| sum.saturating_add(n.saturating_mul(self.page_kib)))
    }
}

/// The mappings of a process; `None` if it is gone.
///
/// # Errors
/// The file cannot be read: another user's process without CAP_SYS_PTRACE.
pub fn read(root: &Root, pid: Pid) -> Result<Option<Vec<Mapping>>, KernelFileError> {
    let text = read_optional(&root.proc.join(pid.0.to_string()).join("numa_maps"))?;
    Ok(text.map(|text| text.lines().filter_map(parse_line).collect()))
}

/// The policy of a thread if it is not the default, derived from its first mapping, which hardly
/// ever has a policy of its own. The kernel walks only that mapping.
fn policy_of_thread(file: &Path) -> Option<Policy> {
    let mut line = [0; 64];
    // So short a read makes the kernel report only one mapping. A thread that has ended has no
    // policy.
    let read = File::open(file).and_then(|mut file| file.read(&mut line)).ok()?;
    let text = str::from_utf8(&line[..read]).ok()?;
    let policy = policy(text.split_once(' ')?.1.lines().next()?).0;
    (!policy.is_default()).then_some(policy)
}

/// A policy other than the default of any thread of a process except the first: its pages cannot be
/// distinguished from those of the other threads. Only the first `THREADS_MAX` threads are read.
pub fn policy_of_threads(root: &Root, pid: Pid) -> Option<Policy> {
    let folder = root.proc.join(pid.0.to_string()).join("task");
    let threads = std::fs::read_dir(folder).ok()?.flatten();
    let others = threads.filter(|thread| thread.file_name().to_str() != Some(&pid.0.to_string()));
    others.take(THREADS_MAX).find_map(|thread| policy_of_thread(&thread.path().join("numa_maps")))
}

/// The mapping of a line; `None` if it is not such a line.
pub fn parse_line(line: &str) -> Option<Mapping> {
    let (address, rest) = line.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (policy, rest) = policy(rest);
    let mut mapping = Mapping { address, policy, pages: Vec::new(), page_kib: 4, hugetlb: false };
    for word in rest.split_ascii_whitespace() {
        match word.split_once('=') {
            None => mapping.hugetlb |= word == "huge",
            Some(("kernelpagesize_kB", kib)) => mapping.page_kib = kib.parse().unwrap_or(4),
            Some((key, count)) => {
                let node = key.strip_prefix('N').and_then(|n| n.parse().ok());
                if let (Some(node), Ok(count)) = (node, count.parse()) {
                    mapping.pages.push((NodeId(node), count));
                }
            }
        }
    }
    Some(mapping)
}

/// Two of the modes have a space in their name; flags and nodes follow, as in
/// `bind=static|balancing:0-1`.
fn policy(text: &str) -> (Policy, &str) {
    let spaced = ["prefer (many)", "weighted interleave"].iter().find(|mode| text.starts_with(**mode));
    let mode_end = spaced.map_or(0, |mode| mode.len());
    let end = text[mode_end..].find(' ').map_or(text.len(), |at| mode_end + at);
    let (word, rest) = text.split_at(end);
    let (name, nodes) = word.split_once(':').unwrap_or((word, ""));
    let (mode, flags) = name.split_once('=').unwrap_or((name, ""));
    let balancing = flags.split('|').any(|flag| flag == "balancing");
    let numbers = parse_list(nodes).unwrap_or_default();
    let nodes = numbers.into_iter().filter_map(|n| u16::try_from(n).ok().map(NodeId)).collect();
    (Policy { mode: mode.to_owned(), balancing, nodes }, rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_pages_by_node() {
        let m = parse_line(
            "7f0000000000 default file=/usr/bin/N7=3 anon=5 dirty=5 N0=3 N2=2 kernelpagesize_kB=4",
        )
        .unwrap();
        assert_eq!(m.address, 0x7f00_0000_0000);
        assert_eq!(m.pages, [(NodeId(0), 3), (NodeId(2), 2)]);
        assert_eq!(m.kib(), 20);
        let huge =
            parse_line("7f0000000000 default file=/dev/hugepages/x huge anon=1 N1=3 kernelpagesize_kB=2048")
                .unwrap();
        assert!(huge.hugetlb);
        assert_eq!(huge.kib(), 6144);
        assert_eq!(parse_line("7f0000000000 default").unwrap().kib(), 0);
    }

    #[test]
    fn knows_which_policies_have_hint_faults() {
        for (text, mode, faults) in [
            ("default", "default", true),
            ("local", "local", false),
            ("prefer:2", "prefer", false),
            ("prefer (many):0-1", "prefer (many)", false),
            ("bind:2", "bind", false),
            ("bind=static:2", "bind", false),
            ("bind=balancing:0-2", "bind", true),
            ("bind=static|balancing:0-2", "bind", true),
            ("interleave:0-1", "interleave", false),
            ("weighted interleave:0-1", "weighted interleave", false),
        ] {
            let mapping = parse_line(&format!("1000 {text} anon=1 N0=1 kernelpagesize_kB=4")).unwrap();
            assert_eq!(
                (mapping.policy.mode.as_str(), mapping.policy.has_hint_faults()),
                (mode, faults),
                "{text}"
            );
            assert_eq!(mapping.kib(), 4, "{text}");
        }
    }

    #[test]
    fn every_policy_is_respected_or_only_what_it_forbids() {
        for (text, all, bind) in [
            ("default", false, false),
            ("local", false, false),
            ("bind:2", true, true),
            ("bind=static|balancing:1-2", true, true),
            ("bind=balancing:0,2", false, false),
            ("bind:0,2", true, false),
            ("bind=relative:0-2", true, false),
            ("prefer:2", true, false),
            ("prefer (many):1-2", true, false),
            ("interleave:0-2", true, false),
            ("weighted interleave:0,2", true, false),
        ] {
            let mapping = parse_line(&format!("1000 {text} anon=1 N2=1 kernelpagesize_kB=4")).unwrap();
            let forbids = |respected| mapping.policy.forbids(NodeId(0), respected);
            let found = (forbids(MemoryPolicies::All), forbids(MemoryPolicies::Bind));
            assert_eq!(found, (all, bind), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "([0-9a-f]{1,20} )?(prefer \\(many\\)|weighted interleave|bind=|[ =:N]|.){0,40}") {
            if let Some(mapping) = parse_line(&text) {
                let _ = mapping.kib();
            }
        }
    }
}
