//! What is checked, by the shape of the guest's machine.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use thermocline_core::config::{Config, Scope, TierMap};
use thermocline_core::units::{NodeId, Pfn, Pid, ScopeId};
use thermocline_linux::doctor::{Report, SourceStatus, Verdict, examine};
use thermocline_linux::node_state::NodeStateReader;
use thermocline_linux::root::Root;
use thermocline_linux::scope::{Members, Scopes};
use thermocline_linux::topology::Watcher;
use thermocline_linux::vmstat::Vmstat;
use thermocline_linux::{process, zoneinfo};

use crate::crash;

type Check = (&'static str, fn());

pub(crate) fn all(shape: &str) -> ExitCode {
    let checks: &[Check] = match shape {
        "tiers" => &[
            ("doctor-tiers", doctor_with_tiers),
            ("doctor-blind", doctor_sees_bound_memory),
            ("node-state", node_state),
            ("hotplug", hotplug),
            ("scope-cgroup", scope_by_cgroup),
            ("second-daemon", crash::a_second_daemon_is_refused),
            ("killed-daemon", crash::a_killed_daemon_leaves_nothing_behind),
        ],
        "one-tier" => &[("doctor-one-tier", doctor_with_one_tier)],
        _ => &[
            ("doctor-single", doctor_with_a_single_node),
            ("killed-daemon", crash::a_killed_daemon_leaves_nothing_behind),
        ],
    };
    let mut failed = false;
    for (name, check) in checks {
        let begin = Instant::now();
        match catch_unwind(AssertUnwindSafe(check)) {
            Ok(()) => println!("ok {name} ({:.1} s)", begin.elapsed().as_secs_f64()),
            Err(_) => {
                println!("failed {name}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

fn doctor(config: &Config) -> Report {
    let before = Vmstat::read(&Root::default()).unwrap();
    let report = examine(&Root::default(), config);
    let after = Vmstat::read(&Root::default()).unwrap();
    assert_eq!(after.since(&before, "pgpromote_success"), Some(0), "the doctor moves nothing");
    report
}

fn status(report: &Report, name: &str) -> SourceStatus {
    report.sources.iter().find(|s| s.name == name).unwrap().status
}

fn has(report: &Report, id: &str) -> bool {
    report.findings.iter().any(|f| f.id == id)
}

fn doctor_with_tiers() {
    let report = doctor(&Config::default());
    println!("{report}");
    assert_eq!(report.verdict, Verdict::Usable);
    assert_eq!(status(&report, "hintfault"), SourceStatus::Usable);
    let points = &report.sources[0].attach_points;
    assert!(points.len() > 5 && points.iter().filter(|p| p.required).all(|p| p.present), "{points:?}");
    let found = report.topology.as_ref().unwrap();
    assert_eq!(found.topology.nodes.iter().map(|n| n.tier.0).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(found.kernel_top, [NodeId(0), NodeId(1)]);
    assert_eq!(found.topology.nodes[2].read_latency_ns, Some(350));
    assert_eq!(report.kernel.hz, Some(250));
}

fn doctor_with_one_tier() {
    let report = doctor(&Config::default());
    println!("{report}");
    assert_eq!(report.verdict, Verdict::Unusable);
    assert!(has(&report, "topology.one_tier"));
    assert_eq!(status(&report, "hintfault"), SourceStatus::Unavailable);
    let tiers = TierMap { nodes: vec![vec![0, 1], vec![2]], ..TierMap::default() };
    let mut config = Config { tiers, ..Config::default() };
    let mapped = doctor(&config);
    assert!(has(&mapped, "topology.not_scanned") && !has(&mapped, "topology.one_tier"));
    config.kernel.numa_balancing = Some(3);
    assert_eq!(doctor(&config).verdict, Verdict::Problems);
}

fn doctor_with_a_single_node() {
    let report = doctor(&Config::default());
    println!("{report}");
    assert_eq!(report.verdict, Verdict::Unusable);
    assert!(has(&report, "topology.single_node"));
}

/// A program that holds memory under `words` of numactl.
fn holder(words: &[&str]) -> Child {
    let script = r#"$x = "x" x (64 << 20); open F, ">/run/holder"; close F; sleep 60"#;
    let _ = fs::remove_file("/run/holder");
    let child = Command::new("numactl").args(words).args(["perl", "-e", script]).spawn().unwrap();
    let begin = Instant::now();
    while !Path::new("/run/holder").exists() {
        assert!(begin.elapsed() < Duration::from_secs(30), "the program does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn doctor_sees_bound_memory() {
    let mut bound = holder(&["--membind=2"]);
    let report = doctor(&Config::default());
    bound.kill().unwrap();
    bound.wait().unwrap();
    let seen = report.blind.processes.iter().find(|p| p.pid == Pid(bound.id())).unwrap();
    assert_eq!(seen.reason, "bind");
    assert!(seen.sum.lower_tier_kib > 64 * 1024, "{seen:?}");
    assert!(has(&report, "memory.blind"));
}

fn node_state() {
    let root = Root::default();
    let mut reader = NodeStateReader::new(&root);
    reader.read().unwrap();
    let begin = Instant::now();
    for _ in 0..100 {
        reader.read().unwrap();
    }
    println!("100 readings of the nodes took {:?}", begin.elapsed());
    let states = reader.read().unwrap().to_vec();
    let zones = zoneinfo::parse(&fs::read_to_string("/proc/zoneinfo").unwrap());
    for (state, full) in states.iter().zip(zoneinfo::node_states(&zones)) {
        assert_eq!(
            (state.node, state.managed_pages, state.watermarks),
            (full.node, full.managed_pages, full.watermarks)
        );
        assert!(state.free_pages.abs_diff(full.free_pages) < 4096, "{state:?} {full:?}");
        assert!(state.watermarks.promo_pages > state.watermarks.high_pages);
    }
    let printed = zones.iter().filter(|z| z.managed > 0).all(|z| z.promo.is_some());
    assert_eq!(printed, root.kernel_version().unwrap() >= (6, 12), "newer kernels print the mark");
}

fn hotplug() {
    let root = Root::default();
    let zones = || zoneinfo::parse(&fs::read_to_string("/proc/zoneinfo").unwrap());
    let mut watcher = Watcher::new(&root, &TierMap::default(), &zones()).unwrap();
    for range in watcher.pfns().ranges() {
        println!("{range:x?}");
    }
    let blocks = fs::read_dir("/sys/devices/system/node/node2").unwrap();
    let mut blocks: Vec<u64> = blocks
        .filter_map(|e| e.unwrap().file_name().to_str()?.strip_prefix("memory")?.parse().ok())
        .collect();
    blocks.sort_unstable();
    let state = |block: u64| format!("/sys/devices/system/memory/memory{block}/state");
    // A block goes offline only where nothing in it is bound to its place; most of the kernel's own
    // is on node 0.
    let block = *blocks.iter().find(|&&block| fs::write(state(block), "offline").is_ok()).unwrap();
    let pages = 0x800_0000 >> 12;
    let pfn = Pfn(block * pages);
    assert_eq!(watcher.pfns().node_of(pfn), Some(NodeId(2)));
    let change = watcher.look(&zones()).unwrap();
    assert_eq!(change.offline.len(), 1, "{change:?}");
    assert_eq!((change.offline[0].start, change.offline[0].end), (pfn, Pfn((block + 1) * pages)));
    assert_eq!(watcher.pfns().node_of(pfn), None);
    assert!(has(&doctor(&Config::default()), "memory.offline"));
    fs::write(state(block), "online").unwrap();
    let change = watcher.look(&zones()).unwrap();
    assert_eq!(change.online.len(), 1, "{change:?}");
    assert_eq!(watcher.pfns().node_of(pfn), Some(NodeId(2)));
    assert!(watcher.look(&zones()).unwrap().is_empty());
}

fn scope_by_cgroup() {
    let root = Root::default();
    fs::create_dir_all("/sys/fs/cgroup/box/inner").unwrap();
    let mut inside = Command::new("sleep").arg("60").spawn().unwrap();
    let scope = Scope { cgroup: Some("/box".to_owned()), ..Scope::default() };
    let scopes = Scopes::new(&[scope]).unwrap();
    let cgroups = scopes.cgroups(&root).unwrap();
    println!("{cgroups:?}");
    assert!(cgroups[0].id.is_some());
    let mut members = Members::new(&root, scopes);
    members.look().unwrap();
    assert_eq!(members.iter().count(), 0);
    fs::write("/sys/fs/cgroup/box/inner/cgroup.procs", inside.id().to_string()).unwrap();
    let begin = Instant::now();
    members.look().unwrap();
    println!("a look took {:?}", begin.elapsed());
    let found: Vec<_> = members.iter().collect();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].pid, found[0].scope), (Pid(inside.id()), ScopeId(1)));
    assert!(process::is_same(&root, found[0].pid, found[0].start_time).unwrap());
    inside.kill().unwrap();
    inside.wait().unwrap();
    assert_eq!(members.look().unwrap().iter().filter(|change| change.is_end()).count(), 1);
    fs::remove_dir("/sys/fs/cgroup/box/inner").unwrap();
    fs::remove_dir("/sys/fs/cgroup/box").unwrap();
}
