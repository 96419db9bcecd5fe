//! The laws, on a machine that fails.

use std::collections::{BTreeMap, BTreeSet};

use thermocline_core::access::Membership;
use thermocline_core::config::{RecordLayout, RuleName, Scope};
use thermocline_core::driver::Driver;
use thermocline_core::engine::{Engine, PageState};
use thermocline_core::label::Label;
use thermocline_core::moves::{Batch, Outcome};
use thermocline_core::units::{Nanos, Pid, ScopeId, VirtPage};

use crate::faulty::{Fault, Faults, FaultyMachine, Kind, Passed, mix};
use crate::hunt::{Enough, hunt};
use crate::laws::Laws;
use crate::pages::{PIDS, Pages, VPNS};
use crate::wild::Wild;
use crate::world::{Setup, topology};

/// Polls of a course, its faults, and faults of all courses.
const POLLS: u32 = 400;
const FAULTS: u32 = 200;
const ENOUGH: Enough = Enough { everyday: 10_000, soak: 1_000_000 };
/// After this many steps of [`DRAIN_STEP`] without evidence nothing may be left: what waits expires
/// in 10 s, what is in flight is given up after 1 s, and the latest faults last 128 polls.
const DRAIN_STEPS: u32 = 200;
const DRAIN_STEP: Nanos = Nanos::from_ms(250);

/// An engine, its failing machine and the laws.
struct Rig {
    driver: Driver,
    machine: Pages,
    faults: Faults,
    laws: Laws,
    now: Nanos,
    /// Processes that are gone, and of which nothing was heard since.
    gone: BTreeSet<Pid>,
    /// What each process is, where scopes are configured.
    told: Option<BTreeMap<Pid, Membership>>,
}

impl Rig {
    fn new(seed: u64, plan: &[Fault]) -> Rig {
        let setup = setup(seed);
        let mut config = setup.config();
        config.rule.speculative.enabled = seed & 1 != 0;
        if seed & 2 != 0 {
            limit(&mut config.scope);
        }
        let engine = match setup.rule {
            Some(_) => Engine::new(&config, topology()),
            None => Engine::with_rule(&config, topology(), Box::new(Wild)),
        };
        Rig {
            driver: Driver::new(engine.expect("a sound setup"), &config).sparing_nothing(),
            machine: Pages::new(mix(seed), &config.scope),
            faults: Faults::new(plan, topology()),
            laws: Laws::new(&config, topology()),
            now: Nanos::from_s(1000),
            gone: BTreeSet::new(),
            told: setup.scopes.then(BTreeMap::new),
        }
    }

    /// Steps after `span`, and holds the engine to the laws.
    fn step(&mut self, span: Nanos) {
        self.now = self.now.plus(span);
        let now = self.faults.clock(self.now);
        let mut faulty = FaultyMachine { inner: &mut self.machine, faults: &mut self.faults };
        let Ok(ticked) = self.driver.step(now, &mut faulty);
        let mut issued = Vec::new();
        for passed in std::mem::take(&mut self.faults.passed) {
            self.book(passed, &mut issued);
        }
        let engine = self.driver.engine();
        if ticked {
            self.laws.issued(engine, now, self.driver.nodes(), &issued);
        } else {
            assert!(issued.is_empty(), "batches without a tick");
        }
        self.laws.state(engine);
        self.membership(&issued);
    }

    fn book(&mut self, passed: Passed, issued: &mut Vec<Batch>) {
        match passed {
            Passed::Outcome(done) => self.laws.landed(&done),
            Passed::Accessed(pid) => {
                self.gone.remove(&pid);
            }
            Passed::Exit(pid) => {
                self.laws.exit(pid);
                self.gone.insert(pid);
                if let Some(told) = &mut self.told {
                    told.remove(&pid);
                }
            }
            Passed::Exec(pid) => self.laws.exit(pid),
            Passed::Process(pid, membership) => {
                // Of five scopes there are four, with the one for all others.
                let sound = !matches!(membership, Membership::Managed(ScopeId(n)) if n > 3);
                if let Some(told) = self.told.as_mut().filter(|_| sound) {
                    told.insert(pid, membership);
                }
            }
            Passed::Topology(topology) => self.laws.set_topology(topology),
            Passed::Issued(batch) => issued.push(batch),
        }
    }

    /// Only pages of managed processes move, and nothing of a process that is gone waits.
    fn membership(&self, issued: &[Batch]) {
        for (batch, told) in issued.iter().flat_map(|b| self.told.iter().map(move |told| (b, told))) {
            let whose = told.get(&batch.pid);
            assert!(matches!(whose, Some(Membership::Managed(_))), "a batch of {whose:?}");
        }
        for &pid in &self.gone {
            assert!(issued.iter().all(|batch| batch.pid != pid), "a batch of a process that is gone");
            for vpn in (0..VPNS).filter(|_| pid.0 < PIDS) {
                let page = VirtPage { pid, vpn };
                let state = self.driver.engine().explain(page).state;
                assert!(!matches!(state, PageState::Waiting { .. }), "{page} waits, its process is gone");
            }
        }
    }

    /// Stops the programs: nothing stays in flight, nothing waits.
    fn drain(&mut self) {
        self.machine.busy = false;
        for _ in 0..DRAIN_STEPS {
            self.step(DRAIN_STEP);
        }
        let engine = self.driver.engine();
        assert_eq!((engine.moves_in_flight(), engine.queue().len()), (0, 0), "it does not drain");
    }
}

/// The same scopes by cgroup, one of them with a cap.
fn limit(scopes: &mut [Scope]) {
    for (scope, cgroup) in scopes.iter_mut().zip(["/0", "/1", "/9"]) {
        scope.pids.clear();
        scope.cgroup = Some(cgroup.to_owned());
    }
    if let Some(first) = scopes.first_mut() {
        first.top_tier_cap_mib = Some(0);
    }
}

/// Every rule and the wild one in turn, over layouts, limits, scopes.
fn setup(seed: u64) -> Setup {
    use RecordLayout::{Byte, PghotByte, PghotWord, Word};
    let rules = RuleName::ALL.len() + 1;
    let n = seed as usize / rules;
    Setup {
        rule: RuleName::ALL.get(seed as usize % rules).copied(),
        layout: [Word, Byte, PghotWord, PghotByte][n / 2 % 4],
        rate_limit_mbps: if n % 3 == 2 { 64 } else { 1 },
        scopes: n % 2 == 1,
        roomy: false,
    }
}

fn course(seed: u64, plan: &[Fault]) -> Rig {
    let mut rig = Rig::new(seed, plan);
    for step in 0..POLLS {
        // Mostly a tick's length; less, so that a step only polls; now and then a pause.
        let n = mix(seed ^ u64::from(step) << 32);
        let ms = if n.is_multiple_of(64) { 2000 } else { 50 + n % 100 };
        rig.step(Nanos::from_ms(ms));
    }
    rig.drain();
    rig
}

#[test]
fn the_laws_hold_on_a_machine_that_fails() {
    let moved = std::cell::RefCell::new(BTreeMap::new());
    let lost = std::cell::Cell::new(0);
    let command = "cargo test --release -p thermocline-core --test it the_laws_hold_on_a_machine_that_fails";
    let happened = hunt(command, ENOUGH, (FAULTS, POLLS), |seed, plan| {
        let rig = course(seed, plan);
        let counters = rig.driver.engine().counters();
        let name = setup(seed).rule.map_or("wild", RuleName::text);
        *moved.borrow_mut().entry(name).or_insert(0) += counters.pgmigrate_success;
        lost.set(lost.get() + counters.lost);
        rig.faults.happened
    });
    if std::env::var_os("THERMOCLINE_FAULTS_SEED").is_some() {
        return;
    }
    // Laws that nothing comes near to are kept by chance.
    for (kind, n) in Kind::ALL.into_iter().zip(happened) {
        assert!(n > 0, "{kind:?} never happens");
    }
    let moved = moved.into_inner();
    assert_eq!(moved.len(), RuleName::ALL.len() + 1);
    assert!(moved.values().all(|pages| *pages > 100), "rules that move nothing: {moved:?}");
    assert!(lost.get() > 0, "no batch is given up");
}

#[test]
fn each_failure_comes_back_as_what_it_is() {
    // Every batch fails, at every poll, for one reason after the other.
    let plan: Vec<Fault> = (0..POLLS)
        .map(|poll| Fault { poll, kind: Kind::Fail, bits: poll % Outcome::ALL.len() as u32 })
        .collect();
    let mut seen = BTreeSet::new();
    for seed in 0..7 {
        let rig = course(seed, &plan);
        let counters = rig.driver.engine().counters();
        let failed = Outcome::ALL.iter().copied().filter(|outcome| counters.failed.get(*outcome) > 0);
        seen.extend(failed);
    }
    let never = [Outcome::Moved, Outcome::AlreadyThere];
    let missing: Vec<Outcome> =
        Outcome::ALL.iter().copied().filter(|o| !never.contains(o) && !seen.contains(o)).collect();
    assert!(missing.is_empty(), "{missing:?} never come back");
}
