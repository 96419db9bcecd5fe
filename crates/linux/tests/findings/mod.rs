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
fn shares_whose_last_part_can_never_come_are_told_with_the_numbers() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    let mut config = config(&machine);
    let scope = |name: &str, share| Scope {
        cgroup: Some(format!("/{name}")),
        top_tier_share_mib: share,
        ..Scope::default()
    };
    let told = |config: &Config| {
        let report = report_with(&machine, config);
        let found = report.findings.iter().find(|found| found.id == "scope.shares_out_of_reach").cloned();
        found.map(|found| (found.cause, found.remedies[0].what.clone()))
    };
    let top_mib = report(&machine).topology.unwrap().topology.top_mib();
    config.scope = vec![scope("a", top_mib / 2), scope("b", top_mib / 4)];
    assert_eq!(told(&config), None, "a quarter of the top tier is left");

    // All of it: what promotions leave free and the kernel's own memory are not to be had.
    config.scope = vec![scope("a", top_mib / 2), scope("b", top_mib - top_mib / 2)];
    let (cause, remedy) = told(&config).unwrap();
    assert!(cause.contains(&format!("shares are {top_mib} MiB together")), "{cause}");
    let number = |text: &str, before: &str, after: &str| -> u64 {
        let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{before}: {text}"));
        rest.split_once(after).unwrap().0.parse().unwrap()
    };
    let left = number(&cause, &format!("top tier's {top_mib} MiB "), " are left");
    let free = number(&cause, "promotions leave ", " MiB free");
    let kernel = number(&cause, "free, and ", " MiB of the kernel's own");
    assert!(free > 0 && kernel > 0 && left + free + kernel >= top_mib, "{cause}");
    let never = number(&cause, "so the last ", " MiB of the shares");
    assert_eq!(never, top_mib - left, "{cause}");
    assert_eq!(number(&remedy, "top_tier_share_mib by ", " MiB in all"), never);
    config.scope[1].top_tier_share_mib -= never;
    assert_eq!(told(&config), None, "the remedy helps");

    // Huge pages, and memory that others have mlocked; what a scope has mlocked is its own.
    let node = "sys/devices/system/node/node0";
    machine.write(&format!("{node}/hugepages/hugepages-2048kB/nr_hugepages"), "50\n");
    assert!(told(&config).unwrap().0.contains("100 MiB of huge pages"));
    machine.write(&format!("{node}/hugepages/hugepages-2048kB/nr_hugepages"), "0\n");
    machine.replace(&format!("{node}/meminfo"), "Mlocked:               0 kB", "Mlocked:          102400 kB");
    assert!(told(&config).unwrap().0.contains("100 MiB that are mlocked by others"));
    let stat = "anon N0=104857600 N2=0\nfile N0=0 N2=0\nunevictable N0=104857600 N2=4096\n";
    machine.write("sys/fs/cgroup/a/memory.numa_stat", stat);
    assert_eq!(told(&config), None);

    // A sum beyond the top tier is refused, and so not told as out of reach.
    config.scope[0].top_tier_share_mib = top_mib;
    assert_eq!(told(&config), None);
    assert!(config.check_shares_fit(top_mib).is_err());
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
