//! Another configuration for an engine at work: applied whole or refused whole, and no page, count
//! or journal entry is lost.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use thermocline_core::access::Membership;
use thermocline_core::config::schema::Field;
use thermocline_core::config::{Config, RuleName, Scope, differences};
use thermocline_core::driver::Driver;
use thermocline_core::engine::{Engine, ReloadError};
use thermocline_core::moves::{Batch, BatchId, Outcome};
use thermocline_core::published::threshold::rate_limit_pages;
use thermocline_core::units::{Nanos, Pid};

use crate::faulty::{Faults, FaultyMachine, Passed, mix};
use crate::pages::{PIDS, Pages};
use crate::world::{Setup, topology};

const STEP: Nanos = Nanos::from_ms(50);
const SECOND: Nanos = Nanos::from_s(1);
/// Steps without evidence after which nothing waits or is on its way.
const DRAIN_STEPS: u32 = 2000;

/// A running engine, its machine, and a book of what the machine has done.
struct Rig {
    driver: Driver,
    machine: Pages,
    faults: Faults,
    now: Nanos,
    /// Batches that the machine has.
    in_flight: BTreeMap<BatchId, Batch>,
    moved_pages: u64,
    /// What was issued within the last second, and the limits that were in force.
    issued: VecDeque<(Nanos, u64)>,
    limits: VecDeque<(Nanos, u64)>,
    /// The number of the next decision that has not been read.
    read: u64,
    told_at: Nanos,
    /// What the engine knows of each process by the scopes of now.
    told: BTreeMap<Pid, Membership>,
    /// Reloads that have changed whose processes are managed.
    rescoped: u32,
}

impl Rig {
    fn new(seed: u64, config: &Config) -> Rig {
        let engine = Engine::new(config, topology()).expect("a sound setup");
        Rig {
            driver: Driver::new(engine, config).sparing_nothing(),
            machine: Pages::new(mix(seed), &config.scope),
            faults: Faults::new(&[], topology()),
            now: Nanos::from_s(1000),
            in_flight: BTreeMap::new(),
            moved_pages: 0,
            issued: VecDeque::new(),
            limits: VecDeque::from([(Nanos(0), rate_limit_pages(config.admission.rate_limit_mbps))]),
            read: 0,
            told_at: Nanos(0),
            told: BTreeMap::new(),
            rescoped: 0,
        }
    }

    fn engine(&self) -> &Engine {
        self.driver.engine()
    }

    /// Steps once, and compares the engine's counts with the machine's.
    fn step(&mut self) {
        self.now = self.now.plus(STEP);
        let mut faulty = FaultyMachine { inner: &mut self.machine, faults: &mut self.faults };
        let Ok(_) = self.driver.step(self.now, &mut faulty);
        for passed in std::mem::take(&mut self.faults.passed) {
            match passed {
                Passed::Process(pid, membership) => {
                    self.told.insert(pid, membership);
                }
                Passed::Issued(batch) => {
                    let known = self.told.get(&batch.pid);
                    let managed = known.is_none_or(|known| matches!(known, Membership::Managed(_)));
                    assert!(managed, "{:?} is {known:?} and moves", batch.pid);
                    self.issued.push_back((self.now, batch.pages()));
                    assert!(self.in_flight.insert(batch.id, batch).is_none(), "a batch number is used again");
                }
                Passed::Outcome(done) => {
                    let batch = self.in_flight.remove(&done.id).expect("the machine answers once");
                    let ends = batch.moves.iter().zip(&done.outcomes);
                    let moved = ends.filter(|(_, end)| **end == Outcome::Moved);
                    self.moved_pages += moved.map(|(m, _)| m.pages()).sum::<u64>();
                }
                _ => {}
            }
        }
        let engine = self.driver.engine();
        assert_eq!(engine.check_balance(), Ok(()));
        assert_eq!(engine.counters().pgmigrate_success, self.moved_pages, "pages counted as moved");
        let moves: usize = self.in_flight.values().map(|batch| batch.moves.len()).sum();
        assert_eq!(engine.moves_in_flight(), moves, "moves in flight");
        self.follow_rate();
        self.follow_journal();
    }

    /// In no second more is issued than the highest limit that was in force in it, or one folio.
    fn follow_rate(&mut self) {
        let old = self.now.0.saturating_sub(SECOND.0);
        self.issued.retain(|(time, _)| time.0 > old);
        while self.limits.len() > 1 && self.limits[1].0.0 <= old {
            self.limits.pop_front();
        }
        let limit = self.limits.iter().map(|(_, limit)| *limit).max().unwrap_or(0);
        let sum: u64 = self.issued.iter().map(|(_, pages)| pages).sum();
        assert!(sum <= limit.max(512), "{sum} pages in a second, of {limit}");
    }

    /// Whoever follows the journal misses nothing and reads nothing twice.
    fn follow_journal(&mut self) {
        let (new, next) = self.driver.engine().journal().since(self.read);
        let times: Vec<Nanos> = new.map(|decision| decision.time).collect();
        assert_eq!(times.len() as u64, next - self.read, "decisions are missing");
        for time in times {
            assert!(time >= self.told_at, "a decision is told late");
            self.told_at = time;
        }
        self.read = next;
    }

    /// All that a reload must leave as it is: counters, journal, moves in flight. Candidates of
    /// processes that are in no scope any more leave the queue, as if they had left their scope:
    /// they are added up, and what the journal says of them is at its end.
    fn state(&self) -> (Value, usize, usize) {
        let engine = self.engine();
        let mut counters = json!(engine.counters());
        let exited = counters["exited"].take().as_u64().expect("a count");
        (counters, engine.queue().len() + exited as usize, engine.moves_in_flight())
    }

    /// Tries a configuration; says whether it was taken.
    fn reload(&mut self, config: &Config) -> bool {
        let (before, was) = (self.state(), self.engine().config().clone());
        let (journal, waited) = (self.engine().journal().to_json_lines(), self.engine().queue().len());
        let status = json!(self.engine().status());
        let expected = differences(&was, config);
        let taken = self.driver.reload(config);
        assert_eq!(self.state(), before, "a reload loses a page or a count");
        assert_eq!(self.engine().check_balance(), Ok(()));
        let now = self.engine().journal().to_json_lines();
        let new = now.strip_prefix(&journal).expect("a reload loses a decision");
        let left = waited - self.engine().queue().len();
        assert_eq!(new.lines().filter(|line| line.contains("exited")).count(), left, "{new}");
        assert_eq!(new.lines().count(), left, "{new}");
        match &taken {
            Ok(changes) => {
                assert_eq!(self.engine().config(), config);
                assert_eq!(changes, &expected);
                assert!(changes.iter().all(|change| change.reloads), "{changes:?}");
                let limit = rate_limit_pages(config.admission.rate_limit_mbps);
                self.limits.push_back((self.now, limit));
                if scopes_of(&was) == scopes_of(config) {
                    assert!(now == journal, "nobody has left a scope");
                } else {
                    self.machine.set_scopes(&config.scope);
                    self.told.clear();
                    self.rescoped += 1;
                }
            }
            Err(error) => {
                assert_eq!(self.engine().config(), &was, "half of it is applied");
                assert_eq!(json!(self.engine().status()), status, "half of it is applied");
                match error {
                    ReloadError::Config(_) => assert!(config.check().is_err()),
                    ReloadError::Restart(keys) => {
                        assert!(!keys.is_empty() && keys.iter().all(|key| !key.reloads));
                    }
                    ReloadError::Shares(_) | ReloadError::Record(_) => {}
                }
            }
        }
        taken.is_ok()
    }

    fn drain(&mut self) {
        self.machine.busy = false;
        for _ in 0..DRAIN_STEPS {
            self.step();
        }
        assert_eq!((self.engine().moves_in_flight(), self.engine().queue().len()), (0, 0));
        for standing in self.engine().standings() {
            assert_eq!(
                (standing.up_pages, standing.down_pages),
                (0, 0),
                "nothing is on its way: {standing:?}"
            );
        }
    }
}

/// By what scopes it is told whose a process is.
fn scopes_of(config: &Config) -> Vec<Scope> {
    let who = |scope: &Scope| Scope {
        name: scope.name.clone(),
        pids: scope.pids.clone(),
        command: scope.command.clone(),
        cgroup: scope.cgroup.clone(),
        exclude: scope.exclude,
        ..Scope::default()
    };
    config.scope.iter().map(who).collect()
}

/// Scopes that stand, go, come, change their places and name others.
fn rescope(scopes: &mut Vec<Scope>, random: &mut Random) {
    let place = random.below(scopes.len() as u64) as usize;
    match random.below(6) {
        0 if !scopes.is_empty() => drop(scopes.remove(place)),
        1 if scopes.len() > 1 => scopes.swap(0, place),
        2 if !scopes.is_empty() => scopes[place].pids = vec![random.below(PIDS.into()) as u32],
        3 if !scopes.is_empty() => scopes[place].exclude ^= true,
        4 => {
            let cgroup = Some(format!("/{}", random.below(2)));
            let cap = [None, Some(0), Some(1)][random.below(3) as usize];
            let floor = random.below(2) * u64::from(cap.is_none());
            scopes.insert(
                0,
                Scope { cgroup, top_tier_cap_mib: cap, top_tier_floor_mib: floor, ..Scope::default() },
            );
        }
        _ => {
            let name = ["", "x", "y"][random.below(3) as usize].to_owned();
            let pids = vec![random.below(PIDS.into()) as u32];
            scopes.push(Scope { name, pids, rate_share_percent: 30, ..Scope::default() });
        }
    }
    scopes.truncate(6);
}

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = mix(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        self.0 % n.max(1)
    }
}

/// A value of a key: mostly one that is allowed.
fn value(field: &Field, random: &mut Random) -> Value {
    if let Some(values) = field.schema["enum"].as_array() {
        return values[random.below(values.len() as u64) as usize].clone();
    }
    let bounds = (field.schema["minimum"].as_u64(), field.schema["maximum"].as_u64());
    match bounds {
        (Some(least), Some(most)) if random.below(10) > 0 => {
            // Small values mostly: what waits is to be decided within the test.
            let span = (most - least).min(1 << random.below(14));
            json!(least + random.below(span + 1))
        }
        (Some(_), Some(most)) => json!(most.saturating_add(1)),
        _ => json!("/x"),
    }
}

/// `config` with up to four keys changed; none where the value is of no type that the key has.
fn changed(config: &Config, random: &mut Random) -> Option<Config> {
    let sections = Config::sections();
    let all: Vec<(&str, &Field)> = sections
        .iter()
        .flat_map(|(name, fields)| fields.iter().map(move |field| (name.as_str(), field)))
        .collect();
    let (hot, cold): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, field)| field.reloads);
    let mut tree = json!(config);
    for _ in 0..1 + random.below(4) {
        let keys = if random.below(16) == 0 { &cold } else { &hot };
        let (section, field) = keys[random.below(keys.len() as u64) as usize];
        let new = value(field, random);
        let place = match section {
            "scope" => {
                let scopes = tree["scope"].as_array_mut()?;
                let n = random.below(scopes.len() as u64) as usize;
                scopes.get_mut(n)
            }
            section => section.split('.').try_fold(&mut tree, |at, part| at.get_mut(part)),
        };
        if let Some(place) = place {
            place[field.name] = new;
        }
    }
    serde_json::from_value(tree).ok()
}

/// Roomy enough for everything to be followed.
fn setup(scopes: bool) -> Config {
    let setup = Setup { rule: Some(RuleName::Adaptive), scopes, roomy: true, ..Setup::of(0) };
    let mut config = setup.config();
    config.admission.rate_limit_mbps = 64;
    config
}

#[test]
fn random_configurations_are_applied_whole_or_refused_whole() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(18);
    println!(
        "seed {seed}; replay with: SEED={seed} cargo test -p thermocline-core --test it random_configurations"
    );
    let (mut taken, mut refused, mut rescoped, mut moved) = (0u32, 0u32, 0u32, 0);
    for (course, scopes) in [(0, false), (1, true)] {
        let mut random = Random(mix(seed + course));
        let config = setup(scopes);
        let mut rig = Rig::new(seed + course, &config);
        for _ in 0..500 {
            // From the first again, now and then, so that nothing stays out of range of everything.
            let from = if random.below(4) == 0 { config.clone() } else { rig.engine().config().clone() };
            let next = changed(&from, &mut random).map(|mut next| {
                if random.below(4) == 0 {
                    rescope(&mut next.scope, &mut random);
                }
                next
            });
            match next {
                Some(next) if rig.reload(&next) => taken += 1,
                _ => refused += 1,
            }
            for _ in 0..4 {
                rig.step();
            }
        }
        assert!(rig.reload(&config), "the first configuration is taken again");
        rig.drain();
        moved += rig.moved_pages;
        rescoped += rig.rescoped;
    }
    println!("{taken} taken, {rescoped} of them with other scopes, {refused} refused, {moved} pages moved");
    assert_eq!(taken + refused, 1000);
    assert!(rescoped > 100, "{rescoped} reloads with other scopes");
    assert!(taken > 200 && refused > 100 && moved > 1000, "{taken} taken, {refused} refused, {moved} moved");
}

#[test]
fn fifty_reloads_under_load_lose_nothing() {
    let mut first = setup(true);
    first.source.damon.enabled = false;
    let mut second = first.clone();
    second.admission.rate_limit_mbps = 8;
    second.admission.residency_ms = 100;
    second.rule.name = RuleName::Latency;
    second.queue.expire_ms = 2000;
    second.engine.tick_ms = 50;
    second.scope[0].rate_share_percent = 90;
    second.scope.remove(1);
    second.scope.insert(0, Scope { pids: vec![3], ..Scope::default() });
    second.brake.stop_ms = 4000;
    let mut rig = Rig::new(5, &first);
    let mut moved = Vec::new();
    for n in 0..50 {
        for _ in 0..10 {
            rig.step();
        }
        let before = rig.moved_pages;
        assert!(rig.reload(if n % 2 == 0 { &second } else { &first }), "reload {n}");
        for _ in 0..10 {
            rig.step();
        }
        moved.push(rig.moved_pages - before);
    }
    rig.drain();
    assert_eq!(rig.read, rig.engine().journal().written());
    assert!(moved.iter().filter(|pages| **pages > 0).count() > 25, "pages go on moving: {moved:?}");
}

#[test]
fn what_is_read_at_the_start_alone_is_refused_with_its_keys_and_nothing_changes() {
    let config = setup(false);
    let mut rig = Rig::new(1, &config);
    let mut next = config.clone();
    next.admission.rate_limit_mbps = 32;
    next.queue.capacity = 1 << 10;
    next.journal.capacity = 1 << 11;
    let error = rig.driver.reload(&next).unwrap_err().to_string();
    for part in ["queue.capacity: 65536 -> 1024", "journal.capacity", "restart thermocline"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("rate_limit_mbps"), "{error}");
    assert_eq!(rig.engine().config(), &config);
    next = config.clone();
    next.admission.batch_pages = 0;
    assert!(matches!(rig.driver.reload(&next), Err(ReloadError::Config(_))));
}
