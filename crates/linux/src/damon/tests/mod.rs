//! DAMON against a sysfs in memory that makes and removes folders as the kernel's does.

mod cgroups;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex};

use thermocline_core::config::{self, Config, ManagerName};

use super::*;
use crate::actuator::door::Door;
use crate::actuator::{Commands, Fate, Lock, RestoreReport};
use crate::manager::refusal;
use crate::topology::discover;

/// What mm/damon/sysfs.c has in a context of Linux 6.12, with one scheme, one filter and one goal;
/// `#` stands for a number, and each `nr_` file makes the numbered folders beside it.
const TREE: [&str; 40] = [
    "#/state",
    "#/contexts/nr_contexts",
    "#/contexts/#/operations",
    "#/contexts/#/monitoring_attrs/intervals/sample_us",
    "#/contexts/#/monitoring_attrs/intervals/aggr_us",
    "#/contexts/#/monitoring_attrs/intervals/update_us",
    "#/contexts/#/monitoring_attrs/nr_regions/min",
    "#/contexts/#/monitoring_attrs/nr_regions/max",
    "#/contexts/#/targets/nr_targets",
    "#/contexts/#/targets/#/pid_target",
    "#/contexts/#/targets/#/regions/nr_regions",
    "#/contexts/#/targets/#/regions/#/start",
    "#/contexts/#/targets/#/regions/#/end",
    "#/contexts/#/schemes/nr_schemes",
    "#/contexts/#/schemes/#/action",
    "#/contexts/#/schemes/#/target_nid",
    "#/contexts/#/schemes/#/access_pattern/sz/min",
    "#/contexts/#/schemes/#/access_pattern/sz/max",
    "#/contexts/#/schemes/#/access_pattern/nr_accesses/min",
    "#/contexts/#/schemes/#/access_pattern/nr_accesses/max",
    "#/contexts/#/schemes/#/access_pattern/age/min",
    "#/contexts/#/schemes/#/access_pattern/age/max",
    "#/contexts/#/schemes/#/quotas/ms",
    "#/contexts/#/schemes/#/quotas/bytes",
    "#/contexts/#/schemes/#/quotas/reset_interval_ms",
    "#/contexts/#/schemes/#/quotas/weights/sz_permil",
    "#/contexts/#/schemes/#/quotas/weights/nr_accesses_permil",
    "#/contexts/#/schemes/#/quotas/weights/age_permil",
    "#/contexts/#/schemes/#/quotas/goals/nr_goals",
    "#/contexts/#/schemes/#/quotas/goals/#/target_metric",
    "#/contexts/#/schemes/#/quotas/goals/#/target_value",
    "#/contexts/#/schemes/#/watermarks/metric",
    "#/contexts/#/schemes/#/watermarks/interval_us",
    "#/contexts/#/schemes/#/watermarks/high",
    "#/contexts/#/schemes/#/watermarks/mid",
    "#/contexts/#/schemes/#/watermarks/low",
    "#/contexts/#/schemes/#/filters/nr_filters",
    "#/contexts/#/schemes/#/filters/#/type",
    "#/contexts/#/schemes/#/filters/#/matching",
    "#/contexts/#/schemes/#/filters/#/memcg_path",
];
/// Additional files of newer kernels.
const NEWER: [&str; 6] = [
    "#/contexts/#/schemes/#/filters/#/allow",
    "#/contexts/#/schemes/#/quotas/goals/#/nid",
    "#/contexts/#/monitoring_attrs/intervals/intervals_goal/access_bp",
    "#/contexts/#/monitoring_attrs/intervals/intervals_goal/aggrs",
    "#/contexts/#/monitoring_attrs/intervals/intervals_goal/min_sample_us",
    "#/contexts/#/monitoring_attrs/intervals/intervals_goal/max_sample_us",
];
const STATS: [&str; 3] = ["sz_tried", "sz_applied", "qt_exceeds"];

#[derive(Debug, Default)]
struct Kernel {
    tree: Vec<&'static str>,
    admin: PathBuf,
    values: BTreeMap<PathBuf, String>,
    /// A value that is refused wherever it is written, with an errno.
    refused: Option<(String, i32)>,
    writes: usize,
    /// Cgroup paths in the filters that each kdamond last took over.
    cgroups: BTreeMap<PathBuf, Vec<String>>,
}

impl Kernel {
    /// Takes the filters of a kdamond over. A cgroup that is not there is an error (Linux
    /// mm/damon/sysfs-schemes.c, damon_sysfs_memcg_path_to_id).
    fn commit(&mut self, kdamond: &Path) -> Result<(), i32> {
        let hierarchy = self.admin.ancestors().nth(5).unwrap().join("fs/cgroup");
        let paths = self.values.iter().filter(|(path, value)| {
            path.starts_with(kdamond) && path.ends_with("memcg_path") && **value != "0"
        });
        let paths: Vec<String> = paths.map(|(_, value)| value.clone()).collect();
        if paths.iter().any(|path| !hierarchy.join(path.trim_start_matches('/')).exists()) {
            return Err(libc::EINVAL);
        }
        self.cgroups.insert(kdamond.to_owned(), paths);
        Ok(())
    }

    fn running(&self) -> bool {
        self.values.iter().any(|(path, value)| path.ends_with("state") && value == "on")
    }

    fn write(&mut self, path: &Path, value: &str) -> Result<(), i32> {
        self.writes += 1;
        if let Some((_, errno)) = self.refused.as_ref().filter(|(refused, _)| refused == value) {
            return Err(*errno);
        }
        if !self.values.contains_key(path) {
            return Err(libc::ENOENT);
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.starts_with(&self.admin) && name.starts_with("nr_") {
            let number: usize = value.parse().map_err(|_| libc::EINVAL)?;
            if self.running() && name == "nr_kdamonds" {
                return Err(libc::EBUSY);
            }
            self.make(path.parent().unwrap(), number);
        }
        if name == "state" {
            match value {
                "on" if self
                    .values
                    .iter()
                    .any(|(p, v)| p.ends_with("damon_stat/parameters/enabled") && v == "Y") =>
                {
                    return Err(libc::EBUSY);
                }
                "on" => self.commit(path.parent().unwrap())?,
                "off" => {}
                "commit" if self.values[path] == "on" => return self.commit(path.parent().unwrap()),
                "update_schemes_stats" if self.values[path] == "on" => return Ok(()),
                _ => return Err(libc::EINVAL),
            }
        }
        self.values.insert(path.to_owned(), value.to_owned());
        Ok(())
    }

    /// Recreates `number` folders.
    fn make(&mut self, folder: &Path, number: usize) {
        let numbered = |path: &Path| {
            let first = path.strip_prefix(folder).ok().and_then(|rest| rest.components().next());
            first.is_some_and(|first| first.as_os_str().to_str().is_some_and(|s| s.parse::<u32>().is_ok()))
        };
        self.values.retain(|path, _| !numbered(path));
        let pattern = |path: &Path| {
            let words = path.strip_prefix(&self.admin).unwrap().iter().map(|w| w.to_str().unwrap());
            words.map(|w| if w.parse::<u32>().is_ok() { "#" } else { w }).collect::<Vec<_>>().join("/")
        };
        let here = pattern(folder);
        let prefix = if here.is_empty() { "#/".to_owned() } else { format!("{here}/#/") };
        let stats = if here.ends_with("schemes") { &STATS[..] } else { &[] };
        for i in 0..number {
            let new = folder.join(i.to_string());
            for rest in self.tree.iter().filter_map(|p| p.strip_prefix(&prefix)).filter(|r| !r.contains('#'))
            {
                let value = if rest == "state" { "off" } else { "0" };
                self.values.insert(new.join(rest), value.to_owned());
            }
            for name in stats {
                self.values.insert(new.join("stats").join(name), "0".to_owned());
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Fake(Arc<Mutex<Kernel>>);

impl Door for Fake {
    fn read(&self, path: &Path) -> io::Result<String> {
        let kernel = self.0.lock().unwrap();
        kernel.values.get(path).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        self.0.lock().unwrap().write(path, value).map_err(io::Error::from_raw_os_error)
    }

    fn reaches_kernel(&self) -> bool {
        true
    }
}

struct Machine {
    _dir: tempfile::TempDir,
    root: Root,
    kernel: Fake,
    config: Config,
}

impl Machine {
    /// Nodes 0 and 1 of DRAM, the second larger, and node 2, as far from both.
    fn new(newer: bool) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let mut tree = TREE.to_vec();
        tree.extend(if newer { &NEWER[..] } else { &[] });
        let kernel = Fake(Arc::new(Mutex::new(Kernel { tree, admin: kdamonds(&root), ..Kernel::default() })));
        let machine = Machine { _dir: dir, root, kernel, config: Config::default() };
        let mut zoneinfo = String::new();
        for (node, pages, start, distances) in
            [(0, 1000, 256, "10 12 35"), (1, 2000, 4096, "12 10 35"), (2, 9000, 8192, "35 35 10")]
        {
            let folder = format!("sys/devices/system/node/node{node}");
            machine.put(&format!("{folder}/distance"), distances);
            machine.put(&format!("{folder}/cpulist"), if node == 2 { "" } else { "0" });
            machine.put(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: {} kB", pages * 4));
            zoneinfo.push_str(&format!(
                "Node {node}, zone   Normal\n  pages free     10\n        min      1\n        low      2\n        high     3\n        \
                 spanned  {pages}\n        present  {pages}\n        managed  {pages}\n  start_pfn:           {start}\n"
            ));
        }
        machine.put("proc/zoneinfo", &zoneinfo);
        machine.put("proc/sys/kernel/random/boot_id", "this boot");
        machine.put("proc/sys/kernel/osrelease", if newer { "7.2.13-amd64" } else { "6.12.117+deb12-amd64" });
        machine.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0");
        for name in ["online", "possible", "has_memory"] {
            machine.put(&format!("sys/devices/system/node/{name}"), "0-2");
        }
        machine.put("sys/devices/system/node/has_cpu", "0-1");
        machine.put("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1");
        machine.put("sys/devices/virtual/memory_tiering/memory_tier105/nodelist", "2");
        machine.put("proc/sys/kernel/numa_balancing", "1");
        machine.put("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0");
        fs::create_dir_all(&machine.root.run).unwrap();
        machine
    }

    /// Writes a file, for readers and for the kernel.
    fn put(&self, path: &str, text: &str) {
        let path = self._dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{text}\n")).unwrap();
        self.kernel.0.lock().unwrap().values.insert(path, text.to_owned());
    }

    fn value(&self, path: &str) -> String {
        self.kernel.read(&self._dir.path().join(path)).unwrap()
    }

    fn kdamond(&self, path: &str) -> String {
        self.value(&format!("sys/kernel/mm/damon/admin/kdamonds/{path}"))
    }

    fn values(&self) -> BTreeMap<PathBuf, String> {
        self.kernel.0.lock().unwrap().values.clone()
    }

    fn start(&self) -> (Actuator, RestoreReport) {
        let lock = Lock::acquire(&self.root, &self.root.run.join("thermocline")).unwrap();
        Actuator::with_door(&self.root, lock, Box::new(self.kernel.clone())).unwrap()
    }

    fn offer(&self) -> Result<Setup, NotDamon> {
        offer(&self.root, &self.config, &discover(&self.root, &self.config.tiers).unwrap())
    }
}

#[test]
fn hmsdks_two_schemes_are_set_up_and_all_is_put_back() {
    let m = Machine::new(false);
    let before = m.values();
    let setup = m.offer().unwrap();
    let told = setup.told();
    assert_eq!(told.len(), 3);
    assert_eq!(told[0], "kdamond 0: migrate_cold from node 0 to node 2");
    assert_eq!(told[2], "kdamond 2: migrate_hot from node 2 to node 1", "of two as near the larger");
    assert!(setup.plan.to_string().contains("echo 0 > "), "{}", setup.plan);

    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    assert_eq!(
        (m.kdamond("nr_kdamonds"), m.value("proc/sys/kernel/numa_balancing")),
        ("3".into(), "0".into())
    );
    for (path, value) in [
        ("state", "on"),
        ("contexts/0/operations", "paddr"),
        ("contexts/0/monitoring_attrs/intervals/aggr_us", "2000000"),
        ("contexts/0/monitoring_attrs/nr_regions/max", "10000"),
        // Frames 8192 to 17192.
        ("contexts/0/targets/0/regions/0/start", "33554432"),
        ("contexts/0/targets/0/regions/0/end", "70418432"),
        ("contexts/0/schemes/0/action", "migrate_hot"),
        ("contexts/0/schemes/0/target_nid", "1"),
        // 5 % of 20 samples.
        ("contexts/0/schemes/0/access_pattern/nr_accesses/min", "1"),
        ("contexts/0/schemes/0/access_pattern/nr_accesses/max", "20"),
        ("contexts/0/schemes/0/quotas/ms", "2000"),
        ("contexts/0/schemes/0/quotas/bytes", "53687091200"),
        ("contexts/0/schemes/0/quotas/weights/age_permil", "10"),
        ("contexts/0/schemes/0/filters/0/type", "young"),
        ("contexts/0/schemes/0/filters/0/matching", "N"),
        ("contexts/0/schemes/0/watermarks/metric", "0"),
    ] {
        assert_eq!(m.kdamond(&format!("2/{path}")), value, "{path}");
    }
    for (path, value) in [
        ("action", "migrate_cold"),
        ("target_nid", "2"),
        ("access_pattern/nr_accesses/max", "0"),
        // 30 s of 2 s each.
        ("access_pattern/age/min", "15"),
        ("quotas/ms", "1000"),
        ("filters/0/matching", "Y"),
    ] {
        assert_eq!(m.kdamond(&format!("0/contexts/0/schemes/0/{path}")), value, "{path}");
    }
    let report = actuator.restore();
    assert!(report.is_complete() && report.values.iter().all(|r| r.fate == Fate::PutBack), "{report}");
    assert_eq!(m.values(), before);
}

#[test]
fn hot_regions_go_to_the_node_that_is_named() {
    let mut m = Machine::new(false);
    m.config.manager.damon.target_nid = Some(0);
    assert_eq!(m.offer().unwrap().told()[2], "kdamond 2: migrate_hot from node 2 to node 0");
    m.config.manager.damon.target_nid = Some(2);
    let error = m.offer().unwrap_err().to_string();
    assert!(error.contains("manager.damon.target_nid is 2") && error.contains("one of 0, 1"), "{error}");
}

#[test]
fn a_killed_daemons_kdamonds_are_ended_by_the_next_start() {
    let mut m = Machine::new(true);
    m.put("sys/module/damon_stat/parameters/enabled", "Y");
    let error = m.offer().unwrap_err().to_string();
    assert!(error.contains("manager.damon.stop_damon_stat = true"), "{error}");
    m.config.manager.damon.stop_damon_stat = true;
    let before = m.values();
    let setup = m.offer().unwrap();
    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    assert_eq!(m.value("sys/module/damon_stat/parameters/enabled"), "N");
    actuator.crash();
    let (_actuator, report) = m.start();
    assert!(report.is_complete() && report.values.len() == 6, "{report}");
    assert_eq!(m.values(), before);
}

#[test]
fn whatever_step_fails_nothing_is_left() {
    // Refused by value: the number, an action, a filter, and switching on.
    for (value, errno) in
        [("3", libc::ENOMEM), ("migrate_hot", libc::EINVAL), ("young", libc::EINVAL), ("on", libc::EBUSY)]
    {
        let m = Machine::new(false);
        let before = m.values();
        let setup = m.offer().unwrap();
        let (mut actuator, _) = m.start();
        m.kernel.0.lock().unwrap().refused = Some((value.to_owned(), errno));
        let error = setup.start(&m.root, &mut actuator).unwrap_err().to_string();
        assert!(error.contains(&format!("cannot write {value} to ")), "{error}");
        assert!(error.ends_with("the settings changed before it were put back"), "{error}");
        assert_eq!(m.values(), before, "{value}");
    }
}

#[test]
fn what_only_newer_kernels_have_is_refused_on_older_ones() {
    for newer in [true, false] {
        let mut m = Machine::new(newer);
        m.config.manager.damon.used_goal_bp = Some(9970);
        m.config.manager.damon.free_goal_bp = Some(50);
        m.config.manager.damon.access_goal_bp = Some(400);
        let before = m.values();
        let (mut actuator, _) = m.start();
        let started = m.offer().unwrap().start(&m.root, &mut actuator);
        if newer {
            started.unwrap();
            let goal = |path: &str| m.kdamond(&format!("{path}/contexts/0/schemes/0/quotas/goals/0/nid"));
            assert_eq!((goal("0"), goal("2")), ("0".to_owned(), "1".to_owned()));
            continue;
        }
        let error = started.unwrap_err().to_string();
        assert!(error.contains("unset the key that asks for it"), "{error}");
        assert_eq!(m.values(), before);
    }
}

#[test]
fn numa_balancing_is_left_alone_where_there_is_none_or_nobody_asks() {
    let names =
        |m: &Machine| -> Vec<&str> { m.offer().unwrap().plan.changes.iter().map(|c| c.name).collect() };
    let mut m = Machine::new(false);
    assert_eq!(names(&m), ["numa_balancing", "nr_kdamonds"]);
    m.config.manager.damon.numa_balancing = None;
    assert_eq!(names(&m), ["nr_kdamonds"]);
    m.config.manager.damon.numa_balancing = Some(0);
    fs::remove_file(m.root.proc.join("sys/kernel/numa_balancing")).unwrap();
    assert_eq!(names(&m), ["nr_kdamonds"]);
}

#[test]
fn kdamonds_of_others_are_left_alone() {
    let m = Machine::new(false);
    m.put("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1");
    let writes = m.kernel.0.lock().unwrap().writes;
    let error = m.offer().unwrap_err().to_string();
    assert!(error.contains("nr_kdamonds is 1: somebody else") && error.contains("damo stop"), "{error}");
    m.put("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0");
    m.put("sys/module/damon_reclaim/parameters/enabled", "Y");
    let error = m.offer().unwrap_err().to_string();
    assert!(error.starts_with("damon_reclaim runs") && !error.contains("stop_damon_stat"), "{error}");
    assert_eq!(m.kernel.0.lock().unwrap().writes, writes);
    // A kernel without DAMON.
    fs::remove_dir_all(m.root.sys.join("kernel/mm/damon")).unwrap();
    let error = m.offer().unwrap_err().to_string();
    assert!(error.contains("does not offer DAMON's sysfs interface") && error.contains("6.11"), "{error}");
}

#[test]
fn who_takes_over_is_refused_for_kdamonds_of_others_and_not_for_those_that_end() {
    const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
    let mut m = Machine::new(false);
    m.config.manager.name = ManagerName::Damon;
    let found = discover(&m.root, &m.config.tiers).unwrap();
    let refusal = |m: &Machine, actuator: &Actuator| refusal(&m.root, &m.config, &found, actuator);
    let (mut actuator, _) = m.start();
    assert_eq!(refusal(&m, &actuator), None);
    m.put(KDAMONDS, "1");
    let why = refusal(&m, &actuator).unwrap();
    assert!(why.contains("somebody else has set up DAMON"), "{why}");
    m.put(KDAMONDS, "0");
    m.offer().unwrap().start(&m.root, &mut actuator).unwrap();
    m.put(KDAMONDS, "3");
    assert_eq!(refusal(&m, &actuator), None);
    // An operation that the kernel refuses in general stays refused.
    m.config.manager.name = ManagerName::Numab2;
    m.config.scope = vec![config::Scope { cgroup: Some("/box".into()), ..Default::default() }];
    let why = refusal(&m, &actuator).unwrap();
    assert!(why.contains("knows no scopes"), "{why}");
}

#[test]
fn what_schemes_moved_is_read_and_stays_when_a_kdamond_has_ended() {
    let m = Machine::new(false);
    let setup = m.offer().unwrap();
    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    let commands = Commands::with_door(&m.root, Box::new(m.kernel.clone()));
    let numastat = |foreign: u32| {
        m.put(
            "sys/devices/system/node/node1/numastat",
            &format!("numa_hit 5\nnuma_miss 7\nnuma_foreign {foreign}"),
        );
    };
    numastat(100);
    let mut stats = Stats::new(&m.root, &setup, commands);
    let stat = |kdamond: u32, name: &str, value: &str| {
        m.put(
            &format!("sys/kernel/mm/damon/admin/kdamonds/{kdamond}/contexts/0/schemes/0/stats/{name}"),
            value,
        );
    };
    stat(2, "sz_applied", "40960");
    stat(2, "sz_tried", "81920");
    stat(1, "sz_applied", "4096");
    let read = stats.read();
    assert_eq!((read.moved(Action::MigrateHot), read.moved(Action::MigrateCold), read.running), (10, 1, 3));
    assert_eq!(read.schemes[2].tried_pages, 20);
    // Four of the pages may have gone elsewhere, because node 1 was full.
    numastat(104);
    assert_eq!(stats.read().moved(Action::MigrateHot), 6);
    numastat(100);
    assert_eq!(stats.read().moved(Action::MigrateHot), 10);
    // Busy: the last figures stay, and all run.
    m.kernel.0.lock().unwrap().refused = Some(("update_schemes_stats".to_owned(), libc::EBUSY));
    stat(2, "sz_applied", "81920");
    let read = stats.read();
    assert_eq!((read.moved(Action::MigrateHot), read.running), (10, 3));
    m.kernel.0.lock().unwrap().refused = None;
    m.put("sys/kernel/mm/damon/admin/kdamonds/2/state", "off");
    stat(2, "sz_applied", "nonsense");
    let read = stats.read();
    assert_eq!((read.moved(Action::MigrateHot), read.running, read.started), (10, 2, 3));
}
