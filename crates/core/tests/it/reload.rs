//! Another configuration for an engine at work: applied whole or refused whole, and no page, count
//! or journal entry is lost.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use thermocline_core::config::schema::Field;
use thermocline_core::config::{Config, RuleName, differences};
use thermocline_core::driver::Driver;
use thermocline_core::engine::{Engine, ReloadError};
use thermocline_core::moves::{Batch, BatchId, Outcome};
use thermocline_core::published::threshold::rate_limit_pages;
use thermocline_core::units::Nanos;

use crate::faulty::{Faults, FaultyMachine, Passed, mix};
use crate::pages::Pages;
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
    told: Nanos,
}

impl Rig {
    fn new(seed: u64, config: &Config) -> Rig {
        let engine = Engine::new(config, topology()).expect("a sound setup");
        Rig {
            driver: Driver::new(engine, config).sparing_nothing(),
            machine: Pages::new(mix(seed), !config.scope.is_empty()),
            faults: Faults::new(&[], topology()),
            now: Nanos::from_s(1000),
            in_flight: BTreeMap::new(),
            moved_pages: 0,
            issued: VecDeque::new(),
            limits: VecDeque::from([(Nanos(0), rate_limit_pages(config.admission.rate_limit_mbps))]),
            read: 0,
            told: Nanos(0),
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
                Passed::Issued(batch) => {
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
            assert!(time >= self.told, "a decision is told late");
            self.told = time;
        }
        self.read = next;
    }

    /// All that a reload must leave as it is.
    fn state(&self) -> (Value, String, usize, usize) {
        let engine = self.engine();
        let counters = json!(engine.counters());
        (counters, engine.journal().to_json_lines(), engine.queue().len(), engine.moves_in_flight())
    }

    /// Tries a configuration; says whether it was taken.
    fn reload(&mut self, config: &Config) -> bool {
        let (before, was) = (self.state(), self.engine().config().clone());
        let status = json!(self.engine().status());
        let expected = differences(&was, config);
        let taken = self.driver.reload(config);
        assert_eq!(self.state(), before, "a reload loses a page, a count or a decision");
        match &taken {
            Ok(changes) => {
                assert_eq!(self.engine().config(), config);
                assert_eq!(changes, &expected);
                assert!(changes.iter().all(|change| change.reloads), "{changes:?}");
                let limit = rate_limit_pages(config.admission.rate_limit_mbps);
                self.limits.push_back((self.now, limit));
            }
            Err(error) => {
                assert_eq!(self.engine().config(), &was, "half of it is applied");
                assert_eq!(json!(self.engine().status()), status, "half of it is applied");
                match error {
                    ReloadError::Config(_) => assert!(config.check().is_err()),
                    ReloadError::Restart(keys) => {
                        assert!(!keys.is_empty() && keys.iter().all(|key| !key.reloads));
                    }
                    ReloadError::Reach | ReloadError::Record(_) => {}
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
    }
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
    let (mut taken, mut refused, mut moved) = (0u32, 0u32, 0);
    for (course, scopes) in [(0, false), (1, true)] {
        let mut random = Random(mix(seed + course));
        let config = setup(scopes);
        let mut rig = Rig::new(seed + course, &config);
        for _ in 0..500 {
            // From the first again, now and then, so that nothing stays out of range of everything.
            let from = if random.below(4) == 0 { config.clone() } else { rig.engine().config().clone() };
            match changed(&from, &mut random) {
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
    }
    println!("{taken} taken, {refused} refused, {moved} pages moved");
    assert_eq!(taken + refused, 1000);
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
