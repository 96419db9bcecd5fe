//! Ground truths: what follows from arithmetic alone, in both modes.

use std::sync::{Arc, Mutex};

use thermocline_core::units::Nanos;
use thermocline_sim::manager::{Manager, ManagerName};
use thermocline_sim::memory::MARK_SHIFT;
use thermocline_sim::mode::ModeName;
use thermocline_sim::report::Report;
use thermocline_sim::run::{Arm, run, run_with};
use thermocline_sim::scenario::Setup;
use thermocline_sim::system::{Fault, System};

pub const MODES: [ModeName; 2] = [ModeName::Exact, ModeName::Event];

/// A machine whose kernel takes no time, so that all time is that of accesses; DRAM 100 ns, CXL
/// 250 ns.
pub fn setup(process: &str, kernel: &str, changes: &[&str]) -> Setup {
    let text = format!(
        "name = \"truth\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nlimit = \"10min\"\n[kernel]\n{kernel}\n\
         [[process]]\nname = \"p\"\nnode = 0\n{process}\n"
    );
    let free = [
        "sample",
        "hint_fault",
        "migrate",
        "scan_mark",
        "scan_skip",
        "scan_again",
        "accessed_bit",
        "reclaim_look",
        "demote",
        "mover_page",
    ];
    let mut all: Vec<String> = free.iter().map(|c| format!("machine.cost.{c}_ns=0")).collect();
    all.extend(changes.iter().map(|c| (*c).to_owned()));
    Setup::parse("truth", &text, &all).expect("a sound scenario")
}

fn arm(manager: &str, mode: ModeName, seed: u64) -> Arm {
    Arm { manager: ManagerName::parse(manager).expect("a manager"), mode, seed }
}

pub fn simulate(setup: &Setup, manager: &str, mode: ModeName, seed: u64) -> Report {
    run(setup, arm(manager, mode, seed)).expect("it runs and keeps its books")
}

/// A manager that notes how long each page waited for its fault, and moves nothing.
#[derive(Debug)]
struct Waits(Arc<Mutex<Vec<f64>>>);

impl Manager for Waits {
    fn name(&self) -> String {
        "waits".to_owned()
    }

    fn scans(&self) -> bool {
        true
    }

    fn on_fault(&mut self, system: &mut System, fault: &Fault) -> f64 {
        system.counters.rejected_latency += 1;
        let wait = system.now.since(Nanos(u64::from(fault.marked) << MARK_SHIFT));
        self.0.lock().expect("one thread").push(wait.0 as f64);
        0.0
    }
}

pub const PAGES: f64 = 4096.0;
/// A process of [`PAGES`] pages on CXL, all of which are marked at once, 40 ms after its start, and
/// never again.
pub const MARKED_ONCE: &str =
    "scan_delay_ms = 40\nscan_period_min_ms = 3600000\nscan_period_max_ms = 3600000";

fn marked_once(accesses: u64) -> Setup {
    let process = format!(
        "threads = 1\nfootprint = \"16MiB\"\nplace = [{{ node = 1 }}]\n\
         pattern = {{ kind = \"uniform\", accesses = {accesses} }}"
    );
    setup(&process, MARKED_ONCE, &[])
}

/// The time of a run that is done.
fn time_s(report: &Report) -> f64 {
    report.time_s.expect("it is done")
}

#[test]
fn uniform_accesses_touch_as_many_pages_as_trials_do() {
    // 40 ms are 160,000 accesses of 250 ns: what is left after the scan is what counts.
    for after in [1000.0, 4096.0, 12_000.0f64] {
        let setup = marked_once(160_000 + after as u64);
        for mode in MODES {
            let faults: Vec<f64> = (1..=32)
                .map(|seed| simulate(&setup, "numab2", mode, seed).counters.numa_hint_faults as f64)
                .collect();
            let mean = faults.iter().sum::<f64>() / 32.0;
            let expected = PAGES * (1.0 - (1.0 - 1.0 / PAGES).powf(after));
            // The number of pages touched varies by less than its square root.
            let error = 4.0 * (expected / 32.0).sqrt();
            assert!((mean - expected).abs() < error, "{mode:?}, {after} accesses: {mean}, not {expected}");
        }
    }
}

#[test]
fn waits_are_exponential() {
    let setup = marked_once(160_000 + 20 * PAGES as u64);
    for mode in MODES {
        for seed in 1..=4 {
            let waits = Arc::new(Mutex::new(Vec::new()));
            run_with(&setup, arm("numab2", mode, seed), Box::new(Waits(waits.clone()))).expect("it runs");
            let mut waits = waits.lock().expect("one thread").clone();
            waits.sort_by(f64::total_cmp);
            assert_eq!(waits.len() as f64, PAGES, "after twenty times their mean, all have come");
            let mean_ns = PAGES * 250.0;
            let n = waits.len() as f64;
            let mut distance: f64 = 0.0;
            for (i, wait) in waits.iter().enumerate() {
                // Marks keep their time to 65 us; half of that is what it is short on average.
                let below = 1.0 - (-(wait - f64::from(1u32 << (MARK_SHIFT - 1))).max(0.0) / mean_ns).exp();
                distance = distance.max((below - i as f64 / n).abs()).max((below - (i + 1) as f64 / n).abs());
            }
            // Kolmogorov and Smirnov's limit at 0.1 %, and the step of the marks' time.
            let limit = 1.95 / n.sqrt() + f64::from(1u32 << MARK_SHIFT) / mean_ns;
            assert!(distance < limit, "{mode:?}, seed {seed}: {distance} of {limit}");
        }
    }
}

#[test]
fn a_bandwidth_limit_holds_and_threads_are_rate_times_latency() {
    let process = "threads = 32\nfootprint = \"64MiB\"\nplace = [{ node = 1 }]\nstore_share = 0.0\n\
                   pattern = { kind = \"uniform\", accesses = 500000 }";
    for (limit_mbps, limited) in [(2_000.0, true), (200_000.0, false)] {
        let change = format!("machine.node.1.bandwidth_mbps={limit_mbps:?}");
        let setup = setup(process, "", &[&change]);
        for mode in MODES {
            let report = simulate(&setup, "none", mode, 1);
            let rate = report.counters.accesses as f64 / time_s(&report);
            let latency_s = 32.0 / rate;
            let used = rate * 64.0 / (limit_mbps * 1e6);
            if limited {
                assert!((0.87..0.93).contains(&used), "{mode:?}: {used} of the bandwidth");
                assert!(latency_s > 800e-9, "{mode:?}: {latency_s}");
            } else {
                assert!((250e-9..258e-9).contains(&latency_s), "{mode:?}: {latency_s}");
            }
        }
    }
}

/// A process on both nodes, with chunks that come and go.
const CHUNKS: &str = "threads = 2\nfootprint = \"96MiB\"\nplace = [{ node = 0 }, { node = 1 }]\n\
     pattern = { kind = \"chunk-random\", chunk = \"4MiB\", accesses_per_page = 50.0, visits = 60 }";
const FAST_SCANS: &str = "scan_delay_ms = 20\nscan_size_mb = 8\nhot_threshold_ms = 20";
pub const SMALL: [&str; 4] = [
    "machine.node.0.memory=\"48MiB\"",
    "machine.node.1.memory=\"256MiB\"",
    "machine.min_free=\"512KiB\"",
    "config.kernel.numa_balancing_promote_rate_limit_mbps=1",
];

#[test]
fn who_reads_accessed_bits_costs_the_program_that_sets_them_again() {
    let changes = [&SMALL[..], &["machine.node.1.read_ns=[100.0, 0.0]"]].concat();
    let time = |accessed_bit_ns: u32, mode| {
        let cost = format!("machine.cost.accessed_bit_ns={accessed_bit_ns}");
        let changes = [&changes[..], &[&cost]].concat();
        let report = simulate(&setup(CHUNKS, FAST_SCANS, &changes), "damon", mode, 3);
        (time_s(&report), report.overhead_s)
    };
    for mode in MODES {
        let ((free, nothing), (costly, overhead)) = (time(0, mode), time(20_000, mode));
        assert_eq!(nothing, 0.0);
        assert!(overhead > 0.01 * free, "{mode:?}: DAMON has hardly looked: {overhead} s");
        // Two threads pay in equal parts.
        let paid = costly - free;
        assert!((paid / (overhead / 2.0) - 1.0).abs() < 0.1, "{mode:?}: {paid} s of {overhead} s");
    }
}

#[test]
fn between_equal_tiers_no_manager_changes_the_time() {
    let mut changes = SMALL.to_vec();
    changes.push("machine.node.1.read_ns=[100.0, 0.0]");
    let setup = setup(CHUNKS, FAST_SCANS, &changes);
    for mode in MODES {
        for manager in ManagerName::all() {
            let report = run(&setup, Arm { manager, mode, seed: 3 }).expect("it runs");
            let expected = 60.0 * 50.0 * 1024.0 * 100e-9;
            assert!(
                (time_s(&report) / expected - 1.0).abs() < 1e-3,
                "{} {mode:?}: {}",
                manager.text(),
                time_s(&report)
            );
        }
    }
}

#[test]
fn all_dram_and_all_cxl_are_the_bounds_of_every_manager() {
    let mixed = setup(CHUNKS, FAST_SCANS, &SMALL);
    let mut roomy = SMALL.to_vec();
    roomy[0] = "machine.node.0.memory=\"512MiB\"";
    let dram = setup(CHUNKS, FAST_SCANS, &roomy);
    let cxl = setup(&CHUNKS.replace("{ node = 0 }, ", ""), FAST_SCANS, &SMALL);
    for mode in MODES {
        let best = simulate(&dram, "none", mode, 5);
        let worst = simulate(&cxl, "none", mode, 5);
        assert_eq!((best.top_share, worst.top_share), (Some(1.0), Some(0.0)));
        let (least, most) = (time_s(&best), time_s(&worst));
        assert!((most / least - 2.5).abs() < 0.01);
        for manager in ManagerName::all() {
            let report = run(&mixed, Arm { manager, mode, seed: 5 }).expect("it runs");
            let name = manager.text();
            let (time, share) = (time_s(&report), report.top_share.expect("accesses"));
            assert!((least..most).contains(&time), "{name}: {time}");
            // And the time expected from the tiers that served the accesses; the later of two
            // threads has had the slower part.
            let expected = least * (share + 2.5 * (1.0 - share));
            let ratio = time / expected;
            assert!((0.99..1.1).contains(&ratio), "{name} {mode:?}: {time} {expected}");
        }
    }
}

#[test]
fn threads_are_scanned_at_256_mb_a_second_and_top_tier_memory_is_passed_over_eight_times_as_fast() {
    let process = |place: &str| {
        format!(
            "threads = 2\nfootprint = \"3GiB\"\nplace = [{place}]\n\
             pattern = {{ kind = \"uniform\", accesses = 1000000000 }}"
        )
    };
    let limited = |place: &str| {
        let mut setup = setup(&process(place), "", &["machine.node.0.memory=\"4GiB\""]);
        setup.scenario.limit.0 = Nanos::from_ms(6500);
        simulate(&setup, "numab2", ModeName::Event, 1)
    };
    // Plenty of room in DRAM: what is touched is promoted, as far as a scan has come; each second
    // another 256 MB (S4's `promote-8g` goes at that pace).
    let cxl = limited("{ node = 1 }");
    assert_eq!(cxl.counters.numa_pte_updates, 6 * 65_536);
    let dram = limited("{ node = 0 }");
    assert_eq!((dram.counters.numa_pte_updates, dram.processes[0].scan_passes), (0, 3));
}

#[test]
fn of_zipf_the_best_placement_serves_what_its_most_popular_pages_are_asked_for() {
    let process = "threads = 1\nfootprint = \"64MiB\"\nplace = [{ node = 0 }, { node = 1 }]\n\
                   pattern = { kind = \"zipf\", accesses = 3000000 }";
    let setup = setup(process, FAST_SCANS, &SMALL[..3]);
    let node = &setup.machine.nodes[0];
    let fits = node.pages - node.watermarks.low_pages;
    let sum = |to: u64| (1..=to).map(|rank| (rank as f64).powf(-0.99)).sum::<f64>();
    let expected = sum(fits) / sum(16_384);
    for mode in MODES {
        for manager in ["none", "numab2", "thermocline:adaptive"] {
            let report = simulate(&setup, manager, mode, 2);
            let found = report.oracle.expect("it is done").static_top_share;
            let top = report.top_share.expect("accesses");
            assert!((found - expected).abs() < 1e-3, "{manager} {mode:?}: {found}, not {expected}");
            // Nobody can know better while popularity stays: but for chance, which three million
            // draws leave little of.
            assert!(top < found + 2e-3, "{manager} {mode:?}: {top} of {found}");
        }
    }
}
