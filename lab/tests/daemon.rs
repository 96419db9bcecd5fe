//! The daemon, as it is shipped: what its source sees, how it ends, and how it treats its users.
//!
//! `THERMOCLINE_SOAK=1` makes the runs longer.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

mod common;
mod soak;

#[path = "daemon/brake.rs"]
mod brake;
#[path = "daemon/caps.rs"]
mod caps;
#[path = "daemon/chaos.rs"]
mod chaos;
#[path = "daemon/chmu.rs"]
mod chmu;
#[path = "daemon/crowd.rs"]
mod crowd;
#[path = "daemon/damon.rs"]
mod damon;
#[path = "daemon/debian12.rs"]
mod debian12;
#[path = "daemon/demotion.rs"]
mod demotion;
#[path = "daemon/hang.rs"]
mod hang;
#[path = "daemon/limits.rs"]
mod limits;
#[path = "daemon/lockdown.rs"]
mod lockdown;
#[path = "daemon/one_tier.rs"]
mod one_tier;
#[path = "daemon/pace.rs"]
mod pace;
#[path = "daemon/physical.rs"]
mod physical;
#[path = "daemon/pods.rs"]
mod pods;
#[path = "daemon/regions.rs"]
mod regions;
#[path = "daemon/reload.rs"]
mod reload;
#[path = "daemon/series.rs"]
mod series;
#[path = "daemon/service.rs"]
mod service;
#[path = "daemon/shapes.rs"]
mod shapes;
#[path = "daemon/shares.rs"]
mod shares;
#[path = "daemon/together.rs"]
mod together;
#[path = "daemon/trouble.rs"]
mod trouble;
#[path = "daemon/whose.rs"]
mod whose;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde_json::Value;
use soak::{soak, where_time_is_no_matter};
use tempfile::TempDir;
use thermocline_lab::programs::judge::Verdict;
use thermocline_lab::programs::read_json;
use thermocline_lab::{Guest, GuestBuilder, Line, Machine, Outcome, ThpMode};

const MIB: u64 = 1 << 20;
/// How much slower than where limits were chosen a machine may be, by itself or for what else it
/// does.
const PATIENCE: u32 = 2;

/// The released program: what a debug build costs says nothing of what users pay.
fn thermocline() -> PathBuf {
    let program =
        Path::new(env!("CARGO_BIN_EXE_lab")).ancestors().nth(2).unwrap().join("release/thermocline");
    assert!(program.exists(), "{} is absent: build it with make test", program.display());
    program
}

/// A script in a guest, with a folder that both sides may write.
struct Run {
    folder: TempDir,
    machine: Machine,
    guest: GuestBuilder,
}

impl Run {
    fn new(line: Line, sizes_mib: [u64; 3], thp: ThpMode, limit_s: u64) -> Run {
        let folder = tempfile::Builder::new().prefix("daemon").tempdir_in("/tmp").unwrap();
        let machine = Machine::of_sizes(&sizes_mib.map(|size| size * MIB));
        let guest = Guest::builder()
            .kernel(line)
            .machine(machine.clone())
            .thp(thp)
            .timeout(Some(PATIENCE * Duration::from_secs(limit_s)))
            .share(folder.path())
            .env("THERMOCLINE", thermocline().to_str().unwrap())
            .env("HOTCOLD", env!("CARGO_BIN_EXE_hotcold"))
            .env("REDIS_LOAD", env!("CARGO_BIN_EXE_redis_load"));
        Run { folder, machine, guest }
    }

    /// With one processor. On several, the emulator may run code that the kernel has patched as it
    /// was before, which the guest seldom survives: for tests that change settings many times.
    fn one_processor(mut self) -> Run {
        self.machine.set_cpus(&[1]);
        self.guest = self.guest.machine(self.machine.clone());
        self
    }

    fn env(mut self, name: &str, value: impl ToString) -> Run {
        self.guest = self.guest.env(name, value.to_string());
        self
    }

    /// More words for the kernel's command line.
    fn append(mut self, words: &str) -> Run {
        self.guest = self.guest.append(words);
        self
    }

    /// The script's outcome; none where this machine cannot run guests.
    fn run(&self, script: &str) -> Option<Outcome> {
        // The lab may boot again and start over; what the first attempt left must not be taken for
        // the second's.
        let script = format!("rm -rf \"$LAB_SHARE\"/*\n{script}");
        let outcome = match self.guest.run(&script) {
            Err(error)
                if error.is_unavailable() && std::env::var_os("THERMOCLINE_LAB_REQUIRED").is_none() =>
            {
                println!("skipped: {error}");
                return None;
            }
            outcome => outcome.unwrap_or_else(|error| {
                panic!("{error}\n{}{}{}", self.text("kills"), self.text("errors"), self.text("daemon-errors"))
            }),
        };
        println!("Linux {}, {:.0} s\n{}", outcome.release, outcome.total.as_secs_f64(), outcome.stdout);
        assert_eq!(
            outcome.status,
            0,
            "{}{}{}",
            outcome.stderr,
            self.text("errors"),
            self.text("daemon-errors")
        );
        Some(outcome)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    fn json(&self, name: &str) -> Value {
        let text = self.text(name);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"))
    }

    fn verdict(&self, name: &str) -> Verdict {
        read_json(&self.folder.path().join(name)).unwrap()
    }

    /// Accesses a second of hotcold between two marks in its log.
    fn accesses(&self, phase: &str) -> f64 {
        let mark = |end: &str| self.text(&format!("mark-{phase}-{end}")).trim().parse::<usize>().unwrap();
        let log = self.text("log");
        let lines: Vec<&str> = log.lines().take(mark("to")).skip(mark("from")).collect();
        let accesses: u64 = lines
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["accesses"].as_u64())
            .sum();
        accesses as f64 / lines.len().max(1) as f64
    }
}

/// A `name=value` line of a script's output.
fn number(outcome: &Outcome, name: &str) -> u64 {
    let value = outcome.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {name} in {}", outcome.stdout)).parse().unwrap()
}

/// A number of a JSON object, by its path.
fn count(found: &Value, path: &str) -> u64 {
    found.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {found}"))
}

/// CPUs of a guest where nothing else is asked for.
const CPUS: u64 = 2;

/// Counts of the source and of the kernel must be the same, lost ones included.
fn every_hint_fault_is_accounted_for(line: Line, rings: &[&str]) {
    let run = Run::new(line, [1024, 128, 512], ThpMode::Never, 280)
        .env("HINTFAULT", common::example("hintfault").to_str().unwrap())
        .env("SECONDS_EACH", if soak() { 60 } else { 6 })
        .env("NARROW", if rings.contains(&"narrow") { "1" } else { "" });
    let Some(_) = run.run(include_str!("daemon/flood.sh")) else { return };
    for &ring in rings {
        let summary = run.json(ring);
        let get = |name: &str| summary["stats"][name].as_u64().unwrap();
        let kernel = summary["vmstat_hint_faults"].as_u64().unwrap() as f64;
        let seen = |name: &str| summary[name].as_u64().unwrap() as f64;
        let (least, most) = (seen("seen_at_least"), seen("seen_at_most"));
        let dropped = get("dropped") as f64 / get("seen") as f64;
        println!(
            "{ring} ring: {kernel} by vmstat, seen {least} to {most}, {:.0}/s, dropped {:.4} %, BPF {:.0} ns a fault, {:.0} ns a fault in user space",
            kernel / summary["seconds"].as_f64().unwrap(),
            dropped * 100.0,
            get("bpf_run_time_ns") as f64 / get("seen") as f64,
            summary["daemon_ns_per_fault"].as_f64().unwrap(),
        );
        println!("{}", summary["stats"]);
        assert!(kernel > 100_000.0, "too few hint faults to show anything");
        assert!(least <= kernel * 1.001 && most >= kernel * 0.999, "{summary}");
        // On a machine that does other things as well they take their time.
        assert!(most - least <= kernel * 0.05, "the looks are too far apart to compare: {summary}");
        // Each CPU may be between the two counts of a fault.
        let told = get("filtered") + get("submitted") + get("dropped");
        assert!(get("seen").abs_diff(told) <= CPUS, "{summary}");
        assert_eq!(get("malformed"), 0);
        match ring {
            "wide" => assert!(dropped < 0.001, "{dropped}"),
            _ => assert!(dropped > 0.05, "the ring hardly overflowed, so nothing was shown: {dropped}"),
        }
    }
}

#[test]
fn every_hint_fault_is_accounted_for_on_6_12() {
    every_hint_fault_is_accounted_for(Line::Stable, &["wide", "narrow"]);
}

#[test]
fn every_hint_fault_is_accounted_for_on_the_newest() {
    where_time_is_no_matter(|| every_hint_fault_is_accounted_for(Line::Newest, &["wide", "narrow"]));
}

fn with_settings(script: &str) -> String {
    format!("{}{script}", include_str!("daemon/settings.sh"))
}

/// The same of settings that have to do with DAMON too.
fn with_damon_settings(script: &str) -> String {
    with_settings(&format!("{}{script}", include_str!("daemon/damon-settings.sh")))
}

/// The seed of what is random in a test: a new one each time, or `THERMOCLINE_SEED`.
fn seed(test: &str) -> u64 {
    let seed = std::env::var("THERMOCLINE_SEED").ok().map_or_else(
        || std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into(),
        |text| text.parse().unwrap(),
    );
    println!(
        "seed {seed}; again with THERMOCLINE_SEED={seed} cargo test --release -p thermocline-lab --test daemon {test}"
    );
    seed
}

fn kills_lose_nothing(line: Line) {
    let mut random = Pcg32::seed_from_u64(seed("kills_lose_nothing"));
    let kills = if soak() { 10 } else { 6 };
    let delays: Vec<String> = (0..kills).map(|_| (random.next_u32() % 2000).to_string()).collect();
    let run =
        Run::new(line, [640, 128, 512], ThpMode::Never, 600).one_processor().env("DELAYS", delays.join(" "));
    let Some(outcome) = run.run(&with_settings(include_str!("daemon/kills.sh"))) else { return };
    assert_eq!(number(&outcome, "kills"), kills);
    assert!(number(&outcome, "while_migrating") >= kills - 2, "too little was left to migrate");
    let reading = run.json("reading");
    assert_eq!((&reading["errors"], &reading["wrong"]), (&0.into(), &0.into()));
    assert!(reading["ops"].as_u64().unwrap() > 1000, "Redis was hardly read: {reading}");
}

#[test]
fn kills_lose_nothing_on_6_12() {
    kills_lose_nothing(Line::Stable);
}

#[test]
fn kills_lose_nothing_on_the_newest() {
    where_time_is_no_matter(|| kills_lose_nothing(Line::Newest));
}

/// Huge pages move whole, with what is in them.
#[test]
fn huge_pages_are_promoted() {
    let run = Run::new(Line::Stable, [640, 128, 512], ThpMode::Always, 200)
        .env("BALANCING", 2)
        .env("MIB", 200)
        .env("HOTCOLD_FLAGS", "--grain-kib 2048")
        .env("SECONDS_ON", 12);
    let Some(outcome) = run.run(include_str!("daemon/moves.sh")) else { return };
    let (judged, last) = (run.verdict("judged"), run.json("last"));
    let moved = judged.moved.unwrap();
    println!("{:?}, mover {}", moved.routes, last["mover"]);
    assert_eq!(number(&outcome, "daemon_status"), 0);
    let (before, after) = (number(&outcome, "huge_before"), number(&outcome, "huge_after"));
    assert!(before > 80 && after + 5 >= before, "{before} huge pages, then {after}");
    assert!(moved.promoted.pages >= 20 * 512, "{moved:?}");
    assert_eq!(number(&outcome, "split"), 0, "huge pages were split");
    assert_eq!(number(&outcome, "kernel_promoted"), 0);
}

/// Where node 0 has much to spare the kernel promotes at the first fault, whatever its limit says.
/// That is its doing, not ours.
#[test]
fn the_kernels_own_promotion_is_told_apart() {
    where_time_is_no_matter(kernels_own_promotion);
}

fn kernels_own_promotion() {
    let run = Run::new(Line::Newest, [3072, 128, 512], ThpMode::Never, 200)
        .env("BALANCING", 0)
        .env("MIB", 200)
        .env("HOTCOLD_FLAGS", "--no-thp")
        .env("SECONDS_ON", 12);
    let Some(outcome) = run.run(include_str!("daemon/moves.sh")) else { return };
    let (judged, last) = (run.verdict("judged"), run.json("last"));
    let promoted = judged.moved.unwrap().promoted.pages;
    let (kernel, ours) =
        (number(&outcome, "kernel_promoted"), last["counters"]["pgpromote_success"].as_u64().unwrap());
    println!("{promoted} pages of hotcold came up; the kernel counts {kernel} as its own, we {ours} as ours");
    assert_eq!(number(&outcome, "daemon_status"), 0);
    assert_eq!(last["free_space_promotion"], serde_json::json!([0]));
    assert!(kernel > 1000, "the path is not open");
    // Programs other than hotcold have pages as well.
    assert!(promoted <= kernel + ours, "pages came up that nobody moved");
    assert!(ours <= promoted + promoted / 10, "we claim moves of the kernel");
}

#[test]
fn missing_tiers_are_named() {
    let mut run = Run::new(Line::Stable, [640, 128, 512], ThpMode::Always, 100);
    let sizes = [640, 128, 512].map(|size| size * MIB);
    run.guest = run.guest.machine(Machine { tiers: false, ..Machine::of_sizes(&sizes) });
    let script = "$THERMOCLINE doctor >&2; echo doctor=$?; $THERMOCLINE run --for 5s; echo run=$?";
    let Some(outcome) = run.run(script) else { return };
    println!("{}", outcome.stderr);
    assert_eq!(number(&outcome, "doctor"), 2, "nothing can be done here");
    assert_ne!(number(&outcome, "run"), 0);
    assert!(outcome.stderr.contains("in one tier"), "{}", outcome.stderr);
}

/// hotcold's 96 MiB are reported in full, and some of them are in DRAM now.
fn residency_is_told(found: &Value) {
    let processes = found["processes"].as_array().unwrap();
    let hotcold = processes.iter().find(|process| process["comm"] == "hotcold").unwrap();
    let kib: BTreeMap<u16, u64> = serde_json::from_value(hotcold["kib_by_node"].clone()).unwrap();
    let sum: u64 = kib.values().sum();
    assert!((96 << 10..120 << 10).contains(&sum), "{kib:?}");
    assert!(kib[&0] > 0 && kib[&2] > 0, "{kib:?}");
}

#[test]
fn users_are_told_what_is_done_and_refused() {
    let run = Run::new(Line::Stable, [640, 128, 512], ThpMode::Never, 200);
    let Some(outcome) = run.run(&with_settings(include_str!("daemon/manners.sh"))) else { return };
    assert_eq!(number(&outcome, "terminated"), 0);
    assert_eq!(number(&outcome, "unread"), 0);
    assert!(run.json("held")["uptime_ns"].as_u64().unwrap() > 2_000_000_000, "it works on");
    assert!(number(&outcome, "doctor") <= 1, "this machine can be worked on");
    assert_eq!(run.verdict("judged-observe").moved.unwrap().all.pages, 0, "observe moves nothing");
    let status = run.json("status");
    assert_eq!(status["mode"], "run");
    assert!(status["counters"]["pgpromote_success"].as_u64().unwrap() > 0);
    residency_is_told(&status["residency"]);
    let explained = run.json("explained");
    println!("{explained:#}");
    assert!(run.text("explained").contains("moved"), "the page has moved: {explained:#}");
}

/// The share of hotcold's hot pages that must be in DRAM after a minute: on a quiet machine, and on
/// one that does other things as well, where an emulated minute holds fewer accesses.
const HOT_MIN: f64 = 0.9;
const HOT_MIN_BUSY: f64 = 0.8;
/// The share of hot pages among those that we moved.
const PRECISION_MIN: f64 = 0.6;

fn hot_pages_are_promoted(line: Line) {
    const FOOTPRINT_MIB: u64 = 408;
    let run = Run::new(line, [640, 128, 1024], ThpMode::Never, 260)
        .env("MIB", FOOTPRINT_MIB)
        .env("FREE_MIB", FOOTPRINT_MIB / 3 - 3)
        .env("OFF_SECONDS", 8)
        .env("ON_SECONDS", if soak() { 60 } else { 20 })
        .env("MORE_SECONDS", if soak() { 0 } else { 100 });
    let Some(outcome) = run.run(include_str!("daemon/promotion.sh")) else { return };
    let number = |name| number(&outcome, name);
    let (off, on, last) = (run.verdict("judged-off"), run.verdict("judged-on"), run.json("last"));
    let moved = on.moved.as_ref().unwrap();
    let ours = last["counters"]["pgpromote_success"].as_u64().unwrap();
    let seconds = |value: &Value| value.as_u64().unwrap() as f64 / 1e9;
    let (daemon, bpf) = (seconds(&last["cpu_time_ns"]), seconds(&last["source"]["bpf_run_time_ns"]));
    let workload = number("workload_ticks") as f64 / 100.0;
    let hot_share = moved.promoted_hot_share.unwrap_or(0.0);
    println!(
        "hot pages in DRAM {:.1} %, cold {:.1} %; promoted {} pages, {:.1} % of them hot; the kernel promoted {}",
        on.hot_in_dram * 100.0,
        on.cold_in_dram * 100.0,
        moved.promoted.pages,
        hot_share * 100.0,
        number("kernel_promoted"),
    );
    println!("ours {ours}, {:?}", moved.routes);
    println!(
        "CPU: daemon {daemon:.2} s + BPF {bpf:.2} s of the workload's {workload:.2} s = {:.2} %",
        (daemon + bpf) / workload * 100.0
    );
    println!(
        "accesses/s: {:.0} without hint faults, {:.0} with hint faults and no source, {:.0} with the source",
        run.accesses("quiet"),
        run.accesses("off"),
        run.accesses("on"),
    );
    for line in run.text("daemon").lines().step_by(5) {
        let now: Value = serde_json::from_str(line).unwrap();
        println!(
            "{:>5.1} s: daemon's CPU {:.2} s, {} hint faults, {} pages promoted",
            seconds(&now["uptime_ns"]),
            seconds(&now["cpu_time_ns"]),
            now["source"]["seen"],
            now["counters"]["pgpromote_success"]
        );
    }
    println!("source {}\nmover {}\nnodes {}", last["source"], last["mover"], last["nodes"]);
    println!("gauges {}\ncounters {}", last["gauges"], last["counters"]);

    assert!(number("free_mib") * 3 <= FOOTPRINT_MIB, "the guest has too much DRAM to spare");
    assert!(number("off_hint_faults") > 1000, "hint faults are needed to show that they alone move nothing");
    assert_eq!(off.moved.unwrap().all.pages, 0, "pages moved without the daemon");
    assert_eq!(number("daemon_status"), 0);
    let hot_min = if soak() { HOT_MIN } else { HOT_MIN_BUSY };
    let found = format!("{:.3} of the hot pages, {hot_share:.3} of what was moved is hot", on.hot_in_dram);
    assert!(on.hot_in_dram >= hot_min && hot_share >= PRECISION_MIN, "{found}");
    // What the kernel promotes so that its tasks recompute their scan periods.
    let kernel = number("kernel_promoted");
    assert!(moved.promoted.pages <= ours + kernel, "hotcold's pages came up without us");
    assert!(kernel * 4 < ours, "the kernel promotes more than a renewal needs");
    // On a machine that does other things as well the figure says nothing: what the guest waits for
    // its CPU counts as used.
    if soak() {
        assert!((daemon + bpf) / workload <= 0.05);
    }
}

#[test]
fn hot_pages_are_promoted_on_6_12() {
    hot_pages_are_promoted(Line::Stable);
}

#[test]
fn hot_pages_are_promoted_on_the_newest() {
    where_time_is_no_matter(|| hot_pages_are_promoted(Line::Newest));
}

#[test]
fn hot_pages_are_promoted_on_6_18() {
    where_time_is_no_matter(|| hot_pages_are_promoted(Line::Longterm));
}

/// Page faults take the way of hardware samples: the kernel's rings, the decoder, the judge, the
/// engine, the mover.
#[test]
fn samples_come_through_the_kernels_ring() {
    let run = Run::new(Line::Stable, [640, 128, 512], ThpMode::Never, 280);
    let Some(outcome) = run.run(include_str!("daemon/samples.sh")) else { return };
    let doctor = run.json("doctor");
    assert_eq!(doctor["sources"][1]["status"], "usable", "{}", doctor["sources"]);
    let (wide, narrow) = (run.json("wide"), run.json("narrow"));
    for (name, found) in [("wide", &wide), ("narrow", &narrow)] {
        println!("{name}: {}\n{}", found["hwsample"], found["overhead"]);
        assert_eq!(count(found, "/hwsample/malformed"), 0);
        assert_eq!(count(found, "/counters/evidence/hw-sample"), count(found, "/hwsample/samples/useful"));
        assert_eq!(count(found, "/counters/evidence/hint-fault"), 0, "nothing comes by BPF");
    }
    assert_eq!((number(&outcome, "daemon_status"), number(&outcome, "narrow_status")), (0, 0));

    let (useful, lost) = (count(&wide, "/hwsample/samples/useful"), count(&wide, "/hwsample/lost"));
    let faults = number(&outcome, "page_faults");
    let told = count(&wide, "/hwsample/samples/taken") + lost;
    println!("{useful} useful of {told}; {faults} page faults by vmstat");
    assert!(
        useful > 2000 && told <= faults + faults / 50 + 1000,
        "{useful} useful of {told}, {faults} faults"
    );
    let promoted = run.verdict("judged").moved.unwrap().promoted.pages;
    let ours = count(&wide, "/counters/pgpromote_success");
    println!("{promoted} pages of hotcold promoted; ours {ours}");
    assert!(promoted > 2000 && promoted <= ours, "pid, address and node of a sample are those of a page");
    assert_eq!(number(&outcome, "kernel_promoted"), 0);

    // Two rings of 8 KiB hold some 220 samples.
    let (burst, lost) = (number(&outcome, "burst"), count(&narrow, "/hwsample/lost"));
    println!("{lost} lost while it stood still, when there were {burst} page faults");
    assert!(burst > 16_000 && lost > burst * 9 / 10, "{lost} of {burst}");
}
