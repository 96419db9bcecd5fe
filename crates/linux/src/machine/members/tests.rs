//! Random trees of processes and cgroups that change under the daemon: in any case no batch has
//! pages of an excluded or unexamined process.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proptest::prelude::*;
use thermocline_core::access::{Access, Detail, FaultLatency, NoMappings};
use thermocline_core::config::Config;
use thermocline_core::engine::Engine;
use thermocline_core::moves::{BatchOutcome, Outcome};
use thermocline_core::topology::{Node, NodeState, Topology};
use thermocline_core::units::{Nanos, NodeId, Pfn, ScopeId, TierId, VirtPage};

use super::*;
use crate::aside::Answer;
use crate::scope::{Examined, Known, Traits, examine};

const NAMES: [&str; 3] = ["sh", "hotcold", "redis"];
const CGROUPS: [&str; 4] = ["/", "/a", "/a/b", "/c"];
const PIDS: u32 = 8;

/// The content of the kernel's filter.
#[derive(Default)]
struct Told {
    included: RefCell<BTreeSet<Pid>>,
    excluded: RefCell<BTreeSet<Pid>>,
    cgroups: RefCell<BTreeMap<(bool, usize), PathBuf>>,
    scope: RefCell<Option<Scope>>,
}

impl Filter for Told {
    fn include(&self, pid: Pid, listed: bool) -> bool {
        let mut list = self.included.borrow_mut();
        if listed {
            list.insert(pid)
        } else {
            list.remove(&pid)
        };
        true
    }

    fn exclude(&self, pid: Pid, excluded: bool) -> bool {
        let mut list = self.excluded.borrow_mut();
        if excluded {
            list.insert(pid)
        } else {
            list.remove(&pid)
        };
        true
    }

    fn set_cgroup(&self, place: usize, excluded: bool, folder: Option<PathBuf>) -> bool {
        let mut cgroups = self.cgroups.borrow_mut();
        match folder {
            Some(folder) => drop(cgroups.insert((excluded, place), folder)),
            None => drop(cgroups.remove(&(excluded, place))),
        }
        true
    }

    fn set_filter(&self, scope: &Scope) -> bool {
        *self.scope.borrow_mut() = Some(scope.clone());
        true
    }
}

#[derive(Clone, Copy, Debug)]
struct Process {
    start: u64,
    name: usize,
    cgroup: usize,
    /// The daemon may believe that it has examined it.
    looked_at: bool,
    /// It has changed without notice: the mover finds out.
    untold: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// A process with this number starts, replacing the former one.
    Start {
        pid: u32,
        name: usize,
        cgroup: usize,
    },
    /// A process of the same kind as another starts.
    Fork {
        of: u32,
        pid: u32,
    },
    /// It runs another program, and the kernel reports it.
    Exec {
        pid: u32,
        name: usize,
    },
    /// The same, but the kernel's report is lost.
    Rename {
        pid: u32,
        name: usize,
    },
    /// It goes to another cgroup.
    Move {
        pid: u32,
        cgroup: usize,
    },
    Exit {
        pid: u32,
        told: bool,
    },
    /// A cgroup is recreated with the same name.
    Remake {
        cgroup: usize,
    },
    Look,
    /// The daemon ends and another one begins.
    Restart,
    /// Other scopes are configured.
    Reload(Vec<config::Scope>),
    /// Memory of all processes is accessed, and batches are made.
    Run,
}

fn step() -> impl Strategy<Value = Step> {
    let (pid, name, cgroup) = (1..=PIDS, 0..NAMES.len(), 0..CGROUPS.len());
    prop_oneof![
        3 => (pid.clone(), name.clone(), cgroup.clone()).prop_map(|(pid, name, cgroup)| Step::Start { pid, name, cgroup }),
        2 => (pid.clone(), pid.clone()).prop_map(|(of, pid)| Step::Fork { of, pid }),
        2 => (pid.clone(), name.clone()).prop_map(|(pid, name)| Step::Exec { pid, name }),
        1 => (pid.clone(), name).prop_map(|(pid, name)| Step::Rename { pid, name }),
        1 => (pid.clone(), cgroup.clone()).prop_map(|(pid, cgroup)| Step::Move { pid, cgroup }),
        1 => (pid, any::<bool>()).prop_map(|(pid, told)| Step::Exit { pid, told }),
        1 => cgroup.prop_map(|cgroup| Step::Remake { cgroup }),
        4 => Just(Step::Look),
        1 => Just(Step::Restart),
        2 => prop::collection::vec(scope(), 0..4).prop_map(Step::Reload),
        5 => Just(Step::Run),
    ]
}

/// A scope of any kind, with or without a name.
fn scope() -> impl Strategy<Value = config::Scope> {
    let command = prop::option::of((0..NAMES.len()).prop_map(|n| NAMES[n].to_owned()));
    let cgroup = prop::option::of((0..CGROUPS.len()).prop_map(|n| CGROUPS[n].to_owned()));
    let pids = prop::collection::vec(1..=PIDS, 0..2);
    let fields = (any::<bool>(), pids, command, cgroup, any::<bool>());
    let scope = fields.prop_map(|(named, pids, command, cgroup, exclude)| {
        let name = if named { format!("{pids:?}{cgroup:?}") } else { String::new() };
        config::Scope { name, pids, command, cgroup, exclude, ..config::Scope::default() }
    });
    scope.prop_filter("names nobody", |s| !s.pids.is_empty() || s.command.is_some() || s.cgroup.is_some())
}

struct World {
    dir: tempfile::TempDir,
    config: Config,
    engine: Engine,
    managed: Managed,
    filter: Told,
    processes: BTreeMap<u32, Process>,
    now: Nanos,
    starts: u64,
    /// Numbers of processes whose end was not reported.
    stale: BTreeSet<u32>,
    /// Batches made so far.
    batches: usize,
}

fn topology() -> Topology {
    let node = |id: u16| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus: Vec::new(),
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    Topology::new(vec![node(0), node(1)]).unwrap()
}

impl World {
    /// `None` if two scopes have one name.
    fn new(scopes: Vec<config::Scope>) -> Option<World> {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(root.proc.join("self")).unwrap();
        fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        for path in CGROUPS {
            fs::create_dir_all(root.sys.join("fs/cgroup").join(&path[1..])).unwrap();
        }
        let mut config = Config { scope: scopes, ..Config::default() };
        config.rule.name = thermocline_core::config::RuleName::Latency;
        config.admission.rate_limit_mbps = 65_536;
        config.admission.residency_ms = 0;
        config.brake.enabled = false;
        let engine = Engine::new(&config, topology()).unwrap();
        let (_, managed) = Managed::new(&root, &config.scope).ok()?;
        Some(World {
            dir,
            config,
            engine,
            managed,
            filter: Told::default(),
            processes: BTreeMap::new(),
            now: Nanos::from_s(100),
            starts: 0,
            stale: BTreeSet::new(),
            batches: 0,
        })
    }

    fn root(&self) -> Root {
        Root::at(self.dir.path())
    }

    /// Writes a process's present files; unexamined, if scopes depend on the change.
    fn write(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid) else { return };
        let folder = self.root().proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let (name, start) = (NAMES[process.name], process.start);
        let stat = format!("{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 1000 10 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("cmdline"), format!("{name}\0")).unwrap();
        fs::write(folder.join("cgroup"), format!("0::{}\n", CGROUPS[process.cgroup])).unwrap();
    }

    fn start(&mut self, pid: u32, name: usize, cgroup: usize) {
        self.starts += 1;
        // The kernel has reported that the former process is gone.
        if self.processes.contains_key(&pid) {
            self.exit(pid, true);
        }
        let untold = self.stale.contains(&pid);
        self.processes.insert(pid, Process { start: self.starts, name, cgroup, looked_at: false, untold });
        self.write(pid);
    }

    fn exit(&mut self, pid: u32, told: bool) {
        if self.processes.remove(&pid).is_some() {
            fs::remove_dir_all(self.root().proc.join(pid.to_string())).unwrap();
        }
        if !told {
            self.stale.insert(pid);
        } else {
            self.stale.remove(&pid);
            self.managed.exit(Pid(pid), |evidence| self.engine.observe(evidence));
        }
    }

    fn look(&mut self) {
        let mut anew = true;
        while anew || self.managed.is_busy() {
            let filter = Some(&self.filter);
            self.managed.look(anew, || true, filter, |evidence| self.engine.observe(evidence)).unwrap();
            anew = false;
        }
        self.processes.values_mut().for_each(|process| (process.looked_at, process.untold) = (true, false));
        self.stale.clear();
    }

    fn happen(&mut self, step: Step) {
        match step {
            Step::Start { pid, name, cgroup } => self.start(pid, name, cgroup),
            Step::Fork { of, pid } => {
                if let Some(parent) = self.processes.get(&of).copied().filter(|_| of != pid) {
                    self.start(pid, parent.name, parent.cgroup);
                }
            }
            Step::Exec { pid, name } => {
                let Some(process) = self.processes.get_mut(&pid) else { return };
                let by_command = self.config.scope.iter().any(|scope| scope.command.is_some());
                process.looked_at &= !by_command;
                process.untold &= !by_command;
                process.name = name;
                self.write(pid);
                self.managed.exec(Pid(pid), |evidence| self.engine.observe(evidence));
            }
            Step::Rename { pid, name } => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    (process.name, process.untold) = (name, true);
                    self.write(pid);
                }
            }
            Step::Move { pid, cgroup } => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    (process.cgroup, process.untold) = (cgroup, true);
                    self.write(pid);
                }
            }
            Step::Exit { pid, told } => self.exit(pid, told),
            Step::Remake { cgroup } => {
                let folder = self.root().sys.join("fs/cgroup").join(&CGROUPS[cgroup][1..]);
                if cgroup > 1 {
                    let aside = folder.with_extension("aside");
                    fs::rename(&folder, &aside).unwrap();
                    fs::create_dir(&folder).unwrap();
                    fs::remove_dir_all(aside).unwrap();
                }
            }
            Step::Look => self.look(),
            Step::Restart => {
                self.engine = Engine::new(&self.config, topology()).unwrap();
                self.managed = Managed::new(&self.root(), &self.config.scope).unwrap().1;
                self.filter = Told::default();
                self.processes
                    .values_mut()
                    .for_each(|process| (process.looked_at, process.untold) = (false, false));
                self.stale.clear();
            }
            Step::Reload(scopes) => self.reload(scopes),
            Step::Run => self.run(),
        }
    }

    /// As the live machine does it. What the new scopes name is found out by the next look, and
    /// until then by the mover.
    fn reload(&mut self, scopes: Vec<config::Scope>) {
        let config = Config { scope: scopes, ..self.config.clone() };
        let Ok(new) = self.managed.prepare(&self.config.scope, &config.scope) else { return };
        if new.map.is_same() {
            return;
        }
        assert!(self.filter.set_filter(&new.filter));
        self.engine.reload(&config).unwrap();
        self.managed.set_scopes(new, Some(&self.filter));
        self.processes.values_mut().for_each(|process| process.untold = true);
        self.config = config;
    }

    /// Whether the mover would find the process in a scope, as it does right before a batch.
    fn mover_finds_it_in_scope(&self, pid: Pid) -> bool {
        let scopes = Scopes::new(&self.config.scope).unwrap();
        let command_line = |_| Answer::Here(crate::process::command_line(&self.root(), pid));
        let found = examine(&self.root(), &scopes, Pid(u32::MAX), pid, command_line).unwrap();
        matches!(found, Examined::Known(Known { membership: Membership::Managed(_), .. }))
    }

    /// The membership of a process by the configuration alone.
    fn truth(&self, process: &Process, pid: u32) -> Membership {
        let name = NAMES[process.name];
        Scopes::new(&self.config.scope).unwrap().membership(Traits {
            pid: Pid(pid),
            comm: name,
            command_line: name,
            cgroup: Some(CGROUPS[process.cgroup]),
        })
    }

    fn run(&mut self) {
        self.now = self.now.plus(Nanos::from_s(1));
        let wait = FaultLatency { time: Nanos::from_ms(1), faults: 0 };
        let access = |pid: u32| Access {
            time: self.now,
            pfn: Some(Pfn(u64::from(pid) * 1024)),
            page: Some(VirtPage { pid: Pid(pid), vpn: 7 }),
            order: 0,
            node: NodeId(1),
            accessor: Some(NodeId(0)),
            detail: Detail::HintFault { latency: Some(wait) },
        };
        // Also for processes that the filter would have dropped, and for those that are gone.
        let batch: Vec<Access> = (1..=PIDS).map(access).collect();
        self.engine.observe(Evidence::Accesses { batch: &batch, mappings: &NoMappings });
        let state = |id: u16| NodeState {
            node: NodeId(id),
            free_pages: 1 << 19,
            managed_pages: 1 << 20,
            ..NodeState::default()
        };
        for batch in self.engine.tick(self.now, &[state(0), state(1)]) {
            let pid = batch.pid.0;
            // The mover finds nothing of a process that is gone.
            if let Some(process) = self.processes.get(&pid) {
                let managed = matches!(self.truth(process, pid), Membership::Managed(_));
                if self.config.scope.is_empty() {
                    self.batches += 1;
                } else if process.untold {
                    assert_eq!(self.mover_finds_it_in_scope(batch.pid), managed);
                } else {
                    assert!(process.looked_at, "a batch of {pid}, which nobody has looked at: {process:?}");
                    assert!(managed, "a batch of {pid}, {process:?}");
                    self.batches += 1;
                }
            }
            let outcomes = vec![Outcome::Moved; batch.moves.len()];
            let done = BatchOutcome { id: batch.id, time: self.now, outcomes };
            self.engine.observe(Evidence::Outcome(&done));
        }
    }

    /// After a scan of an unchanging machine the engine has every process in its configured scope,
    /// and the filter passes no process that it knows to be excluded.
    fn agrees(&mut self) {
        self.look();
        for (pid, process) in &self.processes {
            let truth = self.truth(process, *pid);
            let managed = matches!(truth, Membership::Managed(_));
            assert_eq!(self.managed.in_scope(Pid(*pid)), managed, "{pid}: {process:?}");
            if self.managed.listed {
                assert_eq!(self.filter.included.borrow().contains(&Pid(*pid)), managed);
            } else {
                assert_eq!(self.filter.excluded.borrow().contains(&Pid(*pid)), !managed);
            }
        }
        let named = self.managed.scopes.cgroups(&self.root()).unwrap();
        if let Some(scope) = &*self.filter.scope.borrow() {
            assert_eq!((scope.listed, scope.all), (self.managed.listed, !self.managed.listed));
            assert_eq!(scope.cgroups.len() + scope.excluded_cgroups.len(), named.len());
        }
        assert_eq!(self.filter.cgroups.borrow().len(), named.iter().filter(|c| c.id.is_some()).count());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_page_moves_of_who_is_excluded_unexamined_or_out_of_scope(
        scopes in prop::collection::vec(scope(), 1..4),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let Some(mut world) = World::new(scopes) else { return Ok(()) };
        steps.into_iter().for_each(|step| world.happen(step));
        world.agrees();
        world.run();
    }
}

#[test]
fn who_is_in_scope_moves_after_an_exec_and_in_a_cgroup_that_is_made_anew() {
    let boxed = config::Scope { cgroup: Some("/a".to_owned()), ..config::Scope::default() };
    let mut world = World::new(vec![boxed]).unwrap();
    world.start(1, 0, 2);
    world.run();
    assert_eq!(world.batches, 0, "nobody has looked at it");
    world.look();
    world.run();
    world.happen(Step::Exec { pid: 1, name: 1 });
    world.run();
    world.happen(Step::Remake { cgroup: 2 });
    world.look();
    world.run();
    assert_eq!(world.batches, 3);
    assert_eq!(world.managed.members.as_ref().unwrap().membership(Pid(1)), Membership::Managed(ScopeId(1)));
}
