//! Findings that begin and end, and those about limits of processes and cgroups.

use thermocline_linux::doctor::Watch;
use thermocline_linux::finding::Change;

use super::*;

#[test]
fn what_begins_and_ends_under_a_watch_is_told() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/pressure/memory", "some avg10=0.00 total=1\nfull avg10=0.00 total=0\n");
    let mut watch = Watch::with(&machine.root, &config(&machine), &|_: &Root| Ok(attach_points(true)));
    let mut look = || {
        let told = watch.look();
        told.iter().map(|t| (t.finding.id.name(), t.change == Change::Began)).collect::<Vec<_>>()
    };
    let at_first = look();
    assert!(at_first.iter().all(|(_, began)| *began), "{at_first:?}");
    assert!(!at_first.iter().any(|(id, _)| *id == "others.daemon" || *id == "demotion.given_up"));
    assert_eq!(look(), [], "nothing has changed");

    machine.write("proc/500/stat", "500 (numad) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 10 0\n");
    let zones = std::fs::read_to_string(machine.root.proc.join("zoneinfo")).unwrap();
    machine.write("proc/zoneinfo", zones.replace("node_unreclaimable:  0", "node_unreclaimable:  1"));
    assert_eq!(look(), [("others.daemon", true), ("demotion.given_up", true)]);
    machine.remove("proc/pressure/memory");
    assert_eq!(look(), [("brake.no_pressure", true)]);
    machine.remove("proc/500");
    machine.write("proc/zoneinfo", zones);
    // Whatever has been told of within a minute is told of later.
    assert_eq!(look(), []);
}

#[test]
fn cgroups_limits_are_read_and_judged_where_reclaim_demotes() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    let group = |name: &str, amounts: [&str; 5]| {
        let files = ["memory.current", "memory.high", "memory.max", "memory.low", "memory.min"];
        for (file, amount) in files.into_iter().zip(amounts) {
            machine.write(&format!("sys/fs/cgroup/{name}/{file}"), format!("{amount}\n"));
        }
    };
    group("app.slice", ["104857600", "max", "106954752", "0", "0"]);
    group("db.slice", ["104857600", "max", "max", "max", "0"]);
    group("system.slice", ["104857600", "max", "max", "0", "0"]);
    machine.write("sys/kernel/mm/numa/demotion_enabled", "true\n");
    let limit = |report: &Report| finding(report, "cgroup.at_limit").cause.clone();
    let report = report(&machine);
    assert!(limit(&report).ends_with("/app.slice (100 of 102 MiB)"), "{}", limit(&report));
    assert!(!has(&report, "cgroup.protected"), "DAMON's regions do not go by protection");
    let mut numab2 = config(&machine);
    numab2.manager.name = ManagerName::Numab2;
    let report = report_with(&machine, &numab2);
    let protected = finding(&report, "cgroup.protected");
    assert!(protected.cause.ends_with(": /db.slice (100 MiB)"), "{}", protected.cause);
}

#[test]
fn a_scope_whose_memory_gives_no_hint_faults_is_told() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    let stat = |file: u64, mapped: u64| {
        let mib = |n: u64| n << 20;
        let text = format!(
            "anon N0=5000000 N2={}\nfile N0=0 N2={}\nshmem N0=0 N2=0\nfile_mapped N0=0 N2={}\n",
            mib(100),
            mib(file),
            mib(mapped)
        );
        machine.write("sys/fs/cgroup/db.slice/memory.numa_stat", text);
    };
    let mut config = config(&machine);
    let cgroup = Some("/db.slice".to_owned());
    config.scope.push(Scope { name: "db".to_owned(), cgroup, ..Scope::default() });
    stat(300, 20);
    let report = report_with(&machine, &config);
    let blind = finding(&report, "scope.blind");
    assert!(blind.cause.starts_with("scope db has 400 MiB below the top tier"), "{}", blind.cause);
    assert!(blind.cause.ends_with("280 MiB are page cache that no process maps"), "{}", blind.cause);
    assert_eq!(blind.about.scope.as_deref(), Some("db"));
    stat(300, 290);
    assert!(!has(&report_with(&machine, &config), "scope.blind"));
}

#[test]
fn too_few_file_descriptors_are_told_before_run_meets_them() {
    let machine = Machine::captured("lab-6.12-tiers");
    let limits = |hard: &str| {
        let text =
            format!("Limit Soft Hard Units\nMax open files            1024                 {hard}  files\n");
        machine.write("proc/self/limits", text);
    };
    machine.write("sys/devices/system/cpu/online", "0-895\n");
    machine.write("sys/bus/event_source/devices/ibs_op/type", "11\n");
    let mut config = config(&machine);
    limits("1024");
    assert!(!has(&report_with(&machine, &config), "permissions.descriptors"), "nothing is sampled");
    config.source.hwsample.enabled = Enabled::Auto;
    let told = report_with(&machine, &config);
    let finding = finding(&told, "permissions.descriptors");
    assert!(finding.cause.contains("LimitNOFILE=1152"), "{}", finding.cause);
    assert_eq!(told.verdict, Verdict::Unusable, "run refuses to start");
    limits("4096");
    assert!(!has(&report_with(&machine, &config), "permissions.descriptors"), "it is raised");
}
