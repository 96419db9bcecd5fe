//! The laws on a machine that fails, under every rule.

mod machine;
mod mill;
mod plan;

use std::collections::BTreeMap;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use thermocline_core::access::{Evidence, Membership};
use thermocline_core::config::{RecordLayout, RuleName};
use thermocline_core::driver::Driver;
use thermocline_core::engine::Engine;
use thermocline_core::moves::Batch;
use thermocline_core::units::{Nanos, Pid};

use crate::laws::Laws;
use crate::wild::Wild;
use crate::world::{Setup, topology};
use machine::{Faults, Passed};
use mill::Mill;
use plan::{Kind, Plan, hold};

/// Steps of a course while faults happen.
const STEPS: u32 = 400;
/// Faults of each kind that are drawn for a course. Not every one meets an opportunity.
const PER_KIND: u32 = 24;
/// Faults that happen in all, every day and where time is no matter.
const EVERYDAY: u64 = 10_000;
const SOAK: u64 = 1_000_000;
/// Steps after which a machine that has stopped has nothing under way: the longest wait for an
/// outcome, and the longest life of a candidate, in ticks.
const DRAINED_WITHIN: u32 = 2_000;

/// One course; how many faults happened.
fn course(setup: Setup, seed: u64, plan: &Plan) -> u64 {
    let config = setup.config();
    let engine = match setup.rule {
        Some(_) => Engine::new(&config, topology()),
        None => Engine::with_rule(&config, topology(), Box::new(Wild)),
    };
    let mut driver = Driver::new(engine.expect("the setup is valid"), &config).sparing_nothing();
    let mut laws = Laws::new(&config, topology());
    let mut mill = Mill::new(seed, config.source.damon.enabled);
    let mut faults = Faults::new(plan.clone(), Some(topology()));
    if setup.scopes {
        for pid in (0..5).map(Pid) {
            driver.observe(Evidence::Process { pid, membership: Mill::membership(pid) });
        }
    }
    let tick = Nanos::from_ms(config.engine.tick_ms);
    let mut now = Nanos::from_s(1000);
    for _ in 0..STEPS {
        now = now.plus(tick);
        step(&mut driver, &mut laws, &mut faults, &mut mill, now, setup.scopes);
    }
    // A machine that has stopped drains.
    faults.over = true;
    mill.quiet = true;
    for _ in 0..DRAINED_WITHIN {
        now = now.plus(tick);
        step(&mut driver, &mut laws, &mut faults, &mut mill, now, setup.scopes);
        if driver.engine().moves_in_flight() == 0 && driver.engine().queue().is_empty() {
            return faults.happened;
        }
    }
    let engine = driver.engine();
    panic!(
        "{} moves in flight and {} waiting after it stopped",
        engine.moves_in_flight(),
        engine.queue().len()
    );
}

fn step(
    driver: &mut Driver,
    laws: &mut Laws,
    faults: &mut Faults,
    mill: &mut Mill,
    now: Nanos,
    scoped: bool,
) {
    let shown = faults.clock(now);
    let Ok(_) = driver.step(shown, &mut faults.around(mill));
    let engine = driver.engine();
    let mut free = BTreeMap::new();
    for passed in &faults.passed {
        match passed {
            Passed::Evidence => {}
            Passed::Outcome(done) => laws.landed(done),
            Passed::Gone(pid) => laws.exit(*pid),
            Passed::Topology(topology) => laws.set_topology(topology.clone()),
            Passed::Nodes(nodes) => free = nodes.iter().map(|state| (state.node, state.free_pages)).collect(),
            Passed::Submitted(batches) => {
                laws.issued(engine, shown, &free, batches);
                if scoped {
                    let managed =
                        |batch: &Batch| matches!(Mill::membership(batch.pid), Membership::Managed(_));
                    assert!(batches.iter().all(managed), "a batch of an excluded process");
                }
            }
        }
    }
    laws.state(engine);
    mill.check();
}

/// Every rule, the wild one too, with and without scopes, tight and roomy, in turn.
fn setup(n: u64) -> Setup {
    let rules = RuleName::ALL.len() as u64 + 1;
    let layouts = [RecordLayout::Word, RecordLayout::Byte, RecordLayout::PghotByte, RecordLayout::PghotWord];
    Setup {
        rule: RuleName::ALL.get((n % rules) as usize).copied(),
        layout: layouts[(n / rules % 4) as usize],
        rate_limit_mbps: if n / rules % 3 == 0 { 1 } else { 64 },
        scopes: n / rules % 2 == 1,
        roomy: n / rules % 5 == 4,
    }
}

#[test]
fn no_fault_breaks_a_law() {
    let soak = std::env::var_os("THERMOCLINE_SOAK").is_some_and(|value| value == "1");
    let given = std::env::var("THERMOCLINE_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let first = given
        .unwrap_or_else(|| u64::from(std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.subsec_nanos())) << 20);
    let (mut happened, mut n) = (0, 0);
    // With a seed given, that course alone.
    let wanted = if given.is_some() {
        1
    } else if soak {
        SOAK
    } else {
        EVERYDAY
    };
    while happened < wanted {
        let seed = first + n;
        let replay = format!(
            "THERMOCLINE_SEED={seed} cargo test --release -p thermocline-core --test it no_fault_breaks_a_law"
        );
        let mut random = Pcg64Mcg::new(seed.into());
        let plan = Plan::draw(&mut random, PER_KIND, STEPS);
        let word = random.next_u64();
        happened += hold(&plan, &replay, |plan| course(setup(seed), word, plan)).max(1);
        n += 1;
    }
    println!("{happened} faults in {n} courses from seed {first}: no law broken");
}

/// What a course does not reach it does not test.
#[test]
fn every_kind_of_fault_happens() {
    for kind in Kind::ALL {
        let happened: u64 = (0..RuleName::ALL.len() as u64)
            .map(|n| {
                let plan = Plan::of_kind(&mut Pcg64Mcg::new(u128::from(n) + 7), kind, PER_KIND, STEPS);
                course(setup(n), n, &plan)
            })
            .sum();
        assert!(happened > 0, "{kind:?} never happens");
    }
}

/// A failure is told with few faults.
#[test]
fn a_failure_shrinks_to_what_causes_it() {
    let plan = Plan::draw(&mut Pcg64Mcg::new(1), 20, 100);
    let cause = plan.at_some(Kind::OutcomeTwice);
    let least = plan.shrink(|plan| plan.at(Kind::OutcomeTwice, cause).is_some());
    assert_eq!(least.len(), 1);
    assert!(least.at(Kind::OutcomeTwice, cause).is_some());
}
