//! The laws, for many random courses of events.
//!
//! `PROPTEST_CASES` asks for more courses than are run by default. A failure prints the seed of its
//! run and the smallest course that fails, as bytes in hexadecimal; they are read as the fuzzer
//! reads them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use crate::step::steps;
use crate::world::{Setup, World};

/// The setup's byte and the steps' bytes.
#[derive(Clone)]
struct Course(Vec<u8>);

impl std::fmt::Debug for Course {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Lets a course happen.
fn happen(course: &Course) -> World {
    let (setup, bytes) = course.0.split_first().unwrap_or((&0, &[]));
    let mut world = World::new(Setup::of(*setup));
    for step in steps(bytes) {
        world.step(&step);
    }
    world
}

/// What a course leaves: journal and figures.
fn run(course: &Course) -> (String, String) {
    let world = happen(course);
    let status = serde_json::to_string(&world.engine().status()).expect("a status can be told");
    (world.engine().journal().to_json_lines(), status)
}

/// Runs `test` on random courses; `name` is the test's, for the command that replays it.
fn for_courses(name: &str, cases: u32, len: usize, test: impl Fn(&Course)) {
    let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let seed = number("PROPTEST_RNG_SEED").unwrap_or_else(rand_seed);
    let cases = number("PROPTEST_CASES").and_then(|n| n.try_into().ok()).unwrap_or(cases);
    let replay = format!(
        "PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases} cargo test -p thermocline-core --test it {name}"
    );
    println!("seed {seed}; replay with: {replay}");
    let config =
        Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() };
    let courses = prop::collection::vec(any::<u8>(), 1..len).prop_map(Course);
    let result = TestRunner::new(config).run(&courses, |course| {
        test(&course);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}\nreplay with: {replay}");
    }
}

/// A seed from the standard library's own source of randomness.
fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[test]
fn the_laws_hold_whatever_happens() {
    for_courses("the_laws_hold_whatever_happens", 512, 4096, |course| drop(run(course)));
}

#[test]
fn the_same_inputs_give_the_same_journal() {
    for_courses("the_same_inputs_give_the_same_journal", 64, 2048, |course| {
        assert_eq!(run(course), run(course));
    });
}

/// Laws that nothing comes near to are kept by chance: random courses must reach what the laws are
/// about.
#[test]
fn random_courses_reach_what_the_laws_are_about() {
    let mut random = Pcg64Mcg::new(0x7468_6572_6d6f);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..256 {
        let mut bytes = vec![0; 4096];
        random.fill_bytes(&mut bytes);
        let world = happen(&Course(bytes));
        for s in world.engine().counters().samples() {
            *seen.entry(format!("{} {}", s.name, s.label.unwrap_or_default())).or_default() += s.value;
        }
    }
    for must in [
        "evidence damon",
        "evidence hint-fault",
        "evidence_invalid ",
        "merged ",
        "exited ",
        "queue_evicted ",
        "returned ",
        "lost ",
        "outcomes_unknown ",
        "outcomes_malformed ",
        "pgpromote_success ",
        "pgdemote ",
        "pgbalance ",
        "failed busy",
        "refused gave_up",
        "refused in_flight",
        "refused lost",
        "refused ping_pong",
        "refused pinned",
        "refused queue_full",
        "refused resident",
        "held below_goal",
        "held batches_in_flight",
        "held in_flight",
        "held node_full",
        "held rate_limited",
        "held share_exceeded",
        "expired expired",
        "expired rate_limited",
        "expired retry",
    ] {
        assert!(seen.get(must).is_some_and(|n| *n > 0), "{must} never happens: {seen:#?}");
    }
}
