//! The doctor on machines captured in the lab, as they were and with one thing changed.
#![allow(clippy::unwrap_used)]

mod findings;
mod fixture;
mod machines;

use fixture::Machine;
use thermocline_core::config::{Config, DemotionMode, DemotionWay, Enabled, ManagerName, SamplerName, Scope};
use thermocline_core::label::Label;
use thermocline_core::units::NodeId;
use thermocline_linux::actuator::{Lock, log};
use thermocline_linux::doctor::{Report, Severity, SourceStatus, Verdict, blockers, examine, examine_with};
use thermocline_linux::private::Folder;
use thermocline_linux::root::Root;
use thermocline_linux::source::hintfault::layout::AttachPoint;

fn attach_points(present: bool) -> Vec<AttachPoint> {
    vec![AttachPoint { name: "numa_migrate_check", present, required: true, why_needed: "sees hint faults" }]
}

fn config(machine: &Machine) -> Config {
    let mut config = Config::default();
    config.daemon.state_dir = machine.path("run/thermocline").display().to_string();
    config
}

fn report_with(machine: &Machine, config: &Config) -> Report {
    examine_with(&machine.root, config, &|_: &Root| Ok(attach_points(true)))
}

fn report(machine: &Machine) -> Report {
    report_with(machine, &config(machine))
}

fn finding<'a>(report: &'a Report, id: &str) -> &'a thermocline_linux::doctor::Finding {
    report.findings.iter().find(|f| f.id == id).unwrap_or_else(|| panic!("no {id} in\n{report}"))
}

fn has(report: &Report, id: &str) -> bool {
    report.findings.iter().any(|f| f.id == id)
}

fn source<'a>(report: &'a Report, name: &str) -> &'a thermocline_linux::doctor::Probed {
    report.sources.iter().find(|s| s.name == name).unwrap()
}

#[test]
fn both_kernels_with_tiers_are_usable_as_they_boot() {
    for name in ["lab-6.12-tiers", "lab-newest-tiers"] {
        let report = report(&Machine::captured(name));
        assert_eq!(report.verdict, Verdict::Usable, "{name}:\n{report}");
        assert_eq!(report.verdict.exit_status(), 0);
        assert_eq!(report.kernel.hz, Some(250), "{name}");
        assert_eq!(report.kernel.transparent_hugepages.as_deref(), Some("always"));
        let hintfault = source(&report, "hintfault");
        assert_eq!(hintfault.status, SourceStatus::Usable);
        assert_eq!(hintfault.detail, "accesses to pages of node 2");
        let hwsample = source(&report, "hwsample");
        assert_eq!(hwsample.status, SourceStatus::Unavailable, "a virtual machine without a PMU");
        assert!(hwsample.detail.ends_with("; hintfault works without"), "{}", hwsample.detail);
        // Newer kernels watch by themselves from boot on.
        let busy = name == "lab-newest-tiers";
        let damon = source(&report, "damon");
        let expect = if busy { SourceStatus::Unavailable } else { SourceStatus::NotRead };
        assert_eq!(damon.status, expect, "{}", damon.detail);
        let changes: Vec<_> =
            report.changes.iter().map(|c| (c.name, c.from.as_str(), c.to.as_str())).collect();
        // Without debugfs cold pages go down by DAMON's regions, where no kdamond runs already.
        let regions =
            [("demotion_enabled", "false", "true"), ("numa_balancing", "1", "2"), ("nr_kdamonds", "0", "2")];
        let mut expect = vec![
            ("numa_balancing_promote_rate_limit_MBps", "65536", "0"),
            ("scan_size_mb", "256", "2"),
            ("scan_period_min_ms", "1000", "5000"),
            ("scan_period_max_ms", "60000", "5000"),
        ];
        expect.extend(if busy { &regions[1..2] } else { &regions[..] });
        assert_eq!(changes, expect);
        assert!(report.permissions.iter().all(|p| p.held != Some(false)), "{name}:\n{report}");
        assert!(report.others.iter().any(|o| o.name == "kernel NUMA balancing" && o.moves));
        assert!(!has(&report, "memory.free_space_promotion"), "1 GiB nodes have no GiB to spare");
        let tiers: Vec<u8> =
            report.topology.as_ref().unwrap().topology.nodes.iter().map(|n| n.tier.0).collect();
        assert_eq!(tiers, [0, 0, 1]);
    }
}

#[test]
fn the_kernels_own_configuration_tells_its_timer_frequency() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("boot/config-6.12.117+deb12-amd64", "CONFIG_HZ_1000=y\nCONFIG_HZ=1000\n");
    assert_eq!(report(&machine).kernel.hz, Some(1000));
}

#[test]
fn damon_stat_of_newer_kernels_watches_and_is_no_problem() {
    let report = report(&Machine::captured("lab-newest-tiers"));
    let stat = report.others.iter().find(|o| o.name == "damon_stat").unwrap();
    assert!(!stat.moves);
    assert!(source(&report, "damon").detail.contains("source.damon.stop_damon_stat"));
    assert!(!has(&report, "others.damon"));
}

#[test]
fn one_tier_is_a_blocker_with_firmware_and_tier_map_as_remedies() {
    let machine = Machine::captured("lab-6.12-one-tier");
    machine.write("sys/firmware/acpi/tables/FACP", "");
    let report = report(&machine);
    assert_eq!((report.verdict, report.verdict.exit_status()), (Verdict::Unusable, 2));
    let one_tier = finding(&report, "topology.one_tier");
    let remedies: Vec<&str> = one_tier.remedies.iter().map(|r| r.what.as_str()).collect();
    assert!(remedies[0].contains("HMAT"), "{remedies:?}");
    assert!(
        remedies[1].contains("cannot be told here") && remedies[1].contains("nodes 0-2"),
        "a node without CPUs need not be slow: {remedies:?}"
    );
    let figures = |node: u16, ns: u32, mbps: u32| {
        let access = format!("sys/devices/system/node/node{node}/access1/initiators");
        machine.write(&format!("{access}/read_latency"), format!("{ns}\n"));
        machine.write(&format!("{access}/read_bandwidth"), format!("{mbps}\n"));
    };
    let map = || finding(&self::report(&machine), "topology.one_tier").remedies[1].what.clone();
    for (node, ns, mbps) in [(0, 115, 130_000), (1, 110, 400_000), (2, 300, 30_000)] {
        figures(node, ns, mbps);
    }
    assert!(map().contains("nodes = [[1], [0], [2]]"), "HBM is above DRAM: {}", map());
    figures(1, 120, 125_000);
    figures(2, 125, 120_000);
    assert!(!map().contains("[tiers]"), "all are about as fast: {}", map());
    for node in 0..3 {
        machine.remove(&format!("sys/devices/system/node/node{node}/access1"));
    }
    assert_eq!(source(&report, "hintfault").status, SourceStatus::Unavailable);
    machine.write("proc/sys/kernel/osrelease", "6.1.0-30-amd64\n");
    let old = self::report(&machine);
    assert!(finding(&old, "topology.one_tier").remedies[0].what.contains("Linux 6.7"));
}

#[test]
fn a_tier_map_makes_tiers_but_no_hint_faults_unless_the_kernel_scans_all() {
    let machine = Machine::captured("lab-6.12-one-tier");
    let mut config = config(&machine);
    config.tiers.nodes = vec![vec![0, 1], vec![2]];
    let mapped = report_with(&machine, &config);
    assert!(!has(&mapped, "topology.one_tier"));
    assert_eq!(finding(&mapped, "topology.not_scanned").severity, Severity::Problem);
    assert_eq!(mapped.verdict, Verdict::Unusable, "no source is left");
    assert!(has(&mapped, "sources.none"));
    config.kernel.numa_balancing = Some(3);
    let scanned = report_with(&machine, &config);
    assert_eq!(source(&scanned, "hintfault").status, SourceStatus::Usable);
    assert_eq!((scanned.verdict, scanned.verdict.exit_status()), (Verdict::Problems, 1), "{scanned}");
    assert!(finding(&scanned, "others.numa_balancing").cause.contains("will move pages"));
}

#[test]
fn a_single_node_has_nothing_to_tier() {
    let machine = Machine::captured("lab-6.12-single");
    let report = report(&machine);
    assert_eq!(report.verdict, Verdict::Unusable);
    let finding = finding(&report, "topology.single_node");
    assert!(finding.cause.contains("nothing to tier"));
    assert!(finding.remedies.iter().any(|r| r.command.as_deref() == Some("make demo")));
    machine.replace("proc/cmdline", "quiet", "quiet numa=off");
    assert!(
        self::finding(&self::report(&machine), "topology.single_node").remedies[0].what.contains("numa=off")
    );
}

#[test]
fn a_cpuset_that_leaves_out_nodes_is_told_before_nothing_moves_there() {
    let machine = Machine::captured("lab-6.12-tiers");
    assert!(!has(&report(&machine), "topology.closed"));
    let list = |nodes: &str| {
        let status = std::fs::read_to_string(machine.root.proc.join("self/status")).unwrap();
        let other: String = status
            .lines()
            .filter(|l| !l.starts_with("Mems_allowed_list:"))
            .map(|l| format!("{l}\n"))
            .collect();
        machine.write("proc/self/status", format!("{other}Mems_allowed_list:\t{nodes}\n"));
        report(&machine)
    };
    let without_cxl = list("0-1");
    let closed = finding(&without_cxl, "topology.closed");
    assert_eq!(closed.severity, Severity::Problem);
    assert!(closed.cause.contains("leaves out node 2"), "{}", closed.cause);
    let without_dram = list("2");
    assert_eq!(without_dram.verdict, Verdict::Unusable);
    assert!(finding(&without_dram, "topology.closed").cause.contains("run would refuse"));
}

#[test]
fn a_tier_map_that_does_not_fit_is_a_blocker() {
    let machine = Machine::captured("lab-6.12-tiers");
    let mut config = config(&machine);
    config.tiers.nodes = vec![vec![0], vec![2]];
    let report = report_with(&machine, &config);
    assert!(finding(&report, "topology.unreadable").cause.contains("does not name node 1"));
    assert_eq!(report.verdict, Verdict::Unusable);
}

#[test]
fn spare_memory_is_told_before_the_kernel_promotes_into_it() {
    let machine = Machine::captured("lab-newest-spare");
    let report = report(&machine);
    let finding = finding(&report, "memory.free_space_promotion");
    assert!(finding.cause.starts_with("free-space promotion active on node 0"), "{}", finding.cause);
    assert_eq!(report.verdict, Verdict::Usable);
    let mut config = config(&machine);
    config.kernel.numa_balancing = Some(1);
    assert!(!has(&report_with(&machine, &config), "memory.free_space_promotion"), "only in tiering mode");
}

#[test]
fn a_kernel_without_the_attach_points_cannot_be_used() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/sys/kernel/osrelease", "6.1.0-30-amd64\n");
    let old = examine_with(&machine.root, &config(&machine), &|_: &Root| Ok(attach_points(false)));
    assert!(source(&old, "hintfault").detail.contains("(6.1.0-30-amd64) lacks numa_migrate_check"));
    assert_eq!(old.verdict, Verdict::Unusable);
    machine.remove("proc/sys/kernel/numa_balancing");
    let without = report(&machine);
    assert!(source(&without, "hintfault").detail.contains("CONFIG_NUMA_BALANCING"));
}

#[test]
fn a_sampler_is_read_where_it_is_wanted_and_permitted() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("sys/bus/event_source/devices/ibs_op/type", "11\n");
    let mut config = config(&machine);
    let off = report_with(&machine, &config);
    assert_eq!(source(&off, "hwsample").status, SourceStatus::NotRead);
    config.source.hwsample.enabled = Enabled::Auto;
    let on = report_with(&machine, &config);
    let hwsample = source(&on, "hwsample");
    assert_eq!(hwsample.status, SourceStatus::Usable);
    assert!(hwsample.detail.starts_with("AMD IBS") && hwsample.detail.ends_with("never run on silicon"));
    machine.replace("proc/self/status", "CapEff:\t000001ffffffffff", "CapEff:\t0000000000800000");
    let forbidden = report_with(&machine, &config);
    let hwsample = source(&forbidden, "hwsample");
    assert_eq!(hwsample.status, SourceStatus::Unavailable);
    assert!(hwsample.detail.contains("CAP_PERFMON"), "{}", hwsample.detail);
}

#[cfg(feature = "lab")]
#[test]
fn the_labs_sampler_is_named_for_what_it_is() {
    let machine = Machine::captured("lab-6.12-tiers");
    let mut config = config(&machine);
    config.source.hwsample.sampler = SamplerName::LabRings;
    config.source.hwsample.enabled = Enabled::Yes;
    let detail = |config: &Config| source(&report_with(&machine, config), "hwsample").clone();
    let absent = detail(&config);
    assert_eq!(absent.status, SourceStatus::Unavailable);
    assert!(absent.detail.contains("lab run --misses --samples"), "{}", absent.detail);
    machine.write("sys/bus/pci/devices/0000:00:04.0/vendor", "0x1af4\n");
    machine.write("sys/bus/pci/devices/0000:00:04.0/device", "0x1110\n");
    let there = detail(&config);
    assert_eq!(there.status, SourceStatus::Usable);
    assert!(there.detail.contains("stands in for hardware"), "{}", there.detail);
    config.source.hwsample.enabled = Enabled::No;
    assert_eq!(detail(&config).status, SourceStatus::NotRead);
    config.source.hwsample.enabled = Enabled::Yes;
    machine.replace("proc/self/status", "CapEff:\t000001ffffffffff", "CapEff:\t0000004000000000");
    assert!(detail(&config).detail.contains("CAP_SYS_ADMIN"), "frames are hidden");
}

#[test]
fn a_sampler_that_is_insisted_on_and_absent_is_in_the_way_of_run() {
    let machine = Machine::captured("lab-6.12-tiers");
    let mut config = config(&machine);
    config.source.hwsample.enabled = Enabled::Auto;
    assert_eq!(report_with(&machine, &config).verdict, Verdict::Usable, "only where there is one");
    config.source.hwsample.enabled = Enabled::Yes;
    let insisted = report_with(&machine, &config);
    assert_eq!(insisted.verdict, Verdict::Unusable);
    let refused = finding(&insisted, "sources.refused");
    assert!(refused.cause.starts_with("hwsample is switched on"), "{}", refused.cause);
    assert!(refused.remedies[0].what.contains("\"auto\""));
    config.source.hwsample.sampler = SamplerName::PageFaults;
    assert_eq!(report_with(&machine, &config).verdict, Verdict::Usable, "every machine has page faults");
}

#[test]
fn without_hint_faults_a_sampler_is_enough() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("sys/bus/event_source/devices/ibs_op/type", "11\n");
    let mut config = config(&machine);
    config.source.hwsample.enabled = Enabled::Yes;
    let no_probe =
        |config: &Config| examine_with(&machine.root, config, &|_: &Root| Ok(attach_points(false)));
    let both = no_probe(&config);
    assert!(finding(&both, "sources.refused").cause.starts_with("hintfault is switched on"));
    config.source.hintfault.enabled = false;
    assert_eq!(no_probe(&config).verdict, Verdict::Usable);
}

#[test]
fn damon_is_read_where_nobody_else_uses_it_or_consent_is_given() {
    let machine = Machine::captured("lab-newest-tiers");
    let mut config = config(&machine);
    config.source.hintfault.enabled = false;
    config.source.damon.enabled = true;
    let refused = report_with(&machine, &config);
    assert_eq!(refused.verdict, Verdict::Unusable);
    assert!(source(&refused, "damon").detail.starts_with("damon_stat runs"), "{refused}");
    config.source.damon.stop_damon_stat = true;
    let told = report_with(&machine, &config);
    let damon = source(&told, "damon");
    assert_eq!((damon.status, told.verdict), (SourceStatus::Usable, Verdict::Usable), "{told}");
    assert!(damon.detail.starts_with("access rates of regions of nodes 0-2"), "{}", damon.detail);
    let changes: Vec<_> = told.changes.iter().map(|c| (c.name, c.to.as_str())).collect();
    assert!(changes.ends_with(&[("damon_stat", "N"), ("nr_kdamonds", "3")]), "{changes:?}");

    let detail = |machine: &Machine| source(&report_with(machine, &config), "damon").detail.clone();
    machine.replace("proc/self/status", "CapEff:\t000001ffffffffff", "CapEff:\t0000004000000000");
    assert!(detail(&machine).contains("CAP_SYS_ADMIN"), "frames are hidden");
    machine.remove("sys/kernel/tracing/events/damon/damon_aggregated/format");
    assert!(detail(&machine).contains("mount -t tracefs"));
    machine.write("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
    assert!(detail(&machine).contains("somebody else has set up DAMON"));
    let report = report_with(&machine, &config);
    assert_eq!(report.verdict, Verdict::Unusable);
    // `run` prints this finding, so it must name the source that is wanted.
    let none = report.findings.iter().find(|f| f.id == "sources.none").unwrap();
    assert!(none.cause.contains("damon: ") && !none.cause.contains("hintfault"), "{none:?}");
    assert!(none.cause.contains("somebody else has set up DAMON"), "{none:?}");
}

#[test]
fn hot_lists_of_devices_are_said_to_have_no_driver() {
    let machine = Machine::captured("lab-6.12-tiers");
    let mut config = config(&machine);
    let chmu = |config: &Config| source(&report_with(&machine, config), "chmu").clone();
    let absent = chmu(&config);
    assert_eq!(absent.status, SourceStatus::Unavailable);
    assert!(absent.detail.contains("no stock kernel has a driver"), "{}", absent.detail);
    assert!(absent.detail.contains("address decode") && absent.detail.contains("in the lab only"));
    config.source.chmu.enabled = true;
    let insisted = report_with(&machine, &config);
    assert_eq!(insisted.verdict, Verdict::Unusable);
    assert!(finding(&insisted, "sources.refused").cause.starts_with("chmu is switched on"));
    machine.write("sys/bus/event_source/devices/cxl_hmu_mem0.0.0/type", "21\n");
    let driver = chmu(&config);
    assert_eq!(driver.status, SourceStatus::NotRead);
    assert!(driver.detail.starts_with("cxl_hmu_mem0.0.0 is there"), "{}", driver.detail);
}

#[cfg(feature = "lab")]
#[test]
fn the_labs_hot_list_is_named_for_what_it_is() {
    let machine = Machine::captured("lab-6.12-tiers");
    let mut config = config(&machine);
    config.source.chmu.enabled = true;
    let chmu = |config: &Config| source(&report_with(&machine, config), "chmu").clone();
    machine.write("sys/bus/pci/devices/0000:00:04.0/vendor", "0x1af4\n");
    machine.write("sys/bus/pci/devices/0000:00:04.0/device", "0x1110\n");
    assert!(chmu(&config).detail.contains("cannot map"), "{}", chmu(&config).detail);
    // A page of the sampler's with where the hot list is, and 16 slots for a device of 1 GiB.
    let mut memory = vec![0u8; 3 * 4096];
    let words = [
        (0, u64::from_le_bytes(*b"TLCSAMP1")),
        (24, 4096),
        (4096, u64::from_le_bytes(*b"TLCCHMU1")),
        (4104, 16 | 16 << 32),
        (4120, 1 << 30),
        (4128, 1),
        (4136, 3 << 30),
        (4144, 1 << 30),
        (4152, 1 | 256 << 32),
    ];
    for (at, word) in words {
        memory[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
    }
    machine.write("sys/bus/pci/devices/0000:00:04.0/resource2", &memory);
    let there = chmu(&config);
    assert_eq!(there.status, SourceStatus::Usable, "{}", there.detail);
    assert!(there.detail.contains("stands in for CXL 3.2 CHMU"), "{}", there.detail);
    config.source.chmu.enabled = false;
    assert_eq!(chmu(&config).status, SourceStatus::NotRead);
    config.source.chmu.enabled = true;
    machine.replace("proc/self/status", "CapEff:\t000001ffffffffff", "CapEff:\t0000004000000000");
    assert!(chmu(&config).detail.contains("CAP_SYS_ADMIN"), "frames are hidden");
}

#[test]
fn missing_capabilities_are_named_with_what_they_are_for() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.replace("proc/self/status", "CapEff:\t000001ffffffffff", "CapEff:\t0000000000800000");
    let report = report(&machine);
    let held: Vec<_> = report.permissions.iter().map(|p| (p.name, p.held == Some(true))).collect();
    assert_eq!(held[..3], [("CAP_BPF", false), ("CAP_PERFMON", false), ("CAP_SYS_NICE", true)]);
    let hintfault = source(&report, "hintfault");
    assert_eq!(hintfault.detail, "this process lacks CAP_BPF and CAP_PERFMON");
    assert_eq!(report.verdict, Verdict::Unusable);
    assert!(finding(&report, "permissions.missing").cause.contains("CAP_SYS_PTRACE"));
}

#[test]
fn containers_and_lockdown_are_seen() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/self/uid_map", "         0     100000      65536\n");
    machine.write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    let report = report(&machine);
    assert!(has(&report, "permissions.user_namespace"));
    assert!(has(&report, "permissions.lockdown"));
    assert_eq!(source(&report, "hintfault").detail, "the kernel is locked down (confidentiality)");
}

#[test]
fn others_who_move_pages_are_named() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("sys/module/damon_reclaim/parameters/enabled", "Y\n");
    machine.write("sys/kernel/mm/damon/admin/kdamonds/0/state", "on\n");
    machine.write("sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/action", "migrate_hot\n");
    machine.write("sys/kernel/mm/damon/admin/kdamonds/1/state", "off\n");
    machine.write("proc/500/stat", "500 (numad) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 10 0\n");
    machine.write("sys/kernel/mm/numa/demotion_enabled", "true\n");
    let report = report(&machine);
    let names: Vec<&str> = report.others.iter().filter(|o| o.moves).map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["kernel NUMA balancing", "kernel demotion", "damon_reclaim", "kdamond 0", "numad"]);
    let daemon = finding(&report, "others.daemon");
    assert_eq!(daemon.remedies[0].command.as_deref(), Some("kill 500"));
    assert_eq!(report.findings.iter().filter(|f| f.id == "others.damon").count(), 2);
    assert_eq!(report.verdict, Verdict::Problems);
}

#[test]
fn numa_balancing_that_is_left_on_is_a_problem() {
    let machine = Machine::captured("lab-6.12-tiers");
    let mut config = config(&machine);
    config.kernel.numa_balancing = None;
    let report = report_with(&machine, &config);
    assert!(finding(&report, "others.numa_balancing").cause.contains("leaves it so"));
}

#[test]
fn a_running_thermocline_and_what_a_killed_one_left_are_told() {
    let machine = Machine::captured("lab-6.12-tiers");
    let state_dir = machine.path("run/thermocline");
    let lock = Lock::acquire(&machine.root, &state_dir).unwrap();
    // The kernel's own list of locks, and this process.
    let me = std::process::id().to_string();
    let program = std::env::current_exe().unwrap();
    for (link, target) in
        [("locks", "/proc/locks"), ("self/exe", program.to_str().unwrap()), (&me, &format!("/proc/{me}"))]
    {
        let link = machine.path("proc").join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    let beside = report(&machine);
    let pid = format!("(pid {})", std::process::id());
    assert!(finding(&beside, "others.thermocline").cause.contains(&pid));
    assert_eq!(beside.verdict, Verdict::Usable);
    drop(lock);
    let entry = log::Entry {
        boot_id: "some".to_owned(),
        path: machine.path("proc/sys/kernel/numa_balancing"),
        old: "1".to_owned(),
        ours: "2".to_owned(),
    };
    let folder = std::sync::Arc::new(Folder::make(&state_dir).unwrap());
    log::RestoreLog::begin(&folder, &[entry]).unwrap();
    let after = report(&machine);
    let left = finding(&after, "others.not_restored");
    assert_eq!(left.remedies[0].command.as_deref(), Some("thermocline restore"));
}

const BOUND: &str = "\
7f0000000000 bind:2 anon=76800 dirty=76800 N0=25600 N2=51200 kernelpagesize_kB=4
7f1000000000 default anon=5 N2=5 kernelpagesize_kB=4
7f2000000000 default file=/dev/hugepages/x huge anon=10 N2=10 kernelpagesize_kB=2048
7f3000000000 bind=balancing:2 anon=9 N2=900 kernelpagesize_kB=4
";

#[test]
fn memory_that_hint_faults_cannot_see_is_listed_by_process_and_reason() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write(
        "proc/700/stat",
        "700 (redis-server) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 99000 0\n",
    );
    machine.write("proc/700/numa_maps", BOUND);
    machine.write("sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages", "10\n");
    let report = report(&machine);
    let shown: Vec<_> = report
        .blind
        .processes
        .iter()
        .map(|p| (p.comm.as_str(), p.reason.as_str(), p.sum.kib / 1024, p.sum.lower_tier_kib / 1024))
        .collect();
    assert_eq!(shown, [("redis-server", "bind", 300, 200), ("redis-server", "hugetlb", 20, 20)]);
    assert_eq!(report.blind.hugetlb_pool_mib, [(NodeId(2), 20)]);
    let blind = finding(&report, "memory.blind");
    assert_eq!(blind.severity, Severity::Problem, "220 of 968 MiB");
    assert!(blind.cause.starts_with("220 MiB below the top tier give no hint faults"), "{}", blind.cause);
    let text = report.to_string();
    assert!(
        text.contains("redis-server (pid 700): 300 MiB bind, 200 MiB of it below the top tier"),
        "{text}"
    );
}

#[test]
fn memory_that_is_not_in_use_yet_is_told_with_the_command_that_brings_it() {
    let machine = Machine::captured("lab-6.12-single");
    machine.write("sys/bus/dax/devices/dax0.0/size", "17179869184\n");
    machine.write("sys/bus/dax/devices/dax0.0/target_node", "1\n");
    machine.write("sys/bus/dax/devices/dax1.0/size", "17179869184\n");
    std::os::unix::fs::symlink("../drivers/kmem", machine.path("sys/bus/dax/devices/dax1.0/driver")).unwrap();
    machine.write("sys/bus/cxl/devices/mem0/ram/size", "0x400000000\n");
    machine.write("sys/devices/system/memory/memory1/state", "offline\n");
    let report = report(&machine);
    let devdax = finding(&report, "memory.devdax");
    assert!(devdax.cause.starts_with("dax0.0 (16384 MiB, node 1)"), "{}", devdax.cause);
    let command = devdax.remedies[0].command.as_deref();
    assert_eq!(command, Some("daxctl reconfigure-device --mode=system-ram dax0.0"));
    assert_eq!(report.findings.iter().filter(|f| f.id == "memory.devdax").count(), 1);
    assert!(has(&report, "memory.cxl_no_region"));
    assert!(finding(&report, "memory.offline").cause.starts_with("1 memory blocks (128 MiB)"));
    let single = finding(&report, "topology.single_node");
    assert!(single.remedies.is_empty(), "what is there comes first: {single:?}");
}

#[test]
fn scopes_and_scan_settings_are_told_of() {
    let machine = Machine::captured("lab-6.12-tiers");
    let mut config = config(&machine);
    config.scope.push(Scope { pids: vec![1], ..Scope::default() });
    assert!(has(&report_with(&machine, &config), "scope.scanned_globally"));
    config.kernel.scan_size_mb = Some(512);
    machine.remove("sys/kernel/debug");
    let report = report_with(&machine, &config);
    let skipped = finding(&report, "kernel.scan_settings");
    assert!(skipped.cause.ends_with("mount -t debugfs none /sys/kernel/debug"), "{}", skipped.cause);
    assert_eq!(report.verdict, Verdict::Usable, "the kernel scans at its own pace");
}

#[test]
fn pressure_that_is_not_measured_is_told_where_it_would_brake() {
    let machine = Machine::captured("lab-6.12-tiers");
    let absent = report(&machine);
    let told = finding(&absent, "brake.no_pressure");
    assert!(told.cause.contains("by ping-pong alone") && told.cause.contains("psi=1"), "{}", told.cause);
    assert_eq!(absent.verdict, Verdict::Usable, "it moves pages all the same");
    let mut config = config(&machine);
    config.brake.enabled = false;
    assert!(!has(&report_with(&machine, &config), "brake.no_pressure"));
    machine.write("proc/pressure/memory", "some avg10=0.00 total=1\nfull avg10=0.00 total=0\n");
    assert!(!has(&report(&machine), "brake.no_pressure"));
}

#[test]
fn what_cannot_be_read_is_a_finding_and_not_the_end() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", "many\n");
    machine.remove("proc/zoneinfo");
    let report = report(&machine);
    assert!(finding(&report, "unreadable").cause.ends_with("\"many\" is no number"));
    assert!(report.nodes.is_empty());
    assert!(report.to_string().contains("node  tier"), "{report}");
}

#[test]
fn an_empty_folder_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let report = examine(&Root::at(dir.path()), &Config::default());
    assert_eq!(report.verdict, Verdict::Unusable);
    assert!(!report.to_string().is_empty());
}

#[test]
fn the_json_keeps_its_keys() {
    let report = report(&Machine::captured("lab-6.12-tiers"));
    let json = serde_json::to_value(&report).unwrap();
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expect = vec![
        "schema",
        "verdict",
        "kernel",
        "topology",
        "nodes",
        "sources",
        "managers",
        "permissions",
        "changes",
        "others",
        "away",
        "blind",
        "confined",
        "findings",
    ];
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    expect.sort_unstable();
    assert_eq!(sorted, expect);
    assert_eq!(json["schema"], 1);
    assert_eq!(json["verdict"], "usable");
    assert_eq!(json["sources"][0]["status"], "usable");
    assert_eq!(json["topology"]["topology"]["nodes"][2]["tier"], 1);
    assert_eq!(json["nodes"][0]["node"], 0);
    assert_eq!(json["changes"][0]["undo"].as_str().unwrap().split(' ').next(), Some("echo"));
}

#[test]
fn this_machine_is_answered_within_seconds_and_left_as_it_is() {
    let root = Root::default();
    let read = || std::fs::read_to_string("/proc/sys/kernel/numa_balancing").ok();
    let before = read();
    let begin = std::time::Instant::now();
    let report = examine(&root, &Config::default());
    println!("took {:?}\n{report}", begin.elapsed());
    assert!(begin.elapsed().as_secs() < 10);
    assert_eq!(read(), before);
    assert!(report.topology.is_some());
}

fn manager<'a>(report: &'a Report, name: &str) -> &'a thermocline_linux::doctor::Manager {
    report.managers.iter().find(|m| m.name == name).unwrap()
}

#[test]
fn managers_are_told_with_what_keeps_them_from_working() {
    let old = Machine::captured("lab-6.12-tiers");
    let told = report(&old);
    assert!(manager(&told, "thermocline").chosen && manager(&told, "thermocline").usable, "{told}");
    assert!(manager(&told, "numab2").usable && manager(&told, "observe").usable);
    let damon = manager(&told, "damon");
    assert!(damon.usable && damon.detail.contains("migrate_hot from node 2 to node 0"), "{}", damon.detail);

    let newest = Machine::captured("lab-newest-tiers");
    let damon = manager(&report(&newest), "damon").clone();
    assert!(!damon.usable && damon.detail.contains("stop_damon_stat"), "{}", damon.detail);
    let mut chosen = config(&newest);
    chosen.manager.name = ManagerName::Damon;
    let told = report_with(&newest, &chosen);
    assert_eq!(
        (finding(&told, "manager.refused").severity, told.verdict),
        (Severity::Blocker, Verdict::Unusable)
    );
    chosen.manager.damon.stop_damon_stat = true;
    let told = report_with(&newest, &chosen);
    assert!(!has(&told, "manager.refused"), "{told}");
    let changes: Vec<_> = told.changes.iter().map(|c| (c.name, c.to.as_str())).collect();
    assert_eq!(changes, [("numa_balancing", "0"), ("damon_stat", "N"), ("nr_kdamonds", "3")]);

    old.replace("proc/sys/kernel/osrelease", "6.12", "6.10");
    assert!(manager(&report(&old), "damon").detail.contains("older than 6.11"));
    chosen.manager.name = ManagerName::Numab2;
    chosen.scope = vec![Scope { pids: vec![1], ..Scope::default() }];
    assert!(finding(&report_with(&newest, &chosen), "manager.refused").cause.contains("knows no scopes"));
}

#[test]
fn what_goes_down_by_the_node_for_want_of_generations_is_told() {
    let machine = Machine::captured("lab-newest-tiers");
    assert!(has(&report(&machine), "demotion.none"));
    machine.write("sys/kernel/mm/numa/demotion_enabled", "false\n");
    for node in [0, 1] {
        machine.write(&format!("sys/devices/system/node/node{node}/reclaim"), "");
    }
    machine.write("proc/sys/vm/min_unmapped_ratio", "1\n");
    machine.write("proc/sys/vm/min_slab_ratio", "5\n");
    let mut config = config(&machine);
    let found = report_with(&machine, &config);
    assert!(!has(&found, "demotion.none"), "{found}");
    assert!(finding(&found, "demotion.by_node").cause.contains("mount debugfs"));
    config.demotion.way = DemotionWay::Node;
    assert!(!has(&report_with(&machine, &config), "demotion.by_node"), "it was asked for");
}

#[test]
fn the_kernels_managers_need_no_source_of_ours() {
    let machine = Machine::captured("lab-newest-tiers");
    let mut config = config(&machine);
    config.manager.name = ManagerName::Numab2;
    let none = |_: &Root| Err("no BPF here".to_owned());
    let report = examine_with(&machine.root, &config, &none);
    assert!(!has(&report, "sources.none") && !has(&report, "manager.refused"), "{report}");
    let changes: Vec<_> = report.changes.iter().map(|c| (c.name, c.to.as_str())).collect();
    assert_eq!(changes, [("demotion_enabled", "true"), ("numa_balancing", "2")]);
}

#[test]
fn floors_and_caps_are_told_with_what_cannot_be_kept_of_them() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    machine.write("sys/fs/cgroup/a/memory.numa_stat", "anon N0=10485760 N2=99\nfile N0=0 N1=1048576 N2=0\n");
    let mut config = config(&machine);
    let scope = Scope { cgroup: Some("/a".to_owned()), ..Scope::default() };
    config.scope = vec![scope.clone()];
    assert!(!has(&report_with(&machine, &config), "scope.top_tier"), "there is neither floor nor cap");
    config.scope[0].top_tier_cap_mib = Some(64);
    let found = report_with(&machine, &config);
    assert_eq!(
        finding(&found, "scope.top_tier").cause,
        "scope[0] holds 11 MiB of the top tier, its cap is 64 MiB"
    );
    assert!(!has(&found, "scope.floor_and_kernel"));
    config.scope[0].top_tier_floor_mib = 64;
    let found = report_with(&machine, &config);
    assert!(!has(&found, "scope.floor_and_kernel") && !has(&found, "scope.floors_too_large"));
    machine.write("sys/kernel/mm/numa/demotion_enabled", "true\n");
    let problem = |config: &Config, id: &str| finding(&report_with(&machine, config), id).severity;
    assert_eq!(problem(&config, "scope.floor_and_kernel"), Severity::Problem);
    config.demotion.mode = DemotionMode::On;
    assert_eq!(problem(&config, "scope.floor_and_kernel"), Severity::Note);
    config.scope[0].top_tier_floor_mib = 1 << 20;
    assert_eq!(problem(&config, "scope.floors_too_large"), Severity::Problem);
    machine.remove("sys/fs/cgroup/a/memory.numa_stat");
    assert_eq!(problem(&config, "scope.top_tier_unknown"), Severity::Problem);
}

#[test]
fn what_is_never_to_be_slow_needs_a_cpuset_as_well() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    machine.write("sys/fs/cgroup/a/memory.numa_stat", "anon N0=10485760 N2=99\nfile N0=0 N1=1048576 N2=0\n");
    let mut config = config(&machine);
    config.scope = vec![Scope { cgroup: Some("/a".to_owned()), never_slow: true, ..Scope::default() }];
    let found = report_with(&machine, &config);
    let told = finding(&found, "scope.may_be_slow");
    assert!(told.cause.contains("its cpuset allows node 2:"), "{}", told.cause);
    let what = &told.remedies[0].what;
    assert!(what.contains("write 0,1 to cpuset.mems of /a") && what.contains("whatever a"), "{what}");
    assert_eq!(finding(&found, "demotion.none").severity, Severity::Note, "mode auto asks for consent");
    machine.write("sys/fs/cgroup/a/cpuset.mems.effective", "0-1\n");
    assert!(!has(&report_with(&machine, &config), "scope.may_be_slow"));
}

#[test]
fn numa_balancing_that_was_switched_off_on_purpose_is_told_with_the_files_that_do_so() {
    let machine = Machine::captured("lab-6.12-tiers");
    let no_choice = |report: &Report| report.findings.iter().all(|f| f.id != "choices.numa_balancing");
    assert!(no_choice(&report(&machine)));
    machine.write("proc/sys/kernel/numa_balancing", "0\n");
    // A machine that booted with one node begins with 0.
    machine.write("sys/devices/system/node/has_cpu", "0\n");
    assert!(no_choice(&report(&machine)));
    machine.write("sys/devices/system/node/has_cpu", "0-1\n");
    assert!(finding(&report(&machine), "choices.numa_balancing").cause.contains("excluded ones too"));
    machine.write("sys/devices/system/node/has_cpu", "0\n");
    machine.write("etc/sysctl.d/90-latency.conf", "kernel.numa_balancing = 0\n");
    machine.write("etc/tuned/active_profile", "ours\n");
    machine.write("etc/tuned/ours/tuned.conf", "[main]\ninclude=network-latency\n");
    machine.write("usr/lib/tuned/network-latency/tuned.conf", "[sysctl]\nkernel.numa_balancing=0\n");
    let cause = finding(&report(&machine), "choices.numa_balancing").cause.clone();
    assert!(
        cause.contains("90-latency.conf sets 0") && cause.contains("network-latency/tuned.conf sets 0"),
        "{cause}"
    );
    let mut config = config(&machine);
    config.kernel.numa_balancing = None;
    assert!(no_choice(&report_with(&machine, &config)));
}

#[test]
fn guests_that_hold_most_of_the_memory_are_told() {
    let machine = Machine::captured("lab-6.12-tiers");
    let guest = |rss: u64| {
        let stat = format!("800 (qemu-system-x86) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 {rss} 0\n");
        machine.write("proc/800/stat", stat);
        report(&machine)
    };
    assert!(guest(1000).findings.iter().all(|f| f.id != "choices.guests"));
    let cause = finding(&guest(1 << 32), "choices.guests").cause.clone();
    assert!(cause.contains("never tried"), "{cause}");
}

#[test]
fn a_pid_namespace_of_its_own_is_a_blocker_as_it_is_for_run() {
    let machine = Machine::captured("lab-6.12-tiers");
    machine.write("proc/self/ns/pid", "");
    let report = report(&machine);
    assert!(finding(&report, "pid_namespace").cause.contains("--pid=host"));
    assert_eq!(report.verdict, Verdict::Unusable);
}

#[test]
fn what_contradicts_the_tiers_is_told_and_a_node_can_be_left_out() {
    let machine = Machine::captured("lab-6.12-tiers");
    assert!(!has(&report(&machine), "topology.distance_contradicts"));
    assert!(!has(&report(&machine), "topology.latency_contradicts"));
    // Node 1 becomes the memory of a GPU: without CPUs, in the top tier, farther than CXL.
    machine.write("sys/devices/system/node/node1/cpulist", "\n");
    machine.write("sys/devices/system/node/node0/distance", "10 80 60\n");
    for node in [0, 1, 2] {
        for access in ["access0", "access1"] {
            machine.remove(&format!("sys/devices/system/node/node{node}/{access}"));
        }
    }
    let told = report(&machine);
    let distance = finding(&told, "topology.distance_contradicts");
    assert!(distance.cause.contains("distance from CPUs is 80, and 60"), "{}", distance.cause);
    assert!(distance.remedies[0].what.contains("exclude = [1]"), "{:?}", distance.remedies);
    assert_eq!(told.verdict, Verdict::Problems);
    let mut config = config(&machine);
    config.tiers.exclude = vec![1];
    let without = report_with(&machine, &config);
    assert!(!has(&without, "topology.distance_contradicts"), "{without}");
    assert_eq!(finding(&without, "topology.excluded").severity, Severity::Note);
    let top = &without.topology.as_ref().unwrap().kernel_top;
    assert_eq!(*top, [NodeId(0)], "nothing is promoted to node 1");
    config.manager.name = ManagerName::Numab2;
    assert!(finding(&report_with(&machine, &config), "manager.refused").cause.contains("leave node 1 out"));

    let machine = Machine::captured("lab-6.12-tiers");
    let latency = |node: u16| format!("sys/devices/system/node/node{node}/access1/initiators/read_latency");
    machine.write(&latency(2), "50\n");
    for node in [0, 1, 2] {
        let bandwidth = format!("sys/devices/system/node/node{node}/access1/initiators/read_bandwidth");
        machine.write(&bandwidth, "100000\n");
    }
    let told = report(&machine);
    assert_eq!(finding(&told, "topology.latency_contradicts").severity, Severity::Problem);
}

#[test]
fn memory_is_shown_as_large_as_it_is_and_other_pages_are_a_blocker() {
    for (size_kib, blocked) in [(4, false), (16, true), (64, true)] {
        let machine = Machine::captured("lab-6.12-tiers");
        // 64 GiB a node, half of it free.
        let pages = (64 << 20) / size_kib;
        let zone = |node: u16| {
            format!(
                "Node {node}, zone   Normal\n  pages free     {}\n        min      1\n        low      2\n        high     3\n        \
                 present  {pages}\n        managed  {pages}\n",
                pages / 2
            )
        };
        machine.write("proc/zoneinfo", (0..3).map(zone).collect::<String>());
        for node in 0..3 {
            let meminfo = format!("Node {node} MemTotal: {} kB\n", 64 << 20);
            machine.write(&format!("sys/devices/system/node/node{node}/meminfo"), meminfo);
        }
        let report = report(&machine);
        let text = report.to_string();
        assert_eq!(text.matches("65536 MiB").count(), 3, "{text}");
        assert_eq!(text.matches("32768 MiB").count(), 3, "{text}");
        assert_eq!(has(&report, "topology.page_size"), blocked, "{size_kib}: {text}");
        assert_eq!(report.verdict == Verdict::Unusable, blocked);
        let refused = blockers(&machine.root, &config(&machine));
        let refused = refused.iter().any(|finding| finding.id == "topology.page_size");
        assert_eq!(refused, blocked, "`run` goes by these");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["topology"]["topology"]["page_bytes"], size_kib << 10);
    }
}
