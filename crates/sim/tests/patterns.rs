//! Event mode against exact mode, in pairs of the same seed, for the patterns: zipf, latest,
//! sequential, and a mix of two processes, each with one and with eight threads.
//!
//! Counters with a mean of at least 10,000 differ by at most 2 % in the paired mean; rarer ones do
//! not differ at p = 0.01 (a test of all changes of sign, corrected after Holm for the number of
//! counters). To run one again: `cargo test --release -p thermocline-sim --test patterns NAME --
//! --nocapture`.

use thermocline_sim::manager::ManagerName;
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run_all};
use thermocline_sim::scenario::Setup;

const SEEDS: u64 = 16;
/// Counters below this mean are tested, not bounded.
const FREQUENT: f64 = 10_000.0;

/// Processes on a machine with 24 MiB of DRAM, the kernel's periods short in proportion.
fn setup(processes: &str) -> Setup {
    let head = "name = \"pair\"\nsummary = \"pair\"\nmachine = \"cxl-2tier\"\nlimit = \"5min\"\n\
                [kernel]\nscan_delay_ms = 20\nscan_period_min_ms = 100\nscan_period_max_ms = 200\n\
                scan_size_mb = 8\nhot_threshold_ms = 40\n";
    let changes = [
        "machine.min_free=\"256KiB\"",
        "machine.node.0.memory=\"24MiB\"",
        "machine.node.1.memory=\"96MiB\"",
        "machine.watermark_scale_factor=100",
    ];
    let changes = changes.map(str::to_owned);
    Setup::parse("pair", &format!("{head}{processes}"), &changes).expect("the scenario of the tests is sound")
}

fn process(threads: u32, mib: u32, pattern: &str) -> String {
    format!(
        "[[process]]\nname = \"p\"\nthreads = {threads}\nnode = 0\nfootprint = \"{mib}MiB\"\n\
         place = [{{ node = 0 }}, {{ node = 1 }}]\npattern = {{ {pattern} }}\n"
    )
}

/// Probability that the sum of differences is as far from zero as it is, if each sign is as likely
/// as the other.
fn sign_test(differences: &[f64]) -> f64 {
    let observed = differences.iter().sum::<f64>().abs();
    let all = 1u32 << differences.len();
    let as_far = (0..all)
        .filter(|signs| {
            let sum: f64 =
                differences.iter().enumerate().map(|(i, d)| if signs >> i & 1 == 0 { *d } else { -d }).sum();
            sum.abs() >= observed - 1e-9
        })
        .count();
    as_far as f64 / f64::from(all)
}

/// Compares the modes; every difference is reported with what was expected.
fn agree(name: &str, setup: &Setup, manager: ManagerName) {
    let arms = |mode| (1..=SEEDS).map(|seed| Arm { manager, mode, seed }).collect::<Vec<_>>();
    let run = |mode| -> Vec<Report> {
        run_all(setup, &arms(mode)).into_iter().map(|r| r.unwrap_or_else(|e| panic!("{e}"))).collect()
    };
    let (exact, event) = (run(ModeName::Exact), run(ModeName::Event));
    let figures = |r: &Report| {
        let mut all: Vec<(&'static str, f64)> =
            r.counters.values().into_iter().map(|(name, n)| (name, n as f64)).collect();
        all.extend(r.time_s.map(|s| ("time, us", s * 1e6)));
        all
    };
    let (mut wrong, mut rare) = (Vec::new(), Vec::new());
    for (i, (counter, _)) in figures(&exact[0]).into_iter().enumerate() {
        let column = |reports: &[Report]| reports.iter().map(|r| figures(r)[i].1).collect::<Vec<f64>>();
        let (a, b) = (column(&exact), column(&event));
        let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
        if mean(&a) == 0.0 && mean(&b) == 0.0 {
            continue;
        }
        let relative = mean(&b) / mean(&a) - 1.0;
        println!(
            "{name}: {counter}: exact {:.0}, event {:.0}, {:+.2} %",
            mean(&a),
            mean(&b),
            relative * 100.0
        );
        if mean(&a) >= FREQUENT {
            if relative.abs() > 0.02 {
                wrong.push(format!("{counter} differs by {:.2} %", relative * 100.0));
            }
        } else {
            let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
            rare.push((sign_test(&differences), counter));
        }
    }
    rare.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (i, (p, counter)) in rare.iter().enumerate() {
        if *p >= 0.01 / (rare.len() - i) as f64 {
            break;
        }
        wrong.push(format!("{counter} differs at p = {p}"));
    }
    assert!(wrong.is_empty(), "{name}: {wrong:?}");
}

fn numab2(name: &str, setup: &Setup) {
    agree(name, setup, ManagerName::Numab2);
}

#[test]
fn zipf() {
    for (threads, accesses) in [(1, 10_000_000), (8, 1_500_000)] {
        let pattern = format!("kind = \"zipf\", accesses = {accesses}");
        numab2(&format!("zipf, {threads}"), &setup(&process(threads, 64, &pattern)));
    }
}

#[test]
fn latest() {
    for (threads, accesses) in [(1, 10_000_000), (8, 1_500_000)] {
        let pattern = format!("kind = \"latest\", accesses = {accesses}, insert_every = 2000");
        numab2(&format!("latest, {threads}"), &setup(&process(threads, 64, &pattern)));
    }
}

#[test]
fn sequential() {
    for threads in [1, 8] {
        let pattern = "kind = \"stream\", passes = 16.0, random_start = true";
        numab2(&format!("sequential, {threads}"), &setup(&process(threads, 64, pattern)));
    }
}

#[test]
fn speculative() {
    let stream = "kind = \"stream\", passes = 8.0, random_start = true";
    for (name, pattern) in [("stream", stream), ("zipf", "kind = \"zipf\", accesses = 2900000")] {
        agree(&format!("speculative, {name}"), &setup(&process(1, 64, pattern)), ManagerName::Speculative);
    }
}

#[test]
fn two_processes() {
    for (threads, accesses) in [(1, 10_000_000), (8, 1_500_000)] {
        let hot = format!("kind = \"zipf\", accesses = {accesses}, items_per_page = 4");
        let drift = format!(
            "kind = \"hotspot\", hot_share = 0.2, access_share = 0.9, accesses = {accesses}, \
             drift_every = {}, drift_share = 0.25",
            accesses / 4
        );
        let both = process(threads, 40, &hot) + &process(threads, 32, &drift);
        numab2(&format!("two processes, {threads}"), &setup(&both));
    }
}

#[test]
fn a_difference_would_be_found() {
    assert!(sign_test(&[1.0; 16]) < 1e-4);
    let balanced: Vec<f64> = (0..16).map(|i| if i % 2 == 0 { 1.0 } else { -1.1 }).collect();
    assert!(sign_test(&balanced) > 0.5);
}
