//! Pairs of runs, exact and event, of the same seeds: do their counters agree?

use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run_all};
use thermocline_sim::scenario::Setup;

/// Seeds of a comparison.
pub const SEEDS: u64 = 16;
/// Counters with at least this mean may differ by [`SHARE`] of it in the mean of the pairs.
const OFTEN: f64 = 10_000.0;
/// See [`OFTEN`].
const SHARE: f64 = 0.02;
/// Rarer ones may not differ at this level, over all of them (Holm).
const LEVEL: f64 = 0.01;

/// What is compared of a report.
fn figures(report: &Report) -> Vec<(&'static str, f64)> {
    let mut all: Vec<(&str, f64)> =
        report.counters.values().into_iter().map(|(name, value)| (name, value as f64)).collect();
    all.extend(report.time_s.map(|s| ("time, us", s * 1e6)));
    all.push(("accesses of the top tier", report.nodes[0].accesses as f64));
    all
}

/// Runs a scenario in both modes and holds them to each other; prints what differs most.
pub fn compare(label: &str, setup: &Setup, manager: &str) {
    let manager = ManagerName::parse(manager).expect("a manager");
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("{label}: seeds {first} to {}; replay with SEED={first}", first + SEEDS - 1);
    let arms: Vec<Arm> = (first..first + SEEDS)
        .flat_map(|seed| [ModeName::Exact, ModeName::Event].map(|mode| Arm { manager, mode, seed }))
        .collect();
    let reports: Vec<Report> =
        run_all(setup, &arms).into_iter().map(|r| r.expect("the run keeps its books")).collect();
    assert!(reports.iter().all(|r| r.finished), "{label}: a run was not done");
    let pairs: Vec<_> = reports.chunks(2).map(|p| (figures(&p[0]), figures(&p[1]))).collect();
    let mut rare = Vec::new();
    for i in 0..pairs[0].0.len() {
        let name = pairs[0].0[i].0;
        let differences: Vec<f64> = pairs.iter().map(|(exact, event)| event[i].1 - exact[i].1).collect();
        let mean = pairs.iter().map(|(exact, _)| exact[i].1).sum::<f64>() / SEEDS as f64;
        let difference = differences.iter().sum::<f64>() / SEEDS as f64;
        if mean == 0.0 && difference == 0.0 {
            continue;
        }
        println!("  {name:<26} {mean:>14.1} {:>+9.3} %", 100.0 * difference / mean.max(1.0));
        if mean >= OFTEN {
            assert!(difference.abs() <= SHARE * mean, "{label}: {name} differs by {difference} of {mean}");
        } else {
            rare.push((sign_flips(&differences), name));
        }
    }
    rare.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((p, name)) = rare.first() {
        assert!(p * rare.len() as f64 > LEVEL, "{label}: {name} differs, p = {p}; of {}", rare.len());
    }
}

/// The share of the ways to exchange the runs within pairs that give a mean difference as large as
/// the one seen: an exact test that no difference is there.
fn sign_flips(differences: &[f64]) -> f64 {
    let seen = differences.iter().sum::<f64>().abs() * (1.0 - 1e-12);
    let ways = 1u32 << differences.len();
    let extreme = (0..ways).filter(|signs| {
        let sum: f64 =
            differences.iter().enumerate().map(|(i, d)| if signs >> i & 1 == 0 { *d } else { -d }).sum();
        sum.abs() >= seen
    });
    extreme.count() as f64 / f64::from(ways)
}

#[test]
fn the_test_of_signs_knows_its_extremes() {
    assert_eq!(sign_flips(&[0.0; 10]), 1.0);
    assert_eq!(sign_flips(&[1.0; 10]), 2.0 / 1024.0);
    assert!(sign_flips(&[1.0, -1.0, 2.0, -2.0, 1.0, -1.0]) > 0.5);
}
