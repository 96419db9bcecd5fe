//! kswapd on machines that are folders.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use thermocline_core::config::Scope;
use thermocline_core::topology::Node;
use thermocline_core::units::TierId;

use super::*;
use crate::actuator::Lock;
use crate::actuator::door::{Door, Live};

/// A kernel that resets failed attempts when demotion is switched on, or does not.
struct Kernel {
    root: Root,
    forgets: bool,
}

impl Door for Kernel {
    fn read(&self, path: &Path) -> io::Result<String> {
        Live.read(path)
    }

    fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        if self.forgets && value == "true" && path.ends_with("demotion_enabled") {
            zoneinfo(&self.root, [0, 0, 0]);
        }
        Live.write(path, value)
    }

    fn reaches_kernel(&self) -> bool {
        true
    }
}

fn zoneinfo(root: &Root, given_up: [u8; 3]) {
    let zone = |(node, given_up): (usize, &u8)| {
        format!("Node {node}, zone   Normal\n        managed  1000\n  node_unreclaimable:  {given_up}\n")
    };
    let text: String = given_up.iter().enumerate().map(zone).collect();
    fs::write(root.proc.join("zoneinfo"), text).unwrap();
}

fn topology() -> Topology {
    let node = |id: u16, tier| Node {
        id: NodeId(id),
        tier: TierId(tier),
        cpus: Vec::new(),
        capacity_pages: 1000,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10; 3],
    };
    Topology::new(vec![node(0, 0), node(1, 0), node(2, 1)]).unwrap()
}

/// Nodes 0 and 1 are the top tier, demotion is on, and we are in cgroup /service.
struct Machine {
    _dir: tempfile::TempDir,
    root: Root,
    actuator: Actuator,
    kswapd: Kswapd,
    now: Nanos,
}

impl Machine {
    fn new(forgets: bool, scopes: usize, may_change: bool) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let pid = root.own_pid().0;
        for (path, text) in [
            ("proc/sys/kernel/random/boot_id", "boot".to_owned()),
            ("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n".to_owned()),
            (&format!("proc/{pid}/cgroup"), "0::/service\n".to_owned()),
            ("sys/fs/cgroup/service/cgroup.procs", format!("{pid}\n")),
            ("sys/fs/cgroup/service/memory.reclaim", String::new()),
            ("sys/kernel/mm/numa/demotion_enabled", "true\n".to_owned()),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(&root.run).unwrap();
        zoneinfo(&root, [1, 0, 1]);
        let config = Config { scope: vec![Scope::default(); scopes], ..Config::default() };
        let lock = Lock::acquire(&root, &root.run.join("thermocline")).unwrap();
        let door = Kernel { root: root.clone(), forgets };
        let (actuator, _) = Actuator::with_door(&root, lock, Box::new(door)).unwrap();
        let kswapd = Kswapd::new(&root, &config, may_change);
        Machine { _dir: dir, root, actuator, kswapd, now: Nanos(0) }
    }

    fn put(&self, path: &str, text: &str) {
        fs::write(self.root.sys.join(path), text).unwrap();
    }

    fn look(&mut self) -> Option<String> {
        self.now = self.now.plus(LOOK_EVERY);
        self.kswapd.look(self.now, &topology(), &mut self.actuator)
    }

    /// The message when the attempt started by a check has ended.
    fn attempt(&mut self) -> String {
        let begun = Instant::now();
        let mut told = self.look();
        while told.is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no attempt was made");
            std::thread::sleep(Duration::from_millis(5));
            told = self.kswapd.look(self.now, &topology(), &mut self.actuator);
        }
        told.unwrap()
    }
}

#[test]
fn a_kernel_that_forgets_is_only_told_anew_that_it_may_demote() {
    let mut m = Machine::new(true, 2, true);
    let told = m.attempt();
    assert_eq!(told, "kswapd had given up on node 0 and is back: demotion was switched off and on again");
    let stats = m.kswapd.stats();
    assert_eq!((stats.given_up, stats.brought_back, stats.why), (vec![], 1, None));
    let demotion = fs::read_to_string(demotion_enabled(&m.root)).unwrap();
    assert_eq!(demotion.trim(), "true", "as it was before");
    assert_eq!(fs::read_to_string(m.root.sys.join("fs/cgroup/service/memory.reclaim")).unwrap(), "");
    assert_eq!(m.look(), None);
}

#[test]
fn pages_of_our_own_are_reclaimed_where_that_does_not_help() {
    let mut m = Machine::new(false, 2, true);
    let told = m.attempt();
    assert!(
        told.starts_with("kswapd has given up on node 0: ") && told.contains("1000 times 128 KiB"),
        "{told}"
    );
    let command = fs::read_to_string(m.root.sys.join("fs/cgroup/service/memory.reclaim")).unwrap();
    assert_eq!(command, "131072 swappiness=200\n");
    assert!(m.kswapd.has_given_up() && m.kswapd.stats().why.is_some());
    // Once a minute, and nothing is reported in between.
    for _ in 0..5 {
        assert_eq!(m.look(), None);
    }
    assert!(m.attempt().contains("given up on node 0"));
    zoneinfo(&m.root, [0, 0, 1]);
    assert_eq!((m.look(), m.kswapd.stats()), (None, KswapdStats::default()));
}

#[test]
fn nobody_elses_memory_is_reclaimed_where_scopes_are_named() {
    let mut m = Machine::new(false, 1, true);
    m.put("fs/cgroup/service/cgroup.procs", &format!("1\n{}\n", m.root.own_pid().0));
    assert!(m.attempt().contains("others share our cgroup (/service)"));
    assert_eq!(fs::read_to_string(m.root.sys.join("fs/cgroup/service/memory.reclaim")).unwrap(), "");
    let mut m = Machine::new(false, 0, true);
    m.put("fs/cgroup/service/cgroup.procs", "1\n");
    assert!(m.attempt().contains("1000 times"), "without scopes nobody is excluded");
}

#[test]
fn it_is_said_once_why_nothing_is_tried() {
    let mut m = Machine::new(true, 0, false);
    assert!(m.look().is_some_and(|told| told.contains("revive_kswapd is false")));
    assert_eq!((m.look(), m.kswapd.has_given_up()), (None, true));
    let mut m = Machine::new(true, 0, true);
    m.put("kernel/mm/numa/demotion_enabled", "false\n");
    assert!(m.look().is_some_and(|told| told.contains("demotion is off")));
    assert_eq!(m.look(), None);
    m.put("kernel/mm/numa/demotion_enabled", "true\n");
    assert!(m.attempt().contains("is back"));
}

#[test]
fn a_node_of_a_lower_tier_is_not_ours_to_look_after() {
    let mut m = Machine::new(true, 0, true);
    zoneinfo(&m.root, [0, 0, 1]);
    assert_eq!((m.look(), m.kswapd.has_given_up()), (None, false));
}
