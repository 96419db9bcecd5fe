//! Programs most of whose memory is on one DRAM node while their threads run on another.
//!
//! Thermocline moves pages between tiers, and between DRAM nodes only by rule `balance`; it never
//! moves threads. Where memory stays, threads can follow it: that is proposed, and left to whoever
//! started the program.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{NodeId, Pid};

use crate::lists::format_list;
use crate::process::parse_stat;
use crate::root::{Root, list_optional, read_optional};

/// A program with less memory than this is left out: moving its threads gains little. Ours.
const KIB_MIN: u64 = 64 << 10;
/// Threads of a program that are looked at, at most.
const THREADS_MAX: usize = 256;

/// A program whose threads are away from its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Away {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// The DRAM node with more than half of its memory.
    pub memory_node: NodeId,
    /// How much that is.
    pub kib: u64,
    /// Its memory on all nodes.
    pub of_kib: u64,
    /// Threads that ran on other DRAM nodes last: more than half of them.
    pub threads: Vec<u32>,
    /// Those nodes.
    pub thread_nodes: Vec<NodeId>,
    /// Threads that were looked at.
    pub of_threads: usize,
    /// CPUs of the memory's node.
    pub cpus: String,
}

impl Away {
    /// What is so, in words.
    pub fn what(&self) -> String {
        let mib = |kib: u64| kib as f64 / 1024.0;
        let nodes: Vec<String> = self.thread_nodes.iter().map(|node| node.0.to_string()).collect();
        format!(
            "{:.1} of {:.1} MiB are on node {}, and {} of {} threads ran on node {} last",
            mib(self.kib),
            mib(self.of_kib),
            self.memory_node.0,
            self.threads.len(),
            self.of_threads,
            nodes.join(", "),
        )
    }

    /// How its threads can follow its memory, in words.
    pub fn remedy(&self) -> String {
        let (node, cpus, pid) = (self.memory_node.0, &self.cpus, self.pid.0);
        format!(
            "start it with numactl --cpunodebind={node}, or give its cgroup cpuset.cpus = {cpus}; for now: \
             taskset -acp {cpus} {pid}"
        )
    }
}

/// The program, if its threads are away from its memory, which is `kib_by_node`.
pub(crate) fn away(
    root: &Root,
    topology: &Topology,
    (pid, comm): (Pid, &str),
    kib_by_node: &BTreeMap<NodeId, u64>,
) -> Option<Away> {
    // DRAM where programs can run: what has CPUs and is of the top tier.
    let is_home = |n: &&Node| topology.is_top(n.id) && n.capacity_pages > 0 && !n.cpus.is_empty();
    let homes: Vec<&Node> = topology.nodes.iter().filter(is_home).collect();
    let of_kib = kib_by_node.values().fold(0u64, |sum, kib| sum.saturating_add(*kib));
    let on = |node: &Node| kib_by_node.get(&node.id).copied().unwrap_or(0);
    let home = homes.iter().find(|node| on(node) > of_kib / 2)?;
    if homes.len() < 2 || of_kib < KIB_MIN {
        return None;
    }
    let cpus = thread_cpus(root, pid);
    let mut threads = Vec::new();
    let mut nodes = BTreeSet::new();
    for (thread, cpu) in &cpus {
        let ran_on = homes.iter().find(|node| node.cpus.binary_search(cpu).is_ok());
        if let Some(node) = ran_on.filter(|node| node.id != home.id) {
            threads.push(*thread);
            nodes.insert(node.id);
        }
    }
    (threads.len() * 2 > cpus.len()).then(|| Away {
        pid,
        comm: comm.to_owned(),
        memory_node: home.id,
        kib: on(home),
        of_kib,
        threads,
        thread_nodes: nodes.into_iter().collect(),
        of_threads: cpus.len(),
        cpus: format_list(&home.cpus),
    })
}

/// The threads of a process and the CPU that each ran on last; empty if it is gone.
fn thread_cpus(root: &Root, pid: Pid) -> Vec<(u32, u32)> {
    let folder = root.proc.join(pid.0.to_string()).join("task");
    let names = list_optional(&folder).ok().flatten().unwrap_or_default();
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let cpu = |thread: u32| {
        let text = read_optional(&folder.join(thread.to_string()).join("stat")).ok()??;
        Some((thread, parse_stat(&text).filter(|stat| !stat.has_ended())?.cpu?))
    };
    numbers.into_iter().take(THREADS_MAX).filter_map(cpu).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use thermocline_core::units::TierId;

    use super::*;

    /// As recorded on Linux 6.12 (proc(5), proc_pid_stat), with the thread and the CPU put in.
    const STAT: &str = "THREAD (redis-server) S 1 700 700 0 -1 4194624 81237 0 3 0 5127 811 0 0 20 0 5 0 2416 \
                        536412160 131072 18446744073709551615 94083105652736 94083107121309 140726337218960 0 0 0 0 \
                        4097 17642 0 0 0 17 CPU 0 0 0 0 0 94083107625168 94083107757632 94083128020992 \
                        140726337220264 140726337220303 140726337220303 140726337220570 0\n";

    /// DRAM with CPUs 0 and 1 on node 0, and 2 and 3 on node 1; CXL on node 2.
    pub(crate) fn topology() -> Topology {
        let node = |id: u16, tier, cpus: &[u32]| Node {
            id: NodeId(id),
            tier: TierId(tier),
            cpus: cpus.to_vec(),
            capacity_pages: 1 << 20,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10, 20, 30],
        };
        Topology::new(vec![node(0, 0, &[0, 1]), node(1, 0, &[2, 3]), node(2, 1, &[])]).unwrap()
    }

    /// Puts a process whose threads ran on these CPUs into a folder.
    pub(crate) fn put(root: &Root, pid: u32, cpus: &[u32]) {
        for (thread, cpu) in (pid..).zip(cpus) {
            let folder = root.proc.join(format!("{pid}/task/{thread}"));
            fs::create_dir_all(&folder).unwrap();
            let text = STAT.replace("THREAD", &thread.to_string()).replace("CPU", &cpu.to_string());
            fs::write(folder.join("stat"), text).unwrap();
        }
    }

    fn found(cpus: &[u32], mib: &[(u16, u64)]) -> Option<Away> {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        put(&root, 700, cpus);
        let kib = mib.iter().map(|(node, mib)| (NodeId(*node), mib << 10)).collect();
        away(&root, &topology(), (Pid(700), "redis-server"), &kib)
    }

    #[test]
    fn threads_that_run_where_their_memory_is_not_are_named() {
        let away = found(&[0, 1, 1, 3], &[(0, 20), (1, 300), (2, 100)]).unwrap();
        assert_eq!((away.memory_node, away.threads.as_slice()), (NodeId(1), &[700, 701, 702][..]));
        assert_eq!(away.what(), "300.0 of 420.0 MiB are on node 1, and 3 of 4 threads ran on node 0 last");
        assert_eq!(
            away.remedy(),
            "start it with numactl --cpunodebind=1, or give its cgroup cpuset.cpus = 2-3; for now: taskset -acp 2-3 700"
        );
    }

    #[test]
    fn others_are_not() {
        let mostly_on_1 = [(0, 20), (1, 300)];
        assert_eq!(found(&[2, 3], &mostly_on_1), None, "at home");
        assert_eq!(found(&[0, 2], &mostly_on_1), None, "half of the threads are");
        assert_eq!(found(&[0, 0], &[(0, 160), (1, 160)]), None, "no node has most of it");
        assert_eq!(found(&[0, 0], &[(1, 100), (2, 300)]), None, "most is on CXL, which is another matter");
        assert_eq!(found(&[0, 0], &[(1, 63)]), None, "small");
        assert_eq!(found(&[], &mostly_on_1), None, "gone");
        assert_eq!(found(&[9], &mostly_on_1), None, "nobody knows CPU 9");
    }
}
