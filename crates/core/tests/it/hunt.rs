//! Looks for a course of faults that breaks a law, and shortens what it finds.
//!
//! `THERMOCLINE_FAULTS_SEED=N` runs that course alone, `THERMOCLINE_SOAK=1` as many as a soak has.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use crate::faulty::{Fault, Kind};

/// Faults after which a hunt ends.
#[derive(Clone, Copy, Debug)]
pub struct Enough {
    /// Every day.
    pub everyday: u64,
    /// In a soak.
    pub soak: u64,
}

/// Runs courses until enough faults have happened; `run` returns how many did, by kind, and so does
/// this. `command` is what runs the test.
pub fn hunt(
    command: &str,
    enough: Enough,
    (faults, polls): (u32, u32),
    run: impl Fn(u64, &[Fault]) -> [u64; Kind::ALL.len()],
) -> [u64; Kind::ALL.len()] {
    let alone = std::env::var("THERMOCLINE_FAULTS_SEED").ok().and_then(|seed| seed.parse().ok());
    let soak = std::env::var_os("THERMOCLINE_SOAK").is_some_and(|value| value == "1");
    let wanted = if soak { enough.soak } else { enough.everyday };
    let mut sum = [0; Kind::ALL.len()];
    let mut seed = alone.unwrap_or(0);
    loop {
        let plan = plan(seed, faults, polls);
        match catch_unwind(AssertUnwindSafe(|| run(seed, &plan))) {
            Ok(happened) => sum.iter_mut().zip(happened).for_each(|(sum, n)| *sum += n),
            Err(_) => fail(command, seed, &plan, &run),
        }
        seed += 1;
        let all: u64 = sum.iter().sum();
        if alone.is_some() || all >= wanted {
            println!("{all} faults in {seed} courses, no law broken");
            return sum;
        }
    }
}

/// Faults at random polls, in order.
fn plan(seed: u64, faults: u32, polls: u32) -> Vec<Fault> {
    let mut random = Pcg64Mcg::new(u128::from(seed) << 1 | 1);
    let fault = |_| Fault {
        poll: random.next_u32() % polls,
        kind: Kind::ALL[random.next_u32() as usize % Kind::ALL.len()],
        bits: random.next_u32(),
    };
    let mut plan: Vec<Fault> = (0..faults).map(fault).collect();
    plan.sort_by_key(|fault| fault.poll);
    plan
}

/// Says how to replay a course that fails, and which of its faults are needed.
fn fail(
    command: &str,
    seed: u64,
    plan: &[Fault],
    run: &impl Fn(u64, &[Fault]) -> [u64; Kind::ALL.len()],
) -> ! {
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let fails = |plan: &[Fault]| catch_unwind(AssertUnwindSafe(|| run(seed, plan))).is_err();
    let least = shorten(plan.to_vec(), &fails);
    set_hook(hook);
    let described = std::process::Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = described
        .ok()
        .filter(|git| git.status.success())
        .map_or("unknown".to_owned(), |git| String::from_utf8_lossy(&git.stdout).trim().to_owned());
    eprintln!("seed {seed} fails at commit {commit} with {} of {} faults:", least.len(), plan.len());
    least.iter().for_each(|fault| eprintln!("  {fault:?}"));
    eprintln!("replay with: THERMOCLINE_FAULTS_SEED={seed} {command}");
    run(seed, &least);
    panic!("the course fails with all faults only, or not always");
}

/// Leaves out ever smaller parts of a list for as long as it fails without them.
fn shorten<T: Clone>(mut list: Vec<T>, fails: &impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut part = list.len();
    while part > 0 {
        let mut at = 0;
        while at < list.len() {
            let mut shorter = list.clone();
            shorter.drain(at..list.len().min(at + part));
            if fails(&shorter) {
                list = shorter;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    list
}

#[test]
fn a_list_is_shortened_to_what_is_needed() {
    let needs = |list: &[u32]| list.contains(&7) && list.contains(&90);
    assert_eq!(shorten((0..100).collect(), &needs), [7, 90]);
    assert!(shorten((0..100).collect(), &|_: &[u32]| true).is_empty());
}
