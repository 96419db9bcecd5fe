//! Kdamonds of the source: of nodes, and of processes one after the other.

use thermocline_core::units::Pid;

use super::*;

#[test]
fn the_source_watches_every_node_and_does_nothing_about_it() {
    let mut m = Machine::new(true);
    let found = discover(&m.root, &m.config.tiers).unwrap();
    m.put("sys/module/damon_stat/parameters/enabled", "Y");
    let refused = offer_source(&m.root, &m.config, &found).unwrap_err().to_string();
    assert!(refused.contains("source.damon.stop_damon_stat = true"), "{refused}");
    m.config.source.damon.stop_damon_stat = true;
    m.config.source.damon.access_goal_bp = Some(400);
    let before = m.values();
    let (setup, watch) = offer_source(&m.root, &m.config, &found).unwrap();
    assert_eq!(watch, Spaces::Nodes(vec![NodeId(0), NodeId(1), NodeId(2)]));
    assert_eq!((setup.kdamonds, setup.told().len()), (3, 0));

    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    for (path, value) in [
        ("nr_kdamonds", "3"),
        ("2/state", "on"),
        ("2/contexts/0/operations", "paddr"),
        ("2/contexts/0/monitoring_attrs/intervals/sample_us", "5000"),
        ("2/contexts/0/monitoring_attrs/intervals/intervals_goal/access_bp", "400"),
        ("2/contexts/0/monitoring_attrs/nr_regions/max", "1000"),
        ("2/contexts/0/targets/0/regions/0/start", "33554432"),
        ("2/contexts/0/schemes/nr_schemes", "0"),
    ] {
        assert_eq!(m.kdamond(path), value, "{path}");
    }
    assert_eq!(m.value("sys/module/damon_stat/parameters/enabled"), "N");
    assert_eq!(m.value("proc/sys/kernel/numa_balancing"), "1", "that is for [kernel] to say");
    assert!(actuator.restore().is_complete());
    drop(actuator);
    assert_eq!(m.values(), before);
}

#[test]
fn processes_are_watched_one_by_one_and_all_is_put_back() {
    let mut m = Machine::new(false);
    m.config.source.damon.addresses = config::DamonAddresses::Virtual;
    m.config.source.damon.processes_max = 2;
    let found = discover(&m.root, &m.config.tiers).unwrap();
    let before = m.values();
    let (setup, spaces) = offer_source(&m.root, &m.config, &found).unwrap();
    assert_eq!((spaces, setup.kdamonds), (Spaces::Processes(2), 0));
    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    assert_eq!((m.kdamond("nr_kdamonds"), m.kdamond("1/state")), ("2".into(), "off".into()));
    assert_eq!(m.kdamond("1/contexts/0/operations"), "fvaddr");
    assert_eq!(m.kdamond("1/contexts/0/targets/0/regions/nr_regions"), "0");

    let mut pool = Pool::new(2);
    let target = "1/contexts/0/targets/0/pid_target";
    for pid in [100, 101, 102] {
        pool.watch(&m.root, &mut actuator, 1, Pid(pid)).unwrap();
        assert_eq!((m.kdamond("1/state"), m.kdamond(target)), ("on".into(), pid.to_string()));
        // Its process has ended, or it is switched off.
        if pid == 100 {
            m.put("sys/kernel/mm/damon/admin/kdamonds/1/state", "off");
        } else {
            pool.end(&m.root, &mut actuator, 1).unwrap();
        }
        assert_eq!(m.kdamond("1/state"), "off");
    }
    pool.watch(&m.root, &mut actuator, 0, Pid(103)).unwrap();
    // A killed daemon's are switched off by the next start, and those that were off do not matter.
    actuator.crash();
    let (_actuator, report) = m.start();
    assert!(report.is_complete() && report.values.len() == 3, "{report}");
    assert_eq!(m.values(), before);
}

#[test]
fn kdamonds_that_are_not_ours_any_more_watch_nobody_for_us() {
    let mut m = Machine::new(false);
    m.config.source.damon.addresses = config::DamonAddresses::Virtual;
    m.config.source.damon.processes_max = 2;
    let found = discover(&m.root, &m.config.tiers).unwrap();
    let (setup, _) = offer_source(&m.root, &m.config, &found).unwrap();
    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    let mut pool = Pool::new(2);
    pool.watch(&m.root, &mut actuator, 0, Pid(100)).unwrap();
    let kdamond = |path: &str| format!("sys/kernel/mm/damon/admin/kdamonds/{path}");
    for (path, theirs, ours) in
        [("nr_kdamonds", "3", "2"), ("1/state", "on", "off"), ("1/contexts/0/targets/0/pid_target", "7", "0")]
    {
        m.put(&kdamond(path), theirs);
        let writes = m.kernel.0.lock().unwrap().writes;
        let refused = pool.watch(&m.root, &mut actuator, 1, Pid(101)).unwrap_err();
        assert!(matches!(refused, PoolError::NotOurs), "{path}: {refused}");
        assert_eq!(m.kernel.0.lock().unwrap().writes, writes);
        m.put(&kdamond(path), ours);
    }
    // Somebody has the kdamond watch another process.
    m.put(&kdamond("0/contexts/0/targets/0/pid_target"), "7");
    pool.end(&m.root, &mut actuator, 0).unwrap();
    assert_eq!(m.kdamond("0/state"), "on");
    m.put(&kdamond("0/state"), "off");
    m.kernel.0.lock().unwrap().refused = Some(("on".to_owned(), libc::EINVAL));
    m.put(&kdamond("0/contexts/0/targets/0/pid_target"), "100");
    assert!(matches!(pool.watch(&m.root, &mut actuator, 0, Pid(101)), Err(PoolError::Refused(_))));
    assert_eq!(m.kdamond("0/state"), "off");
}
