//! The doctor on the shapes of many machines, and on what a bundle keeps of each.
#![allow(clippy::unwrap_used)]

mod debian12;

use std::fs;
use std::path::Path;

use thermocline_core::config::{Config, Enabled, ManagerName, Scope};
use thermocline_linux::doctor::{Report, Severity, Verdict, blockers, bundle, examine};
use thermocline_linux::record::Entry;
use thermocline_linux::root::Root;

use crate::fixture::Machine;
use crate::fixture::build::Node;

/// A shape, and what is to be said of it.
struct Case {
    name: &'static str,
    machine: Machine,
    config: Config,
    verdict: Verdict,
    /// Findings that have to be there.
    told: &'static [&'static str],
    /// Words that must not be in the report.
    untold: &'static [&'static str],
}

const DRAM_CXL: &[Node] = &[(0, "0-15", 4096), (1, "16-31", 4096), (2, "", 8192)];

fn case(name: &'static str, nodes: &[Node], tiers: &[&str]) -> Case {
    let mut config = Config::default();
    let machine = Machine::built(nodes, tiers);
    config.daemon.state_dir = machine.path("run/thermocline").display().to_string();
    Case { name, machine, config, verdict: Verdict::Usable, told: &[], untold: &[] }
}

impl Case {
    fn with(self, path: &str, text: &str) -> Case {
        self.machine.write(path, format!("{text}\n"));
        self
    }

    fn without(self, path: &str) -> Case {
        self.machine.remove(path);
        self
    }

    fn config(mut self, change: impl FnOnce(&mut Config)) -> Case {
        change(&mut self.config);
        self
    }

    fn is(mut self, verdict: Verdict, told: &'static [&'static str]) -> Case {
        (self.verdict, self.told) = (verdict, told);
        self
    }

    fn not(mut self, untold: &'static [&'static str]) -> Case {
        self.untold = untold;
        self
    }
}

fn scope(cgroup: &str) -> Scope {
    Scope { cgroup: Some(cgroup.to_owned()), ..Scope::default() }
}

const TWO: &[&str] = &["0-1", "2"];
const HYBRID: &str =
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0";

fn cases() -> Vec<Case> {
    use Verdict::{Problems, Unusable, Usable};
    let tiered = |name| case(name, DRAM_CXL, TWO);
    let one_tier = |name| case(name, DRAM_CXL, &["0-2"]);
    let single = |name| case(name, &[(0, "0-15", 4096)], &["0"]);
    let managed = |case: Case, name| case.config(|config| config.manager.name = name);
    vec![
        tiered("two sockets and CXL"),
        case("one socket and CXL", &[(0, "0-63", 65536), (1, "", 131_072)], &["0", "1"]),
        case(
            "Optane as memory",
            &[(0, "0-23", 4096), (1, "24-47", 4096), (2, "", 16384), (3, "", 16384)],
            &["0-1", "2-3"],
        ),
        case("sparse numbers", &[(0, "0-15", 4096), (4, "16-31", 4096), (9, "", 8192)], &["0,4", "9"]),
        case("memoryless node", &[(0, "0-15", 4096), (1, "16-31", 0), (2, "", 8192)], TWO),
        case("three tiers", &[(0, "0-15", 4096), (1, "", 4096), (2, "", 8192)], &["0", "1", "2"]),
        case(
            "sixteen nodes",
            &[
                (0, "0-7", 4096),
                (1, "8-15", 4096),
                (2, "16-23", 4096),
                (3, "24-31", 4096),
                (4, "32-39", 4096),
                (5, "40-47", 4096),
                (6, "48-55", 4096),
                (7, "56-63", 4096),
                (8, "", 4096),
                (9, "", 4096),
                (10, "", 4096),
                (11, "", 4096),
                (12, "", 4096),
                (13, "", 4096),
                (14, "", 4096),
                (15, "", 4096),
            ],
            &["0-7", "8-15"],
        ),
        case("HBM above DRAM", &[(0, "0-63", 65536), (1, "", 16384)], &["1", "0"])
            .is(Unusable, &["sources.none"]),
        managed(
            case("HBM above DRAM, numab2", &[(0, "0-63", 65536), (1, "", 16384)], &["1", "0"]),
            ManagerName::Numab2,
        )
        .is(Unusable, &["manager.refused"]),
        one_tier("one tier").is(Unusable, &["topology.one_tier"]).not(&["no HMAT table"]),
        one_tier("one tier, firmware without HMAT")
            .without("sys/firmware/acpi/tables/HMAT")
            .is(Unusable, &["topology.one_tier"]),
        one_tier("one tier, no ACPI")
            .without("sys/firmware")
            .is(Unusable, &["topology.one_tier"])
            .not(&["HMAT", "CDAT"]),
        managed(
            one_tier("one tier, damon").with("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0"),
            ManagerName::Damon,
        )
        .is(Unusable, &["topology.one_tier", "manager.refused"]),
        case("no tiers listed", DRAM_CXL, &[]).is(Unusable, &["topology.one_tier"]),
        single("single node")
            .is(Unusable, &["topology.single_node"])
            .not(&["unset [tiers]", "nothing will be demoted"]),
        single("CXL without a region")
            .with("sys/bus/cxl/devices/mem0/ram/size", "0x400000000")
            .is(Unusable, &["memory.cxl_no_region"])
            .not(&["add memory of another kind"]),
        single("CXL with persistent capacity only")
            .with("sys/bus/cxl/devices/mem0/ram/size", "0x0")
            .with("sys/bus/cxl/devices/mem0/pmem/size", "0x400000000")
            .is(Unusable, &["memory.cxl_no_region"])
            .not(&["create-region", "add memory of another kind"]),
        single("an unused expander beside a region")
            .with("sys/bus/cxl/devices/mem0/ram/size", "0x400000000")
            .with("sys/bus/cxl/devices/mem1/ram/size", "0x400000000")
            .with("sys/bus/cxl/devices/region0/target0", "decoder3.0")
            .is(Unusable, &["memory.cxl_no_region"])
            .not(&["add memory of another kind"]),
        tiered("all expanders in regions")
            .with("sys/bus/cxl/devices/mem0/ram/size", "0x400000000")
            .with("sys/bus/cxl/devices/region0/target0", "decoder3.0")
            .not(&["memory.cxl_no_region"]),
        tiered("securityfs not mounted")
            .without("sys/kernel/security")
            .with(
                "proc/self/mounts",
                "debugfs /sys/kernel/debug debugfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0",
            )
            .not(&["lockdown none"]),
        tiered("confidentiality")
            .with("sys/kernel/security/lockdown", "none integrity [confidentiality]")
            .is(Unusable, &["permissions.lockdown", "sources.none"])
            .not(&["boot with lockdown=integrity"]),
        tiered(GIVEN_UP).is(Problems, &["demotion.given_up"]).not(&["`run` leaves it so"]),
        managed(tiered(GIVEN_UP), ManagerName::Numab2)
            .is(Problems, &["demotion.given_up"])
            .not(&["demotes by kswapd alone"]),
        managed(tiered(GIVEN_UP), ManagerName::Numab2)
            .config(|config| config.demotion.revive_kswapd = false)
            .is(Unusable, &["demotion.given_up", "manager.refused"]),
        managed(tiered(GIVEN_UP), ManagerName::Numab2)
            .config(|config| {
                config.demotion.revive_kswapd = false;
                config.manager.numab2.demotion_enabled = Some(false);
            })
            .is(Problems, &["demotion.given_up"]),
        // Memory of a GPU beside the processor's own, and nodes for parts of it that have none.
        gh200("GH200 as it boots", &["0-1"])
            .is(Unusable, &["topology.one_tier"])
            .not(&["nodes = [[0], [1]]"]),
        gh200("GH200 with tiers of the user's", &["0-1"])
            .config(|config| config.tiers.nodes = vec![vec![1], vec![0]])
            .is(Unusable, &["sources.none", "topology.not_scanned"]),
        gh200_cxl("GH200 with CXL").is(Problems, &["topology.distance_contradicts"]),
        gh200_cxl("GH200 with CXL, its GPU left out")
            .config(|config| config.tiers.exclude = vec![1])
            .is(Usable, &["topology.excluded"])
            .not(&["topology.distance_contradicts"]),
        // Flat mode: 16 GiB on the package. No firmware of its time describes tiers.
        knl("Knights Landing", &["0-1"])
            .without("sys/firmware/acpi/tables/HMAT")
            .is(Unusable, &["topology.one_tier"])
            .not(&["nodes = [[0], [1]]"]),
        knl("Knights Landing, HBM above DRAM", &["1", "0"]).is(Unusable, &["sources.none"]),
        knl("Knights Landing, HBM below DRAM", &["0", "1"]),
        guest("a cloud guest of one node", &[(0, "0-7", 16384)], &["0"])
            .is(Unusable, &["topology.single_node"]),
        guest("a cloud guest of two sockets", &[(0, "0-7", 8192), (1, "8-15", 8192)], &["0-1"])
            .is(Unusable, &["topology.one_tier"]),
        guest("a cloud guest with CXL", &[(0, "0-7", 16384), (1, "", 16384)], &["0", "1"]),
        guest("a cloud guest with CXL, samples alone", &[(0, "0-7", 16384), (1, "", 16384)], &["0", "1"])
            .config(|config| {
                config.source.hintfault.enabled = false;
                config.source.hwsample.enabled = Enabled::Yes;
            })
            .is(Unusable, &["sources.none"]),
        tiered("a cgroup that is not there")
            .config(|config| config.scope.push(scope("/no/such.slice")))
            .is(Problems, &["scope.no_cgroup"]),
        tiered("a cgroup that is there")
            .config(|config| config.scope.push(scope("/app.slice")))
            .not(&["scope.no_cgroup"]),
        tiered("a cgroup of version 1")
            .with("proc/self/mounts", HYBRID)
            .with("sys/fs/cgroup/memory/app.slice/tasks", "")
            .with("sys/fs/cgroup/unified/cgroup.procs", "")
            .config(|config| config.scope.push(scope("/app.slice")))
            .is(Problems, &["scope.no_cgroup"]),
        tiered("version 1 alone")
            .with(
                "proc/self/mounts",
                "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ndebugfs /sys/kernel/debug debugfs rw 0 0",
            )
            .config(|config| config.scope.push(scope("/app.slice")))
            .is(Unusable, &["scope.refused"]),
        tiered("a memory controller of version 1")
            .with("proc/self/mounts", HYBRID)
            .with("sys/fs/cgroup/unified/cgroup.controllers", "cpu io")
            .with("sys/fs/cgroup/unified/app.slice/cgroup.procs", "")
            .config(|config| {
                config.scope.push(Scope { top_tier_cap_mib: Some(1), ..scope("/app.slice") });
            })
            .is(Problems, &["scope.top_tier_unknown"])
            .not(&["+memory"]),
        tiered("Arm without SPE's driver")
            .with("proc/cpuinfo", "CPU implementer\t: 0x41")
            .not(&["a virtual machine without a PMU"]),
        tiered("no capabilities in a container")
            .with("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000000000")
            .is(Unusable, &["permissions.missing"])
            .not(&["sudo"]),
        tiered("no capabilities for a user")
            .with("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000")
            .is(Unusable, &["permissions.missing"]),
        tiered("nothing known of the process").without("proc/self/status").is(Usable, &[]),
        tiered("no NUMA balancing").without("proc/sys/kernel/numa_balancing").is(Unusable, &["sources.none"]),
        tiered("no debugfs and no generations").without("sys/kernel/mm/lru_gen").without("sys/kernel/debug"),
        tiered("a container without sysfs").without("sys").is(Unusable, &["topology.unreadable"]),
        tiered("a program in a cpuset without DRAM")
            .with(
                "proc/700/stat",
                "700 (redis-server) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 99000 0",
            )
            .with("proc/700/status", "Name:\tredis-server\nMems_allowed_list:\t2")
            .with("proc/700/cgroup", "0::/slow.slice")
            .with(
                "proc/700/numa_maps",
                "7f0000001234 default file=/secret/file anon=5 N2=5 kernelpagesize_kB=4",
            )
            .with(
                "proc/701/stat",
                "701 (hidden-name) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 99000 0",
            )
            .with("proc/701/cmdline", "hidden-name --password")
            .is(Usable, &["scope.confined"]),
        tiered("a program on another node than its memory")
            .with("proc/700/stat", ON_CPU_0)
            .with("proc/700/task/700/stat", ON_CPU_0)
            .with("proc/700/status", "Name:\tredis-server\nMems_allowed_list:\t0-2")
            .with("proc/700/numa_maps", "7f0000001234 default anon=90000 N0=9 N1=90000 kernelpagesize_kB=4")
            .is(Usable, &["programs.away"]),
    ]
}

/// A process whose only thread ran on CPU 0 last, which is on node 0.
const ON_CPU_0: &str = "700 (redis-server) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 99000 \
                        0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0";

const GIVEN_UP: &str = "kswapd has given up";

fn prepared() -> Vec<Case> {
    let cases = cases();
    for case in cases.iter().filter(|case| case.name == GIVEN_UP) {
        case.machine.replace("proc/zoneinfo", "node_unreclaimable:  0", "node_unreclaimable:  1");
    }
    cases
}

/// A processor of Arm's with a GPU, whose memory is a node without CPUs far from the processor.
fn gh200(name: &'static str, tiers: &[&str]) -> Case {
    case(name, &[(0, "0-71", 491_520), (1, "", 98_304), (2, "", 0), (3, "", 0)], tiers)
        .with("proc/cpuinfo", "CPU implementer\t: 0x41")
        .with("sys/devices/system/node/node0/distance", "10 80 80 80")
        .with("sys/devices/system/node/node1/distance", "80 10 255 255")
}

/// The same with an expander, which is nearer to the processor than the GPU's memory.
fn gh200_cxl(name: &'static str) -> Case {
    case(name, &[(0, "0-71", 491_520), (1, "", 98_304), (2, "", 262_144)], &["0-1", "2"])
        .with("sys/devices/system/node/node0/distance", "10 80 60")
        .with("sys/devices/system/node/node1/distance", "80 10 100")
        .with("sys/devices/system/node/node2/distance", "60 100 10")
}

fn knl(name: &'static str, tiers: &[&str]) -> Case {
    case(name, &[(0, "0-271", 98_304), (1, "", 16_384)], tiers)
        .with("sys/devices/system/node/node0/distance", "10 31")
        .with("sys/devices/system/node/node1/distance", "31 10")
}

/// A virtual machine without a PMU.
fn guest(name: &'static str, nodes: &[Node], tiers: &[&str]) -> Case {
    case(name, nodes, tiers).with("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor")
}

#[test]
fn the_shapes_of_many_machines_are_judged_as_run_judges_them() {
    let mut failures = Vec::new();
    for case in prepared() {
        let name = case.name;
        let report = examine(&case.machine.root, &case.config);
        let text = report.to_string();
        let told = |id: &&&str| report.findings.iter().any(|f| f.id == **id);
        let missing: Vec<_> = case.told.iter().filter(|id| !told(id)).collect();
        let wrong: Vec<_> = case.untold.iter().filter(|words| text.contains(**words)).collect();
        if report.verdict != case.verdict || !missing.is_empty() || !wrong.is_empty() {
            let (is, expect) = (report.verdict, case.verdict);
            let findings = text.split("\nFindings").nth(1).unwrap_or_default();
            failures.push(format!(
                "{name}: {is:?} for {expect:?}, without {missing:?}, with {wrong:?}:{findings}"
            ));
        }
        let worst = |f: &&thermocline_linux::doctor::Finding| f.severity == Severity::Blocker;
        let causes: Vec<_> = report.findings.iter().filter(worst).map(|f| &f.cause).collect();
        let refused = blockers(&case.machine.root, &case.config);
        assert_eq!(
            refused.iter().map(|f| &f.cause).collect::<Vec<_>>(),
            causes,
            "{name}: run refuses for something else"
        );
        let chosen = report.managers.iter().find(|m| m.chosen).unwrap();
        assert!(
            !chosen.usable || report.verdict < Verdict::Unusable || !case.told.contains(&"manager.refused"),
            "{name}"
        );
        for manager in report.managers.iter().filter(|m| m.usable) {
            assert!(!manager.detail.is_empty(), "{name}: {} is usable for no reason", manager.name);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_bundle_says_what_its_machine_says_and_holds_nothing_else() {
    let captured = [
        "lab-6.1-tiers",
        "lab-6.12-one-tier",
        "lab-6.12-single",
        "lab-6.12-tiers",
        "lab-newest-spare",
        "lab-newest-tiers",
    ];
    let captured = captured.map(|name| {
        let machine = Machine::captured(name);
        let mut config = Config::default();
        config.daemon.state_dir = machine.path("run/thermocline").display().to_string();
        Case { name, machine, config, verdict: Verdict::Usable, told: &[], untold: &[] }
    });
    for case in prepared().into_iter().chain(captured) {
        let (report, read) = bundle(&case.machine.root, &case.config);
        let copy = tempfile::tempdir().unwrap();
        for (path, entry) in &read {
            let path = copy.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match entry {
                Entry::File(bytes) => fs::write(path, bytes).unwrap(),
                Entry::Folder => fs::create_dir_all(path).unwrap(),
                Entry::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
            }
            let Entry::File(bytes) = entry else { continue };
            let text = String::from_utf8_lossy(bytes);
            for secret in ["hidden-name", "--password", "/secret/file", "7f0000001234", "10.1.2.3"] {
                assert!(!text.contains(secret), "{}: {secret} in {text}", case.name);
            }
        }
        let again = examine(&Root::at(copy.path()), &case.config);
        let original = case.machine.path("");
        assert_eq!(json(&again, copy.path()), json(&report, &original), "{}", case.name);
    }
}

/// The report without the folder that stands for the machine.
fn json(report: &Report, folder: &Path) -> String {
    let text = serde_json::to_string_pretty(report).unwrap();
    text.replace(folder.to_str().unwrap().trim_end_matches('/'), "")
}

#[test]
fn what_a_folder_does_not_tell_is_unknown_and_nothing_of_the_host() {
    let case = case("bare", DRAM_CXL, TWO).without("proc/self/status").without("sys/kernel/security");
    let case = case.with("proc/self/mounts", "none / tmpfs rw 0 0");
    let report = examine(&case.machine.root, &case.config);
    assert!(report.permissions.iter().all(|p| p.held.is_none()), "{report}");
    assert_eq!(report.kernel.lockdown, None);
    let text = report.to_string();
    assert!(text.contains("lockdown unknown") && text.contains("hintfault  unknown"), "{text}");
    assert!(!text.contains(&format!("pid {}", std::process::id())), "{text}");
}
