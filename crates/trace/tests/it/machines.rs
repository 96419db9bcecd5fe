//! Simulated runs that are recorded.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use thermocline_core::config::{Config, RuleChoice};
use thermocline_core::journal::Decision;
use thermocline_sim::manager::{ManagerName, Steps, Thermocline};
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, run_with};
use thermocline_sim::scenario::Setup;
use thermocline_trace::reader::Recording;
use thermocline_trace::recorder::{Recorder, Summary};
use thermocline_trace::replay::{DRIVER, Replayed, SPARING_NOTHING, replay};
use thermocline_trace::writer::{About, Limits};

use crate::faulty::{Fault, Faults, FaultyMachine, Kind};

/// 32 MiB on CXL, a quarter of which has nine in ten accesses, with evidence of every source. DRAM
/// is small enough to become full.
pub fn setup(changes: &[&str]) -> Setup {
    let text = "name = \"recorded\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nlimit = \"10min\"\n\
        [kernel]\nscan_delay_ms = 20\nscan_size_mb = 8\n\
        [[process]]\nname = \"p\"\nnode = 0\nthreads = 1\nfootprint = \"32MiB\"\nplace = [{ node = 1 }]\n\
        pattern = { kind = \"phases\", repeat = 1, step = [\
        { how = \"random\", accesses = 100000000, region = [\
        { from = 0.0, to = 0.25, weight = 0.9 }, { from = 0.25, to = 1.0, weight = 0.1 }] }] }\n";
    let every = [
        "machine.node.0.memory=\"20MiB\"",
        "machine.node.1.memory=\"64MiB\"",
        "config.kernel.scan_period_min_ms=100",
        "config.source.hwsample.enabled=true",
        "config.source.chmu.enabled=true",
        "config.source.chmu.downsampling=64",
        "config.source.damon.enabled=true",
    ];
    let all: Vec<String> = every.iter().chain(changes).map(|change| (*change).to_owned()).collect();
    Setup::parse("recorded", text, &all).expect("a sound scenario")
}

/// The configuration of a run.
pub fn config(setup: &Setup, choice: RuleChoice) -> Config {
    let mut config = setup.scenario.config.clone();
    config.choose(choice);
    config
}

/// A recorded run.
pub struct Run {
    /// What the recording came to.
    pub summary: Summary,
    /// The journal, all of it.
    pub decisions: Vec<Decision>,
    /// Faults of the machine that have happened.
    pub faults: u64,
}

/// Runs a scenario and records it.
pub fn record(
    setup: &Setup,
    choice: RuleChoice,
    seed: u64,
    plan: &[Fault],
    (folder, limits, private): (&Path, Limits, bool),
) -> Run {
    let config = config(setup, choice);
    let topology = setup.machine.topology.clone();
    let settings = vec![
        ("config".to_owned(), serde_json::to_string(&config).expect("it can be written")),
        (DRIVER.to_owned(), SPARING_NOTHING.to_owned()),
    ];
    let about = About { settings, topology: topology.clone() };
    let recorder = Recorder::start(folder, about, limits, private).expect("the folder is empty");
    let state = Rc::new(RefCell::new((recorder, Faults::new(plan, topology), Vec::new(), 0)));
    let steps = Steps {
        step: Box::new({
            let state = Rc::clone(&state);
            move |driver, now, machine| {
                let (recorder, faults, decisions, read) = &mut *state.borrow_mut();
                let now = faults.clock(now);
                let mut faulty = FaultyMachine { inner: machine, faults };
                let Ok(_) = driver.step(now, &mut recorder.over(&mut faulty));
                recorder.decisions(driver.engine().journal());
                let (new, written) = driver.engine().journal().since(*read);
                decisions.extend(new.copied());
                *read = written;
            }
        }),
        observe: Box::new({
            let state = Rc::clone(&state);
            move |driver, evidence| {
                let (recorder, _, decisions, read) = &mut *state.borrow_mut();
                recorder.between(evidence, &mut |evidence| driver.observe(evidence));
                recorder.decisions(driver.engine().journal());
                let (new, written) = driver.engine().journal().since(*read);
                decisions.extend(new.copied());
                *read = written;
            }
        }),
    };
    let engine = Thermocline::new(choice, &setup.scenario.config, &setup.machine).expect("it suits");
    let arm = Arm { manager: ManagerName::Thermocline(choice), mode: ModeName::Event, seed };
    run_with(setup, arm, Box::new(engine.stepped(steps))).expect("it keeps its books");
    let state = Rc::try_unwrap(state).unwrap_or_else(|_| panic!("the run is over"));
    let (recorder, faults, decisions, _) = state.into_inner();
    let faults = faults.happened.iter().sum();
    Run { summary: recorder.finish(), decisions, faults }
}

/// Limits under which nothing is lost, however slow the disk is.
pub fn patient() -> Limits {
    Limits { backlog_bytes: None, ..Limits::default() }
}

/// Replays a recording with a configuration; also returns the decisions of the recording and of
/// the replay.
pub fn replayed(folder: &Path, config: &Config) -> (Replayed, Vec<Decision>, Vec<Decision>) {
    let recording = Recording::open(folder).expect("it is a recording");
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    let done = replay(&recording, config, &|config| Ok(config), &mut |step, decisions| {
        theirs.extend_from_slice(step);
        ours.extend_from_slice(decisions);
    });
    (done.expect("it can be replayed"), theirs, ours)
}

/// A plan of faults at random polls.
pub fn plan(seed: u64, faults: u32, polls: u32) -> Vec<Fault> {
    let mut state = crate::faulty::mix(seed);
    let mut random = || {
        state = crate::faulty::mix(state);
        (state >> 32) as u32
    };
    let mut plan: Vec<Fault> = (0..faults)
        .map(|_| Fault {
            poll: random() % polls,
            kind: Kind::ALL[random() as usize % Kind::ALL.len()],
            bits: random(),
        })
        .collect();
    plan.sort_by_key(|fault| fault.poll);
    plan
}
