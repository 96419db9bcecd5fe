//! Checks the engine's laws while the simulated machine fails. Programs, kernel and mover are
//! models, and faults are injected into what they and the engine exchange.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use thermocline_core::config::RuleChoice;
use thermocline_core::driver::Driver;
use thermocline_core::units::Nanos;
use thermocline_sim::manager::{ManagerName, Steps, Thermocline};
use thermocline_sim::mode::ModeName;
use thermocline_sim::run::{Arm, run_with};
use thermocline_sim::scenario::Setup;

use crate::engine_laws::Laws;
use crate::evidence::{SKEWED, small};
use crate::faulty::{Fault, Faults, FaultyMachine, Kind, Passed};
use crate::hunt::{Enough, hunt};

/// Minimum number of polls in a run, number of faults in a run, and number of faults in all runs.
const POLLS: u32 = 150;
const FAULTS: u32 = 150;
const ENOUGH: Enough = Enough { everyday: 2000, soak: 50_000 };

/// What happened in a run.
struct Course {
    happened: [u64; Kind::ALL.len()],
    polls: u32,
    promoted: u64,
}

/// The faults, and the laws that are checked after every step.
struct Watched {
    faults: Faults,
    laws: Laws,
    steps: u32,
}

impl Watched {
    fn judge(&mut self, driver: &Driver, now: Nanos, ticked: bool) {
        self.steps += 1;
        let mut issued = Vec::new();
        for passed in std::mem::take(&mut self.faults.passed) {
            match passed {
                Passed::Outcome(done) => self.laws.landed(&done),
                Passed::Exit(pid) | Passed::Exec(pid) => self.laws.exit(pid),
                Passed::Topology(topology) => self.laws.set_topology(topology),
                Passed::Issued(batch) => issued.push(batch),
                Passed::Accessed(_) | Passed::Process(..) => {}
            }
        }
        assert!(ticked || issued.is_empty(), "batches without a tick");
        if ticked {
            self.laws.issued(driver.engine(), now, driver.nodes(), &issued);
        }
        self.laws.state(driver.engine());
    }
}

/// About twenty simulated seconds of a program with evidence from every source. DRAM is small
/// enough to become full.
fn setup() -> Setup {
    let changes = [
        "machine.node.0.memory=\"20MiB\"",
        "config.source.hwsample.enabled=true",
        "config.source.chmu.enabled=true",
        "config.source.chmu.downsampling=64",
        "config.source.damon.enabled=true",
    ];
    small(&SKEWED.replace("40000000", "200000000"), &changes)
}

fn choice(seed: u64) -> RuleChoice {
    let all: Vec<RuleChoice> = RuleChoice::all().collect();
    all[seed as usize % all.len()]
}

fn course(seed: u64, plan: &[Fault]) -> Course {
    let (setup, choice) = (setup(), choice(seed));
    let mut config = setup.scenario.config.clone();
    config.choose(choice);
    let topology = setup.machine.topology.clone();
    let watched = Rc::new(RefCell::new(Watched {
        faults: Faults::new(plan, topology.clone()),
        laws: Laws::new(&config, topology),
        steps: 0,
    }));
    let steps = Steps::new(Box::new({
        let watched = Rc::clone(&watched);
        move |driver, now, machine| {
            let watched = &mut *watched.borrow_mut();
            let now = watched.faults.clock(now);
            let Ok(ticked) =
                driver.step(now, &mut FaultyMachine { inner: machine, faults: &mut watched.faults });
            watched.judge(driver, now, ticked);
        }
    }));
    let engine = Thermocline::new(choice, &setup.scenario.config, &setup.machine).expect("it suits");
    let arm = Arm { manager: ManagerName::Thermocline(choice), mode: ModeName::Event, seed };
    let report = run_with(&setup, arm, Box::new(engine.stepped(steps))).expect("it keeps its books");
    let watched = watched.borrow();
    Course {
        happened: watched.faults.happened,
        polls: watched.steps,
        promoted: report.counters.engine_promoted,
    }
}

#[test]
fn the_laws_hold_on_a_simulated_machine_that_fails() {
    let promoted = RefCell::new(BTreeMap::new());
    let command =
        "cargo test --release -p thermocline-sim --test it the_laws_hold_on_a_simulated_machine_that_fails";
    let happened = hunt(command, ENOUGH, (FAULTS, POLLS), |seed, plan| {
        let course = course(seed, plan);
        assert!(course.polls >= POLLS, "{} polls: some faults never happen", course.polls);
        *promoted.borrow_mut().entry(choice(seed).text().to_owned()).or_insert(0) += course.promoted;
        course.happened
    });
    if std::env::var_os("THERMOCLINE_FAULTS_SEED").is_some() {
        return;
    }
    for (kind, n) in Kind::ALL.into_iter().zip(happened) {
        assert!(n > 0, "{kind:?} never happens");
    }
    let promoted = promoted.into_inner();
    println!("{promoted:?}");
    assert_eq!(promoted.len(), RuleChoice::all().count(), "every rule has a course");
    assert!(promoted.values().all(|pages| *pages > 0), "rules that move nothing: {promoted:?}");
}
