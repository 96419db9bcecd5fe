//! Schemes that keep to cgroups, as these come and go.

use super::*;

fn scope(path: &str, exclude: bool) -> config::Scope {
    config::Scope { cgroup: Some(path.to_owned()), exclude, ..config::Scope::default() }
}

impl Machine {
    fn cgroup(&self, path: &str) {
        self.put(&format!("sys/fs/cgroup{path}/memory.stat"), "");
    }

    /// The filters of node 2's scheme, as its kdamond would read them now: kind, matching, cgroup.
    fn filters(&self) -> Vec<String> {
        let folder = "2/contexts/0/schemes/0/filters";
        let number: usize = self.kdamond(&format!("{folder}/nr_filters")).parse().unwrap();
        let of = |n: usize, name: &str| self.kdamond(&format!("{folder}/{n}/{name}"));
        (0..number)
            .map(|n| format!("{} {} {}", of(n, "type"), of(n, "matching"), of(n, "memcg_path")))
            .collect()
    }

    /// The cgroups in a kdamond's filters.
    fn told(&self, kdamond: usize) -> Vec<String> {
        let kernel = self.kernel.0.lock().unwrap();
        kernel.cgroups[&kernel.admin.join(kdamond.to_string())].clone()
    }
}

#[test]
fn schemes_keep_from_excluded_cgroups_as_they_come_and_go() {
    let mut m = Machine::new(false);
    m.cgroup("/a");
    m.config.scope = vec![scope("/a", true), scope("/later", true)];
    let before = m.values();
    let setup = m.offer().unwrap();
    assert_eq!(setup.told()[3], "all pages but those charged to /a may move");
    let caveats: Vec<_> = setup.caveats().collect();
    assert!(caveats[0].contains("made later") && caveats[1].contains("memory policies"), "{caveats:?}");
    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    assert_eq!(m.filters(), ["memcg Y /a", "young N 0"]);
    assert_eq!((m.told(0), m.told(2)), (vec!["/a".to_owned()], vec!["/a".to_owned()]));

    let mut follower = setup.follower().unwrap();
    let writes = || m.kernel.0.lock().unwrap().writes;
    let written = writes();
    assert_eq!(follower.look(&m.root, &mut actuator), None);
    assert_eq!(writes(), written, "nothing has changed");
    m.cgroup("/later/inner");
    m.cgroup("/later");
    let told = follower.look(&m.root, &mut actuator).unwrap();
    assert_eq!(told, "all pages but those charged to /a, /later, /later/inner may move");
    for kdamond in 0..3 {
        assert_eq!(m.told(kdamond), ["/a", "/later", "/later/inner"]);
    }
    // The kernel refuses: the filters stay, and it is reported once.
    m.kernel.0.lock().unwrap().refused = Some(("commit".to_owned(), libc::EINVAL));
    fs::remove_dir_all(m.root.sys.join("fs/cgroup/later")).unwrap();
    let told = follower.look(&m.root, &mut actuator).unwrap();
    assert!(told.starts_with("filters stay as they were: cannot write commit to "), "{told}");
    assert_eq!(follower.look(&m.root, &mut actuator), None);
    m.kernel.0.lock().unwrap().refused = None;
    let told = follower.look(&m.root, &mut actuator).unwrap();
    assert_eq!(told, "all pages but those charged to /a may move");
    assert_eq!(m.told(1), ["/a"]);
    // Somebody ends a kdamond: the others go on.
    m.put("sys/kernel/mm/damon/admin/kdamonds/0/state", "off");
    m.cgroup("/a/b");
    follower.look(&m.root, &mut actuator).unwrap();
    assert_eq!((m.told(0), m.told(2)), (vec!["/a".to_owned()], vec!["/a".to_owned(), "/a/b".to_owned()]));
    // And creates others.
    m.put("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "2");
    fs::remove_dir_all(m.root.sys.join("fs/cgroup/a/b")).unwrap();
    let written = writes();
    assert_eq!(follower.look(&m.root, &mut actuator), None);
    assert_eq!(writes(), written);
    m.put("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "3");
    drop(actuator);
    let mut after = m.values();
    after.retain(|path, _| !path.starts_with(m.root.sys.join("fs/cgroup")));
    let mut before = before;
    before.retain(|path, _| !path.starts_with(m.root.sys.join("fs/cgroup")));
    assert_eq!(after, before, "all of it is put back");
}

#[test]
fn schemes_keep_to_cgroups_as_far_as_the_kernel_can() {
    let mut m = Machine::new(true);
    m.config.scope = vec![scope("/a", false), scope("/b", false)];
    let setup = m.offer().unwrap();
    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    assert_eq!(m.filters(), ["anon Y 0", "anon N 0"], "nobody is there yet");
    m.cgroup("/b");
    let mut follower = setup.follower().unwrap();
    follower.look(&m.root, &mut actuator).unwrap();
    assert_eq!(m.filters(), ["memcg N /b", "young N 0"]);
    m.cgroup("/a");
    follower.look(&m.root, &mut actuator).unwrap();
    assert_eq!(m.filters(), ["young N 0", "memcg Y /a", "memcg Y /b", "anon Y 0", "anon N 0"]);
    assert_eq!(m.kdamond("2/contexts/0/schemes/0/filters/1/allow"), "Y");
    drop(actuator);

    // An older kernel: two are refused, and a second one that appears later is left out.
    let mut m = Machine::new(false);
    m.config.scope = vec![scope("/a", false), scope("/b", false)];
    m.cgroup("/b");
    let setup = m.offer().unwrap();
    let (mut actuator, _) = m.start();
    setup.start(&m.root, &mut actuator).unwrap();
    let mut follower = setup.follower().unwrap();
    m.cgroup("/a");
    let told = follower.look(&m.root, &mut actuator).unwrap();
    assert!(told.contains("before 6.14") && told.contains("/a, /b"), "{told}");
    assert_eq!(m.told(2), ["/b"]);
    assert!(actuator.restore().is_complete());
    let writes = m.kernel.0.lock().unwrap().writes;
    let error = m.offer().unwrap_err().to_string();
    assert!(error.contains("exclude the others instead"), "{error}");
    m.config.scope = vec![config::Scope { pids: vec![1], ..config::Scope::default() }];
    assert!(m.offer().unwrap_err().to_string().starts_with("scope[0].pids is more than DAMON knows"));
    assert_eq!(m.kernel.0.lock().unwrap().writes, writes);
}
