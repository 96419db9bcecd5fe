//! The rules of three published series on a live kernel, each beside the same without it.

use serde_json::Value;
use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::{Line, Machine, Outcome, ThpMode};

use super::{MIB, Run, count, number, soak, where_time_is_no_matter};

/// Accesses a second where waits are long: 3 in 4096 of them are to 8028 cold pages, which are
/// accessed once in 18 s each. The others keep the program running, as it is scanned by its CPU
/// time.
const SLOW_RATE: u64 = 600_000;
const COLD_PAGES: f64 = 8028.0;
/// The same where samples are taken: a fifth of 12288 pages gets 98 %, 60 accesses a second each,
/// and the others one in 3 s.
const RATE: u64 = 150_000;
const HOT_PAGES: u64 = 2458;
/// Pages of a walk a second.
const PAGES_A_SECOND: u64 = 50;

fn published_series_do_what_they_claim(line: Line) {
    let sizes = [640, 128, 512];
    let pages = if soak() { 1200 } else { 300 };
    let windows: &[&str] = if soak() { &["none", "published", "streams"] } else { &["none", "streams"] };
    let mut run = Run::new(line, sizes, ThpMode::Never, if soak() { 500 } else { 250 })
        .env("RATE", RATE)
        .env("SLOW_RATE", SLOW_RATE)
        .env("SECONDS_EACH", if soak() { 30 } else { 5 })
        .env("PAGES", pages)
        .env("PAGES_A_SECOND", PAGES_A_SECOND)
        .env("WINDOWS", windows.join(" "));
    // Not in the folder that the script clears.
    let plugin = tempfile::Builder::new().prefix("series").tempdir_in("/tmp").unwrap();
    let machine = Machine::of_sizes(&sizes.map(|size| size * MIB));
    let (guest, rings) = offer_samples(run.guest, plugin.path());
    run.guest = attach(guest, &machine, plugin.path(), &["cache-kib=256", &rings]).unwrap();
    let Some(outcome) = run.run(include_str!("series.sh")) else { return };
    fault_counts_take_what_time_rejects(&run);
    pages_ahead_of_a_walk_save_its_faults(&run, &outcome, windows, pages);
    samples_find_the_hot_pages_and_become_fewer(&run);
}

/// How much a counter grew in a part of the run.
fn grown(run: &Run, part: &str, path: &str) -> u64 {
    count(&run.json(&format!("{part}-to")), path) - count(&run.json(&format!("{part}-from")), path)
}

/// What it cost, as S1 compares its sources.
fn cost(line: &Value) -> String {
    let ms = |name: &str| count(line, &format!("/overhead/{name}_ns")) / 1_000_000;
    let us = |name: &str| match line["overhead"][format!("{name}_ns")].as_f64() {
        Some(ns) => format!("{:.1} us", ns / 1e3),
        None => "-".to_owned(),
    };
    format!(
        "scans {} ms, hint faults {} ms, samples {} ms, in all {} ms; {} a fault, {} a sample, {} a moved page",
        ms("scans"),
        ms("faults"),
        ms("samples"),
        ms("total"),
        us("fault"),
        us("sample"),
        us("moved_page")
    )
}

/// Pages wait W seconds for their next access on average. By time a page is promoted if it comes
/// within mainline's second, 1 - e^(-1/W), at each of its marks, of which there is one at first and
/// one after each access. By count every page is that is accessed in a time T, 1 - e^(-T/W): there
/// are far fewer than a million faults. Half of that is asked for, since a page that was accessed
/// is marked again by the next scan, which is seconds away on a busy host.
fn fault_counts_take_what_time_rejects(run: &Run) {
    let of = |rule: &str| {
        let log = run.text("slow-log");
        let mark = |end: &str| run.text(&format!("mark-{rule}-{end}")).trim().parse::<usize>().unwrap();
        let (mut cold, mut seconds) = (0, 0.0);
        for line in log.lines().take(mark("to")).skip(mark("from")) {
            let line: Value = serde_json::from_str(line).unwrap();
            cold += count(&line, "/accesses") - count(&line, "/hot_accesses");
            seconds += 1.0;
        }
        let wait = COLD_PAGES * seconds / cold as f64;
        let [before, after] = ["before", "after"].map(|end| run.verdict(&format!("{rule}-{end}")));
        let time = after.time.since(before.time).0 as f64 / 1e9;
        let promoted = (after.cold_in_dram - before.cold_in_dram) / (1.0 - before.cold_in_dram);
        println!(
            "{rule}: waits of {wait:.1} s, {time:.1} s, {:.1} % of the pages promoted; {} hint faults, {} proposed; \
             overhead {} ms, {} of them scans",
            promoted * 100.0,
            grown(run, rule, "/counters/numa_hint_faults"),
            grown(run, rule, "/counters/proposed"),
            grown(run, rule, "/overhead/total_ns") / 1_000_000,
            grown(run, rule, "/overhead/scans_ns") / 1_000_000,
        );
        (wait, time, promoted)
    };
    let (wait, time, by_time) = of("latency");
    let at_each_mark = 1.0 - (-1.0 / wait).exp();
    assert!(by_time <= 1.3 * at_each_mark * (1.0 + time / wait), "latency takes what waits long");
    let (wait, time, by_count) = of("fault-count");
    assert!(by_count >= 0.5 * (1.0 - (-time / wait).exp()), "fault-count does not take what waits long");
    assert!(by_count >= 2.0 * by_time);
}

/// Without windows each page is a fault. With them a stream faults on each page until it is
/// followed as far ahead as it comes while pages move: R pages, 25 in a tick of 100 ms and the
/// emulator's 400 ms for a move. From then on R faults bring a window that is R pages longer than
/// the last: of 300 pages, 25 + 25, 50 + 25, 75 + 25 and the rest, 100 are faults.
fn pages_ahead_of_a_walk_save_its_faults(run: &Run, outcome: &Outcome, windows: &[&str], pages: u64) {
    for &window in windows {
        let faults = ["up", "down", "both"].map(|way| number(outcome, &format!("{window}_{way}")));
        let last = run.json(&format!("{window}-to"));
        let gauges = last["gauges"].as_array().unwrap();
        let ahead = gauges.iter().find(|gauge| gauge["name"] == "neighbours_proposed");
        let ahead = ahead.map_or(0, |gauge| count(gauge, "/value"));
        let moved = grown(run, window, "/counters/pgmigrate_success");
        let overhead = grown(run, window, "/overhead/total_ns") / 1_000_000;
        // What was not a fault was moved before the program came.
        let used = 3 * pages - faults.map(|faults| faults.min(pages)).iter().sum::<u64>();
        println!(
            "walks of {pages} pages, windows {window}: {faults:?} faults up, down and from both halves; \
             {moved} pages moved, {ahead} proposed ahead, {used} used; overhead {overhead} ms"
        );
        match window {
            "none" => {
                // The program's other pages fault as well.
                assert!(faults.iter().all(|&faults| (pages..pages * 3 / 2).contains(&faults)));
                assert_eq!(ahead, 0);
            }
            "streams" => {
                assert!(faults.iter().all(|&faults| faults * 3 <= pages * 2), "hardly a fault is saved");
                assert!(ahead >= used && used >= pages, "what was proposed ahead was used");
            }
            // As published it is kept by ascending streams alone.
            _ => assert!(faults[0] < faults[1], "one window follows a descending stream"),
        }
    }
}

/// All samples are remote at first and most of them local at last, so the period becomes the
/// shortest and then the longest. At the longest a hot page is sampled 1.5 times a second. At the
/// shortest a cold page is sampled once in 30 s, and then hardly again within mainline's second.
fn samples_find_the_hot_pages_and_become_fewer(run: &Run) {
    for rule in ["inter-arrival", "latency-of-hot"] {
        let lines: Vec<(f64, Value)> = run
            .text(rule)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .map(|line| (count(&line, "/uptime_ns") as f64 / 1e9, line))
            .collect();
        let (judged, (seconds, last)) = (run.verdict(&format!("{rule}-judged")), lines.last().unwrap());
        println!(
            "{rule}: hot {:.1} %, cold {:.1} % in DRAM after {seconds:.0} s; {} hint faults, {} samples; \
             {} pages moved; {}",
            judged.hot_in_dram * 100.0,
            judged.cold_in_dram * 100.0,
            count(last, "/source/seen"),
            last["hwsample"]["samples"]["taken"],
            count(last, "/counters/pgmigrate_success"),
            cost(last),
        );
        if rule == "latency-of-hot" {
            continue;
        }
        assert_eq!(count(last, "/counters/evidence/hint-fault"), 0, "samples are the only source");
        assert!(judged.hot_in_dram >= 0.8 && judged.cold_in_dram <= 0.02, "{judged:?}");

        let period = |line: &Value| line["hwsample"]["period"].as_u64();
        println!("periods {:?}", lines.iter().map(|(_, line)| period(line)).collect::<Vec<_>>());
        let remote = |line: &Value| count(line, "/counters/pgmigrate_success") < HOT_PAGES / 2;
        // From 30 at the start; how close it comes to 10 depends on how soon pages are home.
        let dense = lines.iter().any(|(_, line)| remote(line) && period(line).is_some_and(|p| p <= 15));
        assert!(dense, "dense while pages are remote");
        assert_eq!(period(last), Some(40), "sparse once they are home");
        // A quarter of the samples, then: the program goes on as before.
        let taken = |line: &Value| count(line, "/hwsample/samples/taken") + count(line, "/hwsample/lost");
        let paces: Vec<f64> = lines
            .windows(5)
            .map(|part| (&part[0], &part[4]))
            .map(|(from, to)| (taken(&to.1) - taken(&from.1)) as f64 / (to.0 - from.0))
            .collect();
        let (dense, sparse) = (paces.iter().copied().fold(0.0, f64::max), paces[paces.len() - 1]);
        println!("{dense:.0} samples a second at most, {sparse:.0} at last");
        assert!(sparse <= 0.5 * dense);
    }
}

#[test]
fn published_series_do_what_they_claim_on_6_12() {
    where_time_is_no_matter(|| published_series_do_what_they_claim(Line::Stable));
}

#[test]
fn published_series_do_what_they_claim_on_the_newest() {
    where_time_is_no_matter(|| published_series_do_what_they_claim(Line::Newest));
}
