//! Each kind that may come and go while thermocline runs begins and ends by what it is about.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use thermocline_core::config::{Config, DemotionWay, ManagerName, Source};
use thermocline_core::label::Label;
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{Nanos, NodeId, Pid, TierId};

use super::*;
use crate::actuator::Changed;
use crate::topology::{Discovered, TierOrigin};
use crate::zoneinfo::Zone;

/// All that a judgement takes.
struct World {
    config: Config,
    found: Discovered,
    demoting: Demoting,
    facts: Facts,
    minute: Minute,
    changed: Vec<Changed>,
    given_up: Vec<NodeId>,
    /// What is wrong with the file of pods, and with pods.
    pods: (Option<&'static str>, Vec<String>),
}

impl World {
    /// Two nodes of 1 GiB in two tiers, and a daemon at work on them with nothing in its way.
    fn healthy() -> World {
        let node = |id: u16, cpus: Vec<u32>| Node {
            id: NodeId(id),
            tier: TierId(u8::try_from(id).unwrap()),
            cpus,
            capacity_pages: 1 << 18,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10, 20],
        };
        let topology = Topology::new(vec![node(0, vec![0]), node(1, Vec::new())]).unwrap();
        let found = Discovered {
            topology,
            origin: TierOrigin::Kernel,
            kernel_tiers: Vec::new(),
            kernel_top: vec![NodeId(0)],
            excluded: Vec::new(),
            page_size_known: true,
        };
        // Marks as the kernel spaces them on 1 GiB by default: 0.1 % of it.
        let zone = |id| Zone {
            node: NodeId(id),
            free: 700,
            min: 300,
            low: 562,
            high: 824,
            promo: Some(1086),
            present: 1 << 18,
            managed: 1 << 18,
            ..Zone::default()
        };
        let facts = Facts {
            zones: vec![zone(0), zone(1)],
            numa_balancing: Some(2),
            demotion_enabled: Some(true),
            ..Facts::default()
        };
        let source = SourceMinute { name: "hintfault", came: 10_000, lost: 0, scans: Some(50) };
        let minute = Minute {
            sources: vec![source],
            lower_mib: 900,
            programs_cpu: Some(Nanos::from_s(30)),
            ..Minute::default()
        };
        World {
            config: Config::default(),
            found,
            demoting: Demoting::Ours(DemotionWay::Generations),
            facts,
            minute,
            changed: Vec::new(),
            given_up: Vec::new(),
            pods: (None, Vec::new()),
        }
    }

    /// For a running daemon, or for the doctor.
    fn judge(&self, running: bool) -> Vec<Finding> {
        let daemon = Running { minute: Some(&self.minute), changed: &self.changed, given_up: &self.given_up };
        let view = View {
            config: &self.config,
            found: Some(&self.found),
            demoting: &self.demoting,
            running: running.then_some(daemon),
        };
        let of_pods = running.then(|| pods(self.pods.0, &self.pods.1));
        judge(&view, &self.facts).into_iter().chain(of_pods.into_iter().flatten()).collect()
    }
}

fn changed(file: &str, ours: &str, found: &str) -> Changed {
    Changed { path: PathBuf::from(file), ours: ours.to_owned(), found: found.to_owned() }
}

/// Makes a healthy world one in which a finding of `kind` is open.
fn spoil(kind: Kind, world: &mut World) {
    let facts = &mut world.facts;
    match kind {
        Kind::SourcesSilent => world.minute.sources[0].came = 0,
        Kind::SourcesLossy => world.minute.sources[0].lost = 102,
        Kind::OthersNumaBalancing => facts.numa_balancing = Some(1),
        Kind::OthersDamon => {
            let actions = vec!["migrate_cold".to_owned()];
            facts.others.kdamonds = vec![Kdamond { number: "0".to_owned(), actions }];
        }
        Kind::OthersDamonStat => {
            world.config.demotion.way = DemotionWay::Regions;
            facts.others.modules = vec![Module { name: "damon_stat", moves: false, what: "watches" }];
        }
        Kind::OthersDaemon => {
            let (name, what) = ("numad", "moves processes");
            facts.others.programs = vec![Program { name, what, pid: Pid(7), kernel_thread: false }];
        }
        Kind::SettingsChanged => {
            let limit = changed("/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", "0", "7");
            world.changed = vec![limit.clone()];
            facts.changed = vec![limit];
        }
        Kind::MovesStuck => {
            let sentence = "none of 100 candidates was moved".to_owned();
            world.minute.stuck = Some(Stuck { reason: "node_full", sentence });
        }
        Kind::MemoryBlind => {
            let sum = BlindSum { kib: 4096, lower_tier_kib: 2048 };
            let (comm, reason) = ("redis".to_owned(), "bind".to_owned());
            facts.blind.total = sum;
            facts.blind.processes = vec![BlindProcess { pid: Pid(9), comm, reason, sum }];
        }
        Kind::PromotionWatermarks => {
            world.config.manager.name = ManagerName::Numab2;
            world.demoting = Demoting::ByKernel;
            world.minute.no_room = 64;
        }
        Kind::DemotionGivenUp => {
            world.given_up = vec![NodeId(0)];
            facts.zones[0].unreclaimable = true;
        }
        Kind::DemotionNone => world.demoting = Demoting::No("MGLRU is off".to_owned()),
        Kind::DemotionUndone => {
            facts.demotion_enabled = Some(false);
            facts.changed = vec![changed("/sys/kernel/mm/numa/demotion_enabled", "true", "false")];
        }
        Kind::ScopeNoCgroup => facts.no_cgroup = vec!["scope[0].cgroup \"/a\" is not there now".to_owned()],
        Kind::ScopeBlind => {
            let scope = |policy_kib, unmapped_kib| BlindScope {
                name: "db".to_owned(),
                lower_tier_kib: 200 << 10,
                policy_kib,
                unmapped_kib,
            };
            facts.blind.scopes = vec![scope(50 << 10, 50 << 10)];
        }
        Kind::CgroupAtLimit => {
            let path = "/db.slice".to_owned();
            facts.limited = vec![Limited { path, current: 97 << 20, limit: Some(100 << 20), protected: 0 }];
        }
        Kind::CgroupProtected => {
            world.demoting = Demoting::Ours(DemotionWay::Node);
            let path = "/db.slice".to_owned();
            facts.limited = vec![Limited { path, current: 97 << 20, limit: None, protected: u64::MAX }];
        }
        Kind::PodsUnreadable => world.pods.0 = Some("it is empty"),
        Kind::PodsLeftOut => world.pods.1 = vec!["pod a".to_owned()],
        Kind::BrakeNoPressure => facts.no_pressure = vec!["no PSI".to_owned()],
        other => panic!("{} has no case here; give it one", other.name()),
    }
}

#[test]
fn every_kind_that_comes_and_goes_begins_and_ends() {
    assert_eq!(World::healthy().judge(true), []);
    for kind in Kind::while_running() {
        let mut spoilt = World::healthy();
        spoil(kind, &mut spoilt);
        let mut follower = Follower::default();
        let mut look = |second, found| follower.look(Nanos::from_s(second), SystemTime::UNIX_EPOCH, found);
        assert_eq!(look(0, World::healthy().judge(true)), [], "{}", kind.name());

        let told = look(100, spoilt.judge(true));
        let told: Vec<&Told> = told.iter().filter(|told| told.finding.id == kind).collect();
        assert_eq!(told.len(), 1, "{}: {told:?}", kind.name());
        let Told { finding, change, times } = told[0];
        assert_eq!((*change, *times), (Change::Began, 0));
        assert!(kind.severities().contains(&finding.severity), "{finding:?}");
        let needs = finding.severity >= Severity::Problem;
        assert!(!needs || !finding.remedies.is_empty(), "a problem has a remedy: {finding:?}");
        assert!(told[0].line().contains(&format!("[{}]", kind.name())), "{}", told[0].line());

        let over = look(175, World::healthy().judge(true));
        let over: Vec<&Told> = over.iter().filter(|told| told.finding.id == kind).collect();
        assert_eq!(over.len(), 1, "{}", kind.name());
        assert_eq!(over[0].change, Change::Ended(Nanos::from_s(75)));
        assert!(over[0].line().starts_with("over after 75 s: "), "{}", over[0].line());
    }
}

#[test]
fn doctor_and_daemon_judge_alike_whatever_files_show() {
    for kind in Kind::while_running().filter(|kind| kind.seen_by() == SeenBy::Both) {
        // Another mode is set by the run that the doctor is asked about.
        if kind == Kind::OthersNumaBalancing {
            continue;
        }
        let mut world = World::healthy();
        spoil(kind, &mut world);
        world.minute.no_room = 1000;
        let of = |running| world.judge(running).iter().any(|finding| finding.id == kind);
        assert_eq!((of(true), of(false)), (true, true), "{}", kind.name());
    }
    for kind in Kind::while_running().filter(|kind| kind.seen_by() == SeenBy::Daemon) {
        let mut world = World::healthy();
        spoil(kind, &mut world);
        assert_eq!(world.judge(false), [], "{} takes the daemon's figures", kind.name());
    }
}

#[test]
fn kinds_have_names_of_their_own_and_say_what_they_mean() {
    let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for kind in Kind::ALL {
        assert!(kind.meaning().ends_with('.'), "{}: {}", kind.name(), kind.meaning());
        let area = kind.name().chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.');
        assert!(area && !kind.severities().is_empty(), "{}", kind.name());
    }
}

/// The findings of a healthy world after a change.
fn after(running: bool, change: impl FnOnce(&mut World)) -> Vec<&'static str> {
    let mut world = World::healthy();
    change(&mut world);
    world.judge(running).iter().map(|finding| finding.id.name()).collect()
}

#[test]
fn what_is_as_it_should_be_is_no_finding() {
    // Programs that sleep, and lower tiers that are empty, give no evidence.
    assert!(after(true, |w| (w.minute.sources[0].came, w.minute.lower_mib) = (0, 63)).is_empty());
    assert!(
        after(true, |w| {
            w.minute.sources[0].came = 0;
            w.minute.programs_cpu = Some(Nanos::from_ms(5999));
        })
        .is_empty()
    );
    // 100 of 10,100 are less than a hundredth, and 63 of 64 too few to matter.
    assert!(after(true, |w| w.minute.sources[0].lost = 100).is_empty());
    assert!(after(true, |w| (w.minute.sources[0].came, w.minute.sources[0].lost) = (1, 63)).is_empty());
    // A cgroup below 95 % of its limit, and kdamonds of our own.
    assert!(
        after(true, |w| {
            let path = "/a".to_owned();
            w.facts.limited = vec![Limited { path, current: 94, limit: Some(100), protected: 94 }];
        })
        .is_empty()
    );
    assert!(
        after(true, |w| {
            spoil(Kind::OthersDamon, w);
            w.facts.others.our_kdamonds = true;
        })
        .is_empty()
    );
    // The switch may be off before a run, which sets it, and where DAMON demotes without it.
    assert!(after(false, |w| w.facts.demotion_enabled = Some(false)).is_empty());
    assert!(
        after(true, |w| {
            w.facts.demotion_enabled = Some(false);
            w.demoting = Demoting::Ours(DemotionWay::Regions);
        })
        .is_empty()
    );
    // Another source sees what hint faults do not.
    assert!(
        after(true, |w| {
            spoil(Kind::ScopeBlind, w);
            w.config.source.damon.enabled = true;
        })
        .is_empty()
    );
    assert!(
        World::healthy().config.source.keys(Source::HintFault).enabled()
            != thermocline_core::config::Enabled::No
    );
}

#[test]
fn the_watermarks_that_are_advised_leave_room_for_a_huge_page() {
    let mut world = World::healthy();
    spoil(Kind::PromotionWatermarks, &mut world);
    let found = world.judge(true);
    // High watermark 824 and a huge page make 1336 pages; kswapd stops at 1086, 250 below that.
    assert!(found[0].cause.contains("a promotion needs 5344 KiB, and kswapd stops at 4344 KiB"), "{found:?}");
    let command = found[0].remedies[0].command.clone().unwrap();
    // 512 of 262144 pages are 19.53 parts in ten thousand.
    assert_eq!(command, "sysctl vm.watermark_scale_factor=20");
    assert_eq!(found[0].about.nodes, [NodeId(0)]);
    world.facts.zones[0].promo = Some(1336);
    assert_eq!(world.judge(true), []);
    world.facts.zones[0].promo = Some(1086);
    world.facts.zones[0].free = 1336;
    assert_eq!(world.judge(true), [], "it is not full");
}

#[test]
fn a_kernel_that_does_not_scan_is_a_problem_and_cold_memory_a_note() {
    let severity = |scans| {
        let mut world = World::healthy();
        (world.minute.sources[0].came, world.minute.sources[0].scans) = (0, scans);
        world.judge(true)[0].severity
    };
    assert_eq!((severity(Some(0)), severity(Some(50))), (Severity::Problem, Severity::Note));
}

#[test]
fn what_comes_and_goes_is_told_once_a_minute_with_its_count() {
    let mut spoilt = World::healthy();
    spoil(Kind::OthersDaemon, &mut spoilt);
    let mut follower = Follower::default();
    let mut told = Vec::new();
    // Open in each even second.
    for second in 0..300 {
        let found = if second % 2 == 0 { spoilt.judge(true) } else { Vec::new() };
        let news = follower.look(Nanos::from_s(second), SystemTime::UNIX_EPOCH, found);
        told.extend(news.into_iter().map(|told| (second, told.change == Change::Began, told.times)));
    }
    assert_eq!(told, [(0, true, 0), (60, true, 30), (120, true, 30), (180, true, 30), (240, true, 30)]);
    assert!(follower.open().is_empty());
    let last = follower.look(Nanos::from_s(300), SystemTime::UNIX_EPOCH, Vec::new());
    assert_eq!((last.len(), last[0].times), (1, 29));
    assert!(last[0].line().ends_with("(it came 29 times since it was told of last)"), "{}", last[0].line());
    for second in 301..400 {
        assert!(follower.look(Nanos::from_s(second), SystemTime::UNIX_EPOCH, Vec::new()).is_empty());
    }
}

#[test]
fn several_of_a_kind_begin_and_end_each_for_itself() {
    let program = |name, pid| Program { name, what: "moves pages", pid: Pid(pid), kernel_thread: false };
    let mut world = World::healthy();
    let mut follower = Follower::default();
    let mut look = |second, world: &World| {
        let told = follower.look(Nanos::from_s(second), SystemTime::UNIX_EPOCH, world.judge(true));
        told.iter()
            .map(|t| (t.finding.about.thing.clone().unwrap(), t.change == Change::Began))
            .collect::<Vec<_>>()
    };
    world.facts.others.programs = vec![program("numad", 1)];
    assert_eq!(look(0, &world), [("numad".to_owned(), true)]);
    // Another process of the same name is the same finding.
    world.facts.others.programs = vec![program("numad", 2), program("damo", 3)];
    assert_eq!(look(100, &world), [("damo".to_owned(), true)]);
    world.facts.others.programs = vec![program("damo", 3)];
    assert_eq!(look(200, &world), [("numad".to_owned(), false)]);
}
