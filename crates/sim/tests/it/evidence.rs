//! Every rule promotes in the simulator, and every kind of evidence decides something there.

use std::convert::Infallible;

use thermocline_core::access::Evidence;
use thermocline_core::config::RuleChoice;
use thermocline_core::demand::Demand;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::Batch;
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;
use thermocline_sim::manager::{ManagerName, Steps, Thermocline};
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run_with};
use thermocline_sim::scenario::Setup;

use crate::truths::{SMALL, setup, simulate};

/// 32 MiB on CXL, a quarter of which has nine in ten accesses, for about ten seconds.
pub const SKEWED: &str = "threads = 1\nfootprint = \"32MiB\"\nplace = [{ node = 1 }]\n\
    pattern = { kind = \"phases\", repeat = 1, step = [{ how = \"random\", accesses = 40000000, region = [\
    { from = 0.0, to = 0.25, weight = 0.9 }, { from = 0.25, to = 1.0, weight = 0.1 }] }] }\n";

/// 48 MiB in use on CXL, and idle memory that fills most of DRAM.
const BALLAST: &str = "threads = 1\nfootprint = \"48MiB\"\nplace = [{ node = 1 }]\n\
    pattern = { kind = \"uniform\", accesses = 40000000 }\n\
    [[process]]\nname = \"ballast\"\nthreads = 0\nnode = 0\nfootprint = \"96MiB\"\nbackground = true\n\
    place = [{ node = 0 }]\npattern = { kind = \"idle\" }\n";

const KERNEL: &str = "scan_delay_ms = 20\nscan_size_mb = 8";

/// A small machine whose kernel does not promote on its own.
pub fn small(process: &str, more: &[&str]) -> Setup {
    let mut changes = SMALL[..3].to_vec();
    changes.push("config.kernel.scan_period_min_ms=100");
    changes.extend(more);
    setup(process, KERNEL, &changes)
}

#[test]
fn every_rule_promotes_and_is_a_manager() {
    for choice in RuleChoice::all() {
        let manager = ManagerName::Thermocline(choice);
        assert!(ManagerName::all().contains(&manager), "{}", manager.text());
        let report = simulate(&small(SKEWED, &[]), &manager.text(), ModeName::Event, 7);
        println!("{}: {}", manager.text(), report.counters.engine_promoted);
        assert!(report.counters.engine_promoted > 0, "{}: {:?}", manager.text(), report.notes);
    }
}

/// A figure of the engine's own.
pub fn figure(report: &Report, name: &str) -> u64 {
    report.notes.figures.iter().find(|(of, _)| of == name).map_or(0, |(_, value)| *value)
}

/// What a wrapper adds is more than what the rule that it wraps does by itself.
#[test]
fn each_wrapper_decides_something_of_its_own() {
    let stream = "threads = 1\nfootprint = \"32MiB\"\nplace = [{ node = 1 }]\n\
        pattern = { kind = \"stream\", passes = 60.0 }\n";
    let ahead = simulate(&small(stream, &[]), "thermocline:speculative", ModeName::Event, 7);
    assert!(figure(&ahead, "neighbours_proposed") > 0, "{:?}", ahead.notes);

    // The thread runs on one DRAM node, and its memory lies on the other.
    let remote = "name = \"remote\"\nsummary = \"\"\nmachine = \"zen4-cxl\"\nlimit = \"10min\"\n[[process]]\n\
        name = \"p\"\nnode = 0\nthreads = 1\nfootprint = \"16MiB\"\nplace = [{ node = 1 }]\n\
        pattern = { kind = \"uniform\", accesses = 40000000 }\n";
    let often = ["config.source.hwsample.period=500", "config.source.hwsample.period_min=500"];
    let often = often.map(str::to_owned);
    let setup = Setup::parse("remote", remote, &often).expect("a sound scenario");
    let [home, away] = ["balance", "adaptive"]
        .map(|rule| simulate(&setup, &format!("thermocline:{rule}"), ModeName::Event, 7));
    assert!(home.counters.moved_within > 1000, "{:?}", home.counters);
    assert_eq!(away.counters.moved_within, 0);
}

#[test]
fn samples_regions_and_counts_promote_without_hint_faults() {
    let blind = "config.source.hintfault.enabled=false";
    let samples = "config.source.hwsample.enabled=true";
    let counts = ["config.source.chmu.enabled=true", "config.source.chmu.downsampling=64"];
    let regions = "config.source.damon.enabled=true";
    for (manager, sources) in [
        ("thermocline:inter-arrival", vec![samples]),
        ("thermocline:adaptive", vec![samples]),
        ("thermocline:adaptive", counts.to_vec()),
        ("thermocline:frequency", counts.to_vec()),
        ("thermocline:adaptive", vec![regions]),
        ("thermocline:regions", vec![regions]),
        ("thermocline:adaptive", [&counts[..], &[samples, regions]].concat()),
    ] {
        let setup = small(SKEWED, &[&[blind][..], &sources].concat());
        let found = simulate(&setup, manager, ModeName::Event, 7).counters;
        println!("{manager} {sources:?}: {}", found.engine_promoted);
        assert_eq!(found.numa_hint_faults, 0, "{manager} {sources:?}");
        assert!(found.engine_promoted > 0, "{manager} {sources:?}");
    }
}

/// A scenario and the rule that decides in it.
type Case = (Setup, &'static str);

/// Lists the kinds of evidence with a scenario each; none where the simulator has no such thing.
macro_rules! kinds {
    ($( $kind:pat => $case:expr; )*) => {
        fn kinds() -> Vec<(&'static str, Option<Case>, fn(&Evidence<'_>) -> bool)> {
            vec![$( (stringify!($kind), $case, |evidence| !matches!(evidence, $kind)) ),*]
        }

        /// Does not compile while a kind has no row.
        const _: fn(&Evidence<'_>) = |evidence| match evidence {
            $( $kind => {} )*
        };
    };
}

kinds! {
    Evidence::Accesses { .. } => Some((small(SKEWED, &[]), "latency"));
    // Where not all that is hot fits, what else is hot decides.
    Evidence::Regions(_) => Some((small(SKEWED, &["machine.node.0.memory=\"16MiB\""]), "regions"));
    Evidence::RegionPages(_) => Some((small(SKEWED, &[]), "regions"));
    Evidence::Process { .. } => Some((
        small(SKEWED, &["config.scope=[{ name = \"mine\", command = \"^p$\" }]"]),
        "latency",
    ));
    Evidence::Outcome(_) => Some((small(SKEWED, &[]), "latency"));
    Evidence::Demoted(_) => Some((small(BALLAST, &["machine.node.0.memory=\"128MiB\""]), "adaptive"));
    Evidence::Holding(_) => Some((
        small(SKEWED, &["config.scope=[{ name = \"capped\", cgroup = \"/p\", top_tier_cap_mib = 4 }]"]),
        "latency",
    ));
    // Before the first scan nothing moves. Then the kernel promotes too, and kswapd makes room
    // between watermarks that are far apart, while the engine fills it.
    Evidence::Pressure(_) => Some((
        small(
            &BALLAST.replace("40000000", "120000000"),
            &[
                "machine.node.0.memory=\"128MiB\"",
                "machine.watermark_scale_factor=1000",
                "machine.cost.demote_ns=1000000",
                "kernel.scan_delay_ms=9000",
                "config.kernel.demotion_enabled=true",
                "config.kernel.numa_balancing_promote_rate_limit_mbps=2",
                "config.demotion.mode=\"off\"",
            ],
        ),
        "latency",
    ));
    Evidence::Scans(_) => Some((setup(SKEWED, KERNEL, &SMALL[..3]), "adaptive"));
    // Only a budget that follows from the programs' time is ever spent.
    Evidence::Programs(_) => Some((
        setup(
            SKEWED,
            KERNEL,
            &[&SMALL[..3], &["config.payoff.enabled=true", "config.payoff.loan_s=0"]].concat(),
        ),
        "adaptive",
    ));
    // The machine stays as it is, and so do the programs: they neither exec nor leave their memory.
    Evidence::MemoryOnline { .. } => None;
    Evidence::MemoryOffline { .. } => None;
    Evidence::Topology(_) => None;
    Evidence::Exec { .. } => None;
    Evidence::Exit { .. } => None;
}

/// A machine that passes on only some of its evidence.
struct Deaf<'a> {
    inner: &'a mut dyn Machine<Error = Infallible>,
    hears: fn(&Evidence<'_>) -> bool,
}

impl Machine for Deaf<'_> {
    type Error = Infallible;

    fn poll(
        &mut self,
        now: Nanos,
        due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Infallible> {
        let hears = self.hears;
        self.inner.poll(now, due, &mut |evidence| {
            if hears(&evidence) {
                observe(evidence);
            }
        })
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        let hears = self.hears;
        self.inner.nodes(&mut |evidence| {
            if hears(&evidence) {
                observe(evidence);
            }
        })
    }

    fn pacing(&self) -> Pacing {
        self.inner.pacing()
    }

    fn wish(&mut self, wishes: Wishes) {
        self.inner.wish(wishes);
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        self.inner.submit(batches);
    }

    fn demotes(&self) -> bool {
        self.inner.demotes()
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        self.inner.demote(demands);
    }

    fn is_looking(&self) -> bool {
        self.inner.is_looking()
    }
}

fn deaf(hears: fn(&Evidence<'_>) -> bool) -> Steps {
    Steps::new(Box::new(move |driver, now, inner| {
        let Ok(_) = driver.step(now, &mut Deaf { inner, hears });
    }))
}

fn outcome((setup, rule): &Case, hears: fn(&Evidence<'_>) -> bool) -> (String, Report) {
    let manager = ManagerName::parse(&format!("thermocline:{rule}")).expect("a manager");
    let ManagerName::Thermocline(choice) = manager else { panic!("{rule} is a rule") };
    let engine = Thermocline::new(choice, &setup.scenario.config, &setup.machine).expect("it suits");
    let arm = Arm { manager, mode: ModeName::Event, seed: 7 };
    let report = run_with(setup, arm, Box::new(engine.stepped(deaf(hears)))).expect("it keeps its books");
    let pages: Vec<&Vec<u64>> = report.processes.iter().map(|p| &p.pages).collect();
    let counters = serde_json::to_string(&report.counters).expect("counters are JSON");
    (format!("{pages:?} {counters}"), report)
}

#[test]
fn every_kind_of_evidence_decides_something() {
    let mut idle = Vec::new();
    for (kind, case, without) in kinds() {
        let Some(case) = case else { continue };
        let (with, report) = outcome(&case, |_| true);
        let (without, _) = outcome(&case, without);
        println!("{kind}\n  with    {with}\n  without {without}");
        if with == without {
            idle.push(format!("{kind}: {:?}", report.notes.figures));
        }
    }
    assert!(idle.is_empty(), "these decide nothing: {idle:#?}");
}

#[test]
fn what_the_simulator_does_not_have_is_never_reported() {
    let hears: fn(&Evidence<'_>) -> bool = |evidence| {
        let row = kinds().into_iter().find(|(_, _, others)| !others(evidence));
        assert!(row.is_some_and(|(_, case, _)| case.is_some()), "{evidence:?}");
        true
    };
    let short = SKEWED.replace("40000000", "400000");
    outcome(&(small(&short, &["config.source.hwsample.enabled=true"]), "adaptive"), hears);
}
