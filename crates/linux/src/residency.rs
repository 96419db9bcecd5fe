//! Where the memory of managed processes is, by process and node, from `/proc/PID/numa_maps`.
//!
//! The kernel walks the page tables of a process for it, so readings are few and short: only the
//! largest processes, within a time limit, and not again before that time is a small share of the
//! time passed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use thermocline_core::topology::Topology;
use thermocline_core::units::{NodeId, Pid};

use crate::aside::Aside;
use crate::away::{Away, away};
use crate::numa_maps::{self, Mapping};
use crate::process;
use crate::root::{KernelFileError, Root};
use crate::scope::{Members, Scopes};

/// Maximum number of processes read, the largest first.
pub const PROCESSES_MAX: usize = 16;
/// Time after which no further process is read.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Time limit for one process: reading hundreds of GiB takes about a second.
const PROCESS_MAX: Duration = Duration::from_millis(1500);
/// A reading is valid for at least this long.
const GOOD_FOR_MIN: Duration = Duration::from_secs(2);
/// And for this many times its duration: at any rate of requests, readings take at most a hundredth
/// of the time.
const GOOD_FOR_LOOKS: u32 = 100;

/// The memory of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resident {
    /// Its number.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// KiB on each node where it has any. Shared memory counts for each process.
    pub kib_by_node: BTreeMap<NodeId, u64>,
    /// If most of it is on another DRAM node than its threads run on: which, and what would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away: Option<Away>,
}

/// The result of a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// The largest processes in scope, the largest first.
    pub processes: Vec<Resident>,
    /// Smaller processes in scope, or those for which the time was too short.
    pub not_looked_at: usize,
    /// Processes whose mappings could not be read.
    pub unreadable: usize,
    /// Age of these figures, in ms.
    pub age_ms: u64,
}

/// Reads the residency of processes in scope.
#[derive(Debug)]
pub struct Residencies {
    root: Root,
    topology: Topology,
    members: Members,
    /// For reading mappings.
    aside: Aside,
    /// The last reading, when it ended and how long it took.
    last: Option<(Residency, Instant, Duration)>,
}

impl Residencies {
    /// For the processes that `scopes` include, on a machine of these nodes.
    pub fn new(root: &Root, topology: Topology, scopes: Scopes) -> Residencies {
        let aside = Aside::new(root, "its mappings were read", PROCESS_MAX);
        Residencies { root: root.clone(), topology, members: Members::new(root, scopes), aside, last: None }
    }

    /// For the processes that other scopes include.
    pub fn set_scopes(&mut self, scopes: Scopes) {
        self.members = Members::new(&self.root, scopes);
        self.last = None;
    }

    /// The residency now, or that of the last reading if it is too early for another.
    ///
    /// # Errors
    /// procfs cannot be listed.
    pub fn look(&mut self) -> Result<Residency, KernelFileError> {
        if let Some((last, ended, took)) = &self.last
            && ended.elapsed() < GOOD_FOR_MIN.max(*took * GOOD_FOR_LOOKS)
        {
            let age_ms = u64::try_from(ended.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Ok(Residency { age_ms, ..last.clone() });
        }
        let start = Instant::now();
        let found = self.anew(start)?;
        self.last = Some((found.clone(), Instant::now(), start.elapsed()));
        Ok(found)
    }

    fn anew(&mut self, start: Instant) -> Result<Residency, KernelFileError> {
        let in_time = |share: u32| start.elapsed() < TIME_MAX * share / 4;
        self.members.look_while(true, || in_time(2))?;
        let mut members = self.members.iter();
        let stats = members.by_ref().take_while(|_| in_time(3));
        let stats = stats.filter_map(|m| process::stat(&self.root, m.pid).ok().flatten());
        let mut processes: Vec<process::Stat> = stats.filter(|s| s.rss_pages > 0).collect();
        let rest = members.count();
        processes.sort_by_key(|s| (std::cmp::Reverse(s.rss_pages), s.pid));
        let mut found = Residency { not_looked_at: rest, ..Residency::default() };
        for (index, process) in processes.iter().enumerate() {
            if index == PROCESSES_MAX || start.elapsed() > TIME_MAX {
                found.not_looked_at += processes.len() - index;
                break;
            }
            let (root, pid) = (self.root.clone(), process.pid);
            let Ok(read) = self.aside.ask(pid, move || numa_maps::read(&root, pid)) else {
                found.unreadable += 1;
                continue;
            };
            match read {
                Ok(Some(mappings)) => {
                    let kib_by_node = by_node(&mappings);
                    let (pid, comm) = (process.pid, process.comm.clone());
                    let away = away(&self.root, &self.topology, (pid, &comm), &kib_by_node);
                    found.processes.push(Resident { pid, comm, kib_by_node, away });
                }
                Ok(None) => {}
                Err(_) => found.unreadable += 1,
            }
        }
        Ok(found)
    }
}

/// KiB of all mappings by node.
pub(crate) fn by_node(mappings: &[Mapping]) -> BTreeMap<NodeId, u64> {
    let mut kib: BTreeMap<NodeId, u64> = BTreeMap::new();
    for mapping in mappings {
        for &(node, pages) in &mapping.pages {
            let sum = kib.entry(node).or_default();
            *sum = sum.saturating_add(pages.saturating_mul(mapping.page_kib));
        }
    }
    kib
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine with processes of these numbers of resident pages, all on node 2 except one page
    /// on node 0.
    fn machine(rss: &[u64]) -> (tempfile::TempDir, Residencies) {
        let folder = tempfile::tempdir().unwrap();
        for (pid, pages) in (100..).zip(rss) {
            let at = folder.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&at).unwrap();
            let fields: Vec<String> =
                (4..30).map(|n| if n == 24 { pages.to_string() } else { "1".to_owned() }).collect();
            fs::write(at.join("stat"), format!("{pid} (p{pid}) S {}", fields.join(" "))).unwrap();
            let maps = format!(
                "1000 default anon=1 N0=1 kernelpagesize_kB=4\n2000 default anon=1 N2={} kernelpagesize_kB=4\n",
                pages - 1
            );
            fs::write(at.join("numa_maps"), maps).unwrap();
        }
        let scopes = Scopes::new(&[]).unwrap();
        let residencies = Residencies::new(&Root::at(folder.path()), crate::away::tests::topology(), scopes);
        (folder, residencies)
    }

    #[test]
    fn the_largest_processes_are_told_by_node() {
        let rss: Vec<u64> = (1..=20).map(|n| n * 10).collect();
        let (_folder, mut residencies) = machine(&rss);
        let found = residencies.look().unwrap();
        assert_eq!((found.processes.len(), found.not_looked_at), (PROCESSES_MAX, 4));
        let first = &found.processes[0];
        assert_eq!((first.pid, first.comm.as_str()), (Pid(119), "p119"));
        assert_eq!(first.kib_by_node, BTreeMap::from([(NodeId(0), 4), (NodeId(2), 199 * 4)]));
        assert_eq!(serde_json::to_value(first).unwrap()["kib_by_node"]["2"], 796);
    }

    #[test]
    fn threads_away_from_their_memory_are_named() {
        let (folder, mut residencies) = machine(&[100_000]);
        let maps = "1000 default anon=1 N1=90000 N2=10000 kernelpagesize_kB=4\n";
        fs::write(folder.path().join("proc/100/numa_maps"), maps).unwrap();
        crate::away::tests::put(&Root::at(folder.path()), 100, &[0, 1]);
        let found = residencies.look().unwrap();
        let away = found.processes[0].away.as_ref().unwrap();
        assert_eq!((away.memory_node, away.threads.len()), (NodeId(1), 2));
    }

    #[test]
    fn a_process_whose_mappings_never_come_is_left_out() {
        let (folder, mut residencies) = machine(&[10, 20, 30]);
        // Opening a pipe for reading blocks until it has a writer.
        let pipe = folder.path().join("proc/101/numa_maps");
        fs::remove_file(&pipe).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(residencies.look().unwrap()));
        let found = told.recv_timeout(Duration::from_secs(20)).expect("status waits for a process");
        assert_eq!(found.processes[0].pid, Pid(102));
        assert!(found.processes.iter().all(|process| process.pid != Pid(101)));
        assert_eq!(found.unreadable, 1);
    }

    #[test]
    fn a_look_is_good_for_a_while_and_what_is_gone_is_left_out() {
        let (folder, mut residencies) = machine(&[10, 20]);
        fs::remove_file(folder.path().join("proc/100/numa_maps")).unwrap();
        let found = residencies.look().unwrap();
        assert_eq!(found.processes.len(), 1);
        fs::remove_dir_all(folder.path().join("proc/101")).unwrap();
        let again = residencies.look().unwrap();
        assert_eq!(again.processes, found.processes, "it is too early for another look");
        residencies.last = None;
        assert!(residencies.look().unwrap().processes.is_empty());
    }
}
