//! The worker against a kernel of files.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{fs, io};

use thermocline_core::demand::Allowance;
use thermocline_core::demotion::{OVER_PAGES, Reach, Subtree};
use thermocline_core::units::{Nanos, NodeId, PAGE_SIZE, ScopeId};

use super::*;
use crate::actuator::door::Door;

/// A kernel that demotes as asked, from one list of generations per cgroup.
#[derive(Clone)]
struct Kernel {
    root: Root,
    state: Arc<Mutex<State>>,
}

/// (seq, age in ms when the machine was made, pages)
type Generation = (u64, i64, u64);

struct State {
    /// By cgroup number: path and generations, oldest first.
    lists: Vec<(u64, &'static str, Vec<Generation>)>,
    made: Instant,
    demoted: u64,
    enabled: bool,
    /// CPU time of aging.
    aging: Duration,
    /// Share of the pages asked for that were accessed meanwhile, in percent.
    accessed_percent: u64,
    commands: Vec<String>,
    fails: Option<i32>,
    /// The nodes that programs of `/a` may have memory on.
    mems: &'static str,
}

impl Door for Kernel {
    fn read(&self, path: &Path) -> io::Result<String> {
        let state = self.state.lock().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        Ok(match name {
            "lru_gen" => {
                let since_ms = state.made.elapsed().as_millis() as i64;
                let line = |(seq, age, pages): &Generation| format!("{seq} {} {pages} 0\n", age + since_ms);
                let one = |(id, path, list): &(u64, &str, Vec<_>)| {
                    format!("memcg {id} {path}\n node 0\n{}", list.iter().map(line).collect::<String>())
                };
                state.lists.iter().map(one).collect()
            }
            "demotion_enabled" => state.enabled.to_string(),
            "cpuset.mems.effective" if path.ends_with("fs/cgroup/a/cpuset.mems.effective") => {
                state.mems.to_owned()
            }
            "cpuset.mems.effective" => return Err(io::ErrorKind::NotFound.into()),
            "stat_refresh" => String::new(),
            "vmstat" => format!("pgdemote_direct {}\n", state.demoted),
            other => panic!("read {other}"),
        })
    }

    fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.commands.push(value.to_owned());
        if let Some(errno) = state.fails {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if path == self.root.sys.join("devices/system/node/node0/reclaim") {
            return state.reclaim(value);
        }
        assert_eq!(path, self.root.debugfs().join("lru_gen"));
        let words: Vec<&str> = value.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().unwrap();
        let (kept, aging) = (state.accessed_percent, state.aging);
        let since_ms = state.made.elapsed().as_millis() as i64;
        let list = &mut state.lists.iter_mut().find(|l| l.0 == number(1)).unwrap().2;
        if words[0] == "+" {
            let cpu = thread_cpu_time();
            while thread_cpu_time().since(cpu).0 < aging.as_nanos() as u64 {}
            list.push((number(3) + 1, -since_ms, 0));
            return Ok(());
        }
        let (mut left, mut gone) = (number(5), 0);
        for generation in list.iter_mut().filter(|g| g.0 <= number(3)) {
            let taken = generation.2.min(left);
            generation.2 -= taken;
            left -= taken;
            gone += taken * (100 - kept) / 100;
        }
        state.demoted += gone;
        Ok(())
    }

    fn reaches_kernel(&self) -> bool {
        true
    }
}

impl State {
    /// Demotes the oldest pages of any cgroup and any age; EAGAIN if there are not enough.
    fn reclaim(&mut self, command: &str) -> io::Result<()> {
        let bytes = command.strip_suffix(" swappiness=200").unwrap();
        let mut left = bytes.parse::<u64>().unwrap() / PAGE_SIZE;
        for generation in self.lists.iter_mut().flat_map(|list| &mut list.2) {
            let taken = generation.2.min(left);
            generation.2 -= taken;
            left -= taken;
            self.demoted += taken;
        }
        if left > 0 { Err(io::Error::from_raw_os_error(libc::EAGAIN)) } else { Ok(()) }
    }
}

const SECOND: i64 = 1000;

/// Two cgroups; `/b` has the colder pages.
fn machine() -> (tempfile::TempDir, Kernel) {
    let dir = tempfile::tempdir().unwrap();
    let a = vec![(4, 60 * SECOND, 2000), (5, 30 * SECOND, 100), (6, 12 * SECOND, 0), (7, 3 * SECOND, 900)];
    let b = vec![(1, 90 * SECOND, 300), (2, 80 * SECOND, 0), (3, 15 * SECOND, 50)];
    let state = State {
        lists: vec![(1, "/a", a), (9, "/b/x", b)],
        made: Instant::now(),
        demoted: 0,
        enabled: true,
        aging: Duration::ZERO,
        accessed_percent: 0,
        commands: Vec::new(),
        fails: None,
        mems: "0-2",
    };
    let proc = dir.path().join("proc/self");
    fs::create_dir_all(&proc).unwrap();
    fs::write(proc.join("mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
    let kernel = Kernel { root: Root::at(dir.path()), state: Arc::new(Mutex::new(state)) };
    (dir, kernel)
}

fn worker(kernel: &Kernel, reach: Reach) -> ByGenerations {
    ByGenerations::new(
        &kernel.root,
        reach,
        vec![NodeId(2)],
        Commands::with_door(&kernel.root, Box::new(kernel.clone())),
    )
}

fn demand(pages: u64, idle_s: u64) -> Demand {
    let idle = Nanos::from_s(idle_s);
    Demand { id: 1, node: NodeId(0), pages, idle, allowances: Vec::new(), braked: Vec::new(), only: None }
}

fn commands(kernel: &Kernel) -> Vec<String> {
    kernel.state.lock().unwrap().commands.clone()
}

#[test]
fn the_coldest_cgroup_goes_first_in_steps_until_enough_has_gone() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let done = worker(&kernel, Reach::default()).carry_out(&demand(1000, 10), || false, &mut stats);
    assert_eq!(done.unwrap().pages, 1000);
    // /b/x is as old as asked for, so that it is aged; the step that found too little there is not
    // tried again.
    assert_eq!(
        commands(&kernel),
        ["+ 9 0 3", "- 9 0 2 200 128", "- 9 0 2 200 256", "- 1 0 5 200 512", "- 1 0 5 200 188"]
    );
    assert_eq!((stats.agings, stats.evictions, stats.demoted_pages), (1, 4, 1000));
}

/// `/a` is busy and has the oldest pages by a little; `/b/x` is not accessed at all.
#[test]
fn of_cgroups_that_are_idle_for_about_as_long_the_one_that_is_idle_as_a_whole_goes_first() {
    let (_dir, kernel) = machine();
    let busy =
        vec![(4, 60 * SECOND, 1000), (5, 31 * SECOND, 0), (6, 12 * SECOND, 4000), (7, 3 * SECOND, 900)];
    let cold = vec![(1, 60 * SECOND, 1000), (2, 30 * SECOND, 0), (3, 3 * SECOND, 20)];
    kernel.state.lock().unwrap().lists = vec![(1, "/a", busy.clone()), (9, "/b/x", cold)];
    let mut stats = DemoterStats::default();
    let mut worker = worker(&kernel, Reach::default());
    assert_eq!(worker.carry_out(&demand(1000, 10), || false, &mut stats).unwrap().pages, 1000);
    assert!(commands(&kernel).iter().all(|c| c.starts_with("- 9 ")), "{:?}", commands(&kernel));
    // By more than that, age decides.
    let younger = vec![(1, 20 * SECOND, 1000), (2, 15 * SECOND, 0), (3, 3 * SECOND, 20)];
    kernel.state.lock().unwrap().lists = vec![(1, "/a", busy), (9, "/b/x", younger)];
    kernel.state.lock().unwrap().commands.clear();
    assert_eq!(worker.carry_out(&demand(500, 10), || false, &mut stats).unwrap().pages, 500);
    assert!(commands(&kernel).iter().all(|c| c.starts_with("- 1 ")), "{:?}", commands(&kernel));
}

#[test]
fn other_scopes_hold_from_the_next_demand_on_and_no_demand_is_lost() {
    let (_dir, kernel) = machine();
    let offer = Offer { reach: Reach::default(), way: Way::Generations };
    let commands_of = Commands::with_door(&kernel.root, Box::new(kernel.clone()));
    let mut demoter = Demoter::start(&kernel.root, offer, vec![NodeId(2)], commands_of).unwrap();
    let carried_out = |demoter: &mut Demoter, id| {
        assert!(demoter.submit(Demand { id, ..demand(100, 10) }).is_none());
        let done = demoter.done.recv_timeout(Duration::from_secs(20)).unwrap();
        demoter.in_flight -= 1;
        assert_eq!(done.id, id);
        done
    };
    assert_eq!(carried_out(&mut demoter, 1).pages, 100);
    assert!(commands(&kernel).iter().any(|command| command.contains(" 9 ")), "/b/x is colder");
    kernel.state.lock().unwrap().commands.clear();
    demoter.set_reach(Reach { only: vec![subtree("/a", 3, false)], never: Vec::new() });
    let done = carried_out(&mut demoter, 2);
    assert_eq!((done.pages, done.by_scope), (100, vec![(ScopeId(3), 100)]));
    assert!(commands(&kernel).iter().all(|command| command.contains(" 1 ")), "{:?}", commands(&kernel));
}

fn subtree(path: &str, scope: u16, floor: bool) -> Subtree {
    Subtree { path: path.to_owned(), scope: ScopeId(scope), floor }
}

#[test]
fn pages_that_were_looked_at_long_ago_are_looked_at_twice_the_idle_time_apart() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let mut worker = worker(&kernel, Reach { only: vec![subtree("/a", 1, false)], ..Reach::default() });
    let idle = Nanos::from_ms(150);
    let begun = Instant::now();
    worker.carry_out(&Demand { idle, ..demand(100, 0) }, || false, &mut stats).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert_eq!(commands(&kernel), ["+ 1 0 7", "+ 1 0 8", "- 1 0 7 200 100"], "7 is the last that is older");
    // Not so long ago, once is enough.
    std::thread::sleep(Duration::from_millis(160));
    kernel.state.lock().unwrap().commands.clear();
    worker.carry_out(&Demand { idle, ..demand(100, 0) }, || false, &mut stats).unwrap();
    assert_eq!(commands(&kernel)[..2], ["+ 1 0 9", "- 1 0 8 200 100"]);
}

#[test]
fn what_aging_takes_keeps_nothing_from_going() {
    let (_dir, kernel) = machine();
    kernel.state.lock().unwrap().aging = Duration::from_millis(150);
    let mut stats = DemoterStats::default();
    let done = worker(&kernel, Reach::default()).carry_out(&demand(100, 10), || false, &mut stats);
    assert_eq!((done.unwrap().pages, stats.agings), (100, 1));
}

#[test]
fn what_is_not_idle_for_long_enough_stays() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let mut worker = worker(&kernel, Reach::default());
    assert_eq!(worker.carry_out(&demand(9000, 100), || false, &mut stats).unwrap().pages, 0);
    assert_eq!(commands(&kernel), [""; 0]);
    assert_eq!(worker.carry_out(&demand(9000, 25), || false, &mut stats).unwrap().pages, 2000 + 300);
    assert!(commands(&kernel).iter().all(|c| !c.starts_with("- 1 0 5")), "generation 5 ended 12 s ago");
}

#[test]
fn cgroups_out_of_reach_are_left_alone() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let reach = Reach { only: vec![subtree("/b", 1, false)], ..Reach::default() };
    assert_eq!(worker(&kernel, reach).carry_out(&demand(9000, 10), || false, &mut stats).unwrap().pages, 300);
    assert!(commands(&kernel).iter().all(|c| c.starts_with("+ 9") || c.starts_with("- 9")));
}

/// For reclaim, memory of a cgroup without its own memory controller belongs to its parent.
#[test]
fn memory_that_an_excluded_cgroup_has_charged_to_one_above_stays_with_all_of_that() {
    let (dir, kernel) = machine();
    fs::create_dir_all(dir.path().join("sys/fs/cgroup/a/x")).unwrap();
    fs::write(dir.path().join("sys/fs/cgroup/a/memory.current"), "0").unwrap();
    let mut stats = DemoterStats::default();
    let reach = Reach { never: vec!["/a/x".to_owned()], ..Reach::default() };
    let mut worker = worker(&kernel, reach);
    assert_eq!(worker.carry_out(&demand(9000, 10), || false, &mut stats).unwrap().pages, 300);
    assert!(commands(&kernel).iter().all(|c| c.starts_with("+ 9") || c.starts_with("- 9")));
    // With its own controller it is distinguished.
    fs::write(dir.path().join("sys/fs/cgroup/a/x/memory.current"), "0").unwrap();
    assert!(worker.carry_out(&demand(9000, 10), || false, &mut stats).unwrap().pages > 0);
}

#[test]
fn a_cpuset_without_the_lower_node_keeps_its_memory_up() {
    let (_dir, kernel) = machine();
    kernel.state.lock().unwrap().mems = "0-1";
    let mut stats = DemoterStats::default();
    assert_eq!(
        worker(&kernel, Reach::default()).carry_out(&demand(9000, 10), || false, &mut stats).unwrap().pages,
        300
    );
    assert!(commands(&kernel).iter().all(|c| c.starts_with("+ 9") || c.starts_with("- 9")));
    assert_eq!(stats.kept_by_cpuset, 3000);
}

/// `/a` has a floor, and so much above it that the demand may take it.
fn with_floor(pages: u64) -> (Reach, Demand) {
    let scope = ScopeId(1);
    let reach = Reach { only: vec![subtree("/a", 1, true), subtree("/b", 2, false)], ..Reach::default() };
    let allowances = if pages == 0 { Vec::new() } else { vec![Allowance { scope, pages }] };
    (reach, Demand { allowances, ..demand(9000, 10) })
}

#[test]
fn a_scope_at_its_floor_is_out_of_reach() {
    for pages in [0, 5, OVER_PAGES] {
        let (_dir, kernel) = machine();
        let mut stats = DemoterStats::default();
        let (reach, demand) = with_floor(pages);
        assert_eq!(worker(&kernel, reach).carry_out(&demand, || false, &mut stats).unwrap().pages, 300);
        assert!(commands(&kernel).iter().all(|c| c.starts_with("+ 9") || c.starts_with("- 9")));
        assert_eq!(stats.kept_by_floor, 3000);
    }
}

#[test]
fn no_more_is_asked_for_than_is_above_the_floor() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let (reach, demand) = with_floor(OVER_PAGES + 700);
    assert_eq!(worker(&kernel, reach).carry_out(&demand, || false, &mut stats).unwrap().pages, 300 + 700);
    let asked_of_a = |kernel: &Kernel| {
        let asked = commands(kernel).into_iter().filter_map(|c| c.strip_prefix("- 1 0 5 200 ")?.parse().ok());
        asked.collect::<Vec<u64>>()
    };
    assert_eq!(asked_of_a(&kernel), [512, 188]);
    // Pages asked for count even if they were accessed meanwhile.
    let (_dir, kernel) = machine();
    kernel.state.lock().unwrap().accessed_percent = 60;
    let (reach, demand) = with_floor(OVER_PAGES + 700);
    worker(&kernel, reach).carry_out(&demand, || false, &mut stats).unwrap();
    assert!(asked_of_a(&kernel).iter().sum::<u64>() <= 700);
}

#[test]
fn a_braked_scope_gives_what_its_brake_leaves_it_and_what_came_from_whom_is_told() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let reach = Reach { only: vec![subtree("/a", 1, false), subtree("/b", 2, false)], ..Reach::default() };
    let limited = |pages| Demand { braked: vec![Allowance { scope: ScopeId(1), pages }], ..demand(9000, 10) };
    let taken = worker(&kernel, reach.clone()).carry_out(&limited(0), || false, &mut stats).unwrap();
    assert_eq!(taken.by_scope.into_iter().collect::<Vec<_>>(), [(ScopeId(2), 300)]);
    assert!(commands(&kernel).iter().all(|c| c.starts_with("+ 9") || c.starts_with("- 9")));
    assert_eq!((stats.kept_by_brake, stats.kept_by_floor), (3000, 0));
    let taken = worker(&kernel, reach).carry_out(&limited(700), || false, &mut stats).unwrap();
    assert_eq!((taken.pages, taken.by_scope.into_iter().collect::<Vec<_>>()), (700, vec![(ScopeId(1), 700)]));
}

/// What is above a scope's cap is asked of that scope alone, however cold others are.
#[test]
fn a_demand_for_one_scope_ages_and_evicts_nobody_elses_memory() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let reach = Reach { only: vec![subtree("/a", 1, false), subtree("/b", 2, false)], ..Reach::default() };
    let only = |scope, pages| Demand { only: Some(ScopeId(scope)), ..demand(pages, 10) };
    let mut worker = worker(&kernel, reach);
    let taken = worker.carry_out(&only(1, 500), || false, &mut stats).unwrap();
    assert_eq!((taken.pages, taken.by_scope.into_iter().collect::<Vec<_>>()), (500, vec![(ScopeId(1), 500)]));
    assert!(commands(&kernel).iter().all(|c| c.starts_with("+ 1 ") || c.starts_with("- 1 ")));
    let taken = worker.carry_out(&only(2, 9000), || false, &mut stats).unwrap();
    assert_eq!(taken.by_scope.into_iter().collect::<Vec<_>>(), [(ScopeId(2), 300)]);
    assert_eq!(worker.carry_out(&only(3, 9000), || false, &mut stats).unwrap().pages, 0, "nobody is in it");
    assert_eq!((stats.kept_by_floor, stats.kept_by_brake), (0, 0), "others are not asked");
}

#[test]
fn nothing_is_evicted_once_demotion_is_switched_off() {
    let (_dir, kernel) = machine();
    kernel.state.lock().unwrap().enabled = false;
    let mut stats = DemoterStats::default();
    assert_eq!(
        worker(&kernel, Reach::default()).carry_out(&demand(9, 1), || false, &mut stats).unwrap().pages,
        0
    );
    assert_eq!((stats.demotion_off, stats.evictions), (1, 0));
}

#[test]
fn pages_that_were_accessed_meanwhile_are_not_asked_for_for_ever() {
    let (_dir, kernel) = machine();
    kernel.state.lock().unwrap().accessed_percent = 100;
    let mut stats = DemoterStats::default();
    assert_eq!(
        worker(&kernel, Reach::default()).carry_out(&demand(9000, 10), || false, &mut stats).unwrap().pages,
        0
    );
    assert_eq!(stats.evictions, 2, "one a cgroup");
}

#[test]
fn a_generation_that_has_gone_is_passed_over_and_a_broken_kernel_is_told() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let mut worker = worker(&kernel, Reach::default());
    for (n, errno) in [libc::EINVAL, libc::EEXIST, libc::ENOMEM].into_iter().enumerate() {
        kernel.state.lock().unwrap().fails = Some(errno);
        assert_eq!(worker.carry_out(&demand(100, 10), || false, &mut stats).unwrap().pages, 0);
        assert_eq!(stats.refused, 3 * (n as u64 + 1), "{errno}");
    }
    kernel.state.lock().unwrap().fails = Some(libc::EIO);
    assert_eq!(
        worker.carry_out(&demand(100, 10), || false, &mut stats).unwrap_err().raw_os_error(),
        Some(libc::EIO)
    );
}

#[test]
fn a_way_is_given_up_when_it_fails_again_and_again_and_every_demand_is_answered() {
    let (_dir, kernel) = machine();
    let door = Commands::with_door(&kernel.root, Box::new(kernel.clone()));
    let offer = Offer { reach: Reach::default(), way: Way::Generations };
    let mut demoter = Demoter::start(&kernel.root, offer, vec![NodeId(2)], door).unwrap();
    let mut ask = |fails: Option<i32>| {
        kernel.state.lock().unwrap().fails = fails;
        assert_eq!(demoter.submit(demand(100, 10)), None);
        loop {
            if let Some(done) = demoter.outcomes().pop() {
                break (done.pages, demoter.failure());
            }
        }
    };
    for _ in 1..FAILURES_MAX {
        assert_eq!(ask(Some(libc::EIO)), (0, None), "it may pass");
    }
    assert_eq!(ask(None), (100, None), "and has passed");
    for _ in 1..FAILURES_MAX {
        assert_eq!(ask(Some(libc::EIO)), (0, None));
    }
    let (pages, failure) = ask(Some(libc::EIO));
    assert!(pages == 0 && failure.is_some_and(|why| why.contains("os error 5")));
    assert_eq!(ask(None).0, 0, "it has been given up");
    assert!(demoter.shutdown(Duration::from_secs(10)).1);
}

fn by_node(kernel: &Kernel) -> ByNode {
    ByNode::new(&kernel.root, Commands::with_door(&kernel.root, Box::new(kernel.clone())))
}

#[test]
fn a_node_is_reclaimed_from_in_steps_until_enough_has_gone_or_nothing_more_is_found() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    let done = by_node(&kernel).carry_out(&demand(1000, 10), || false, &mut stats).unwrap();
    assert_eq!((done.pages, stats.demoted_pages, stats.refused), (1000, 1000, 0));
    let pages = |command: &String| command.split_once(' ').unwrap().0.parse::<u64>().unwrap() / PAGE_SIZE;
    assert_eq!(commands(&kernel).iter().map(pages).collect::<Vec<_>>(), [128, 256, 512, 104]);
    // 2350 pages are left.
    let done = by_node(&kernel).carry_out(&demand(9000, 10), || false, &mut stats).unwrap();
    assert_eq!((done.pages, stats.refused), (2350, 1));
    let done = by_node(&kernel).carry_out(&demand(9000, 10), || false, &mut stats).unwrap();
    assert_eq!((done.pages, stats.refused), (0, 2), "once, and no more");
}

#[test]
fn a_node_is_not_reclaimed_from_once_demotion_is_switched_off_or_where_the_kernel_fails() {
    let (_dir, kernel) = machine();
    let mut stats = DemoterStats::default();
    kernel.state.lock().unwrap().enabled = false;
    assert_eq!(by_node(&kernel).carry_out(&demand(9, 1), || false, &mut stats).unwrap().pages, 0);
    assert_eq!((stats.demotion_off, stats.evictions), (1, 0));
    kernel.state.lock().unwrap().enabled = true;
    assert_eq!(by_node(&kernel).carry_out(&demand(9, 1), || true, &mut stats).unwrap().pages, 0, "stopped");
    for errno in [libc::EIO, libc::EINVAL] {
        kernel.state.lock().unwrap().fails = Some(errno);
        let failed = by_node(&kernel).carry_out(&demand(9, 1), || false, &mut stats).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(errno), "a command that is not understood is told");
    }
}
